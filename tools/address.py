"""Write the address of the repository wherever it has to stand: `make address URL=...`.

`_config.yml` is the place that the book reads; a package, a citation and a command to paste need it
literally. Without an address the lines are comments, or have a word in its place.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+")
# The lines of each file, as they are with an address.
LINES = {
    "_config.yml": ['  url: "{}"'],
    "pyproject.toml": [
        'Repository = "{}"',
        'Issues = "{}/issues"',
        'Changelog = "{}/blob/HEAD/CHANGELOG.md"',
    ],
    "CITATION.cff": ['repository-code: "{}"'],
    "README.md": ["    git clone {} bayesloss"],
}


def _line(form: str) -> re.Pattern[str]:
    """The line of this form in a file: with an address, with another word, or as a comment."""
    before, _, after = form.partition("{}")
    return re.compile(rf"^(?:# )?{re.escape(before)}(\S*?){re.escape(after)}$", re.MULTILINE)


def addresses(root: Path) -> list[str | None]:
    """Return what each line says, None where it has no address."""
    found: list[str | None] = []
    for name, forms in LINES.items():
        text = (root / name).read_text(encoding="utf-8")
        for form in forms:
            (line,) = _line(form).finditer(text)
            is_one = ADDRESS.fullmatch(line[1]) and not line[0].startswith("#")
            found.append(line[1] if is_one else None)
    return found


def write(root: Path, address: str) -> None:
    """Write the address into every line; a ValueError if it is none."""
    if not ADDRESS.fullmatch(address):
        raise ValueError(f"expected https://github.com/OWNER/REPOSITORY, got {address!r}")
    for name, forms in LINES.items():
        text = (root / name).read_text(encoding="utf-8")
        for form in forms:
            text = _line(form).sub(form.format(address), text)
        (root / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(ROOT, *sys.argv[1:])
