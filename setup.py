"""What pyproject.toml cannot say: stored results in the wheel, and the README of a package page.

The stores stay in data/results, where a clone has them; in the wheel they are
bayesloss_book/results. `stored_results` of `bayesloss_book.data.stored` finds either.
"""

import re
import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)]+)\)")


class WithResults(build_py):
    """Copies the stores beside the modules; an editable install finds them in the clone."""

    def run(self) -> None:
        """Copy modules, then stores."""
        super().run()
        if not self.editable_mode:
            results = Path(self.build_lib, "bayesloss_book", "results")
            shutil.copytree("data/results", results, dirs_exist_ok=True, ignore=_hidden)


def _hidden(folder: str, names: list[str]) -> list[str]:
    """The locks of running experiments."""
    return [name for name in names if name.startswith(".")]


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
        cmdclass={"build_py": WithResults},
        long_description=for_a_package_page(
            (HERE / "README.md").read_text(encoding="utf-8"), project["urls"].get("Repository")
        ),
        long_description_content_type="text/markdown",
    )
