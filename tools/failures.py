"""Name the tests that failed, from pytest's reports, at the end of `make test`.

    python tools/failures.py REPORTS

Each line has the part, the test, and how its message begins, so that whoever sees only the last
page of a long log knows where to look.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

# What colours a terminal, as pytest writes it into XML: an escape, named, and its number.
COLOUR = re.compile(r"#x1B\[\d*m")
LONGEST = 120  # characters of a message


def outcomes(report: Path) -> dict[str, str | None]:
    """Return of each test the message with which it failed or could not begin; else None."""
    found = dict[str, str | None]()
    for case in ElementTree.parse(report).iter("testcase"):
        test = f"{case.get('classname')}::{case.get('name')}"
        found[test] = None
        for wrong in [*case.iter("error"), *case.iter("failure")]:
            found[test] = " ".join(COLOUR.sub("", wrong.get("message", "")).split())
    return found


def failures(reports: Path) -> list[str]:
    """Return a line for each test that failed, or that could not begin."""
    return [
        f"{report.stem}: {test}: {said[:LONGEST]}"
        for report in sorted(reports.glob("*.xml"))
        for test, said in outcomes(report).items()
        if said is not None
    ]


if __name__ == "__main__":
    for line in failures(Path(sys.argv[1])):
        print(line)
