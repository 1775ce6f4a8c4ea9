"""What pyproject.toml cannot say: the wheel carries the stored results beside the book's code.

They stay in data/results, where a clone has them; in the wheel they are bayesloss_book/results.
`stored_results` of `bayesloss_book.stores.tables` finds either.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


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


setup(cmdclass={"build_py": WithResults})
