"""What pyproject.toml cannot say: the README of a package page, where no relative link leads."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)]+)\)")


def for_a_package_page(readme: str, address: str | None) -> str:
    """Lead relative links to the repository's address; without one keep their words alone."""

    def absolute(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        if address is None:
            return "" if picture else words
        return f"{picture}[{words}]({address}/{'raw' if picture else 'blob'}/HEAD/{path})"

    return RELATIVE.sub(absolute, readme)


if __name__ == "__main__":
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=for_a_package_page(
            (HERE / "README.md").read_text(encoding="utf-8"), project["urls"].get("Repository")
        ),
        long_description_content_type="text/markdown",
    )
