"""Name the tests that failed, from pytest's reports, at the end of `make test`.

    python tools/failures.py REPORTS

Each line has the part, the test, and how its message begins, so that whoever sees only the last
page of a long log knows where to look.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

# What colours a terminal, as pytest writes it into XML: an escape, named, and its number.
COLOUR = re.compile(r"#x1B\[\d*m")
LONGEST = 120  # characters of a message


def failures(reports: Path) -> Iterator[str]:
    """Yield a line for each test that failed, or that could not begin."""
    for report in sorted(reports.glob("*.xml")):
        for case in ElementTree.parse(report).iter("testcase"):
            for outcome in [*case.iter("failure"), *case.iter("error")]:
                said = " ".join(COLOUR.sub("", outcome.get("message", "")).split())
                test = f"{case.get('classname')}::{case.get('name')}"
                yield f"{report.stem}: {test}: {said[:LONGEST]}"


if __name__ == "__main__":
    for line in failures(Path(sys.argv[1])):
        print(line)
