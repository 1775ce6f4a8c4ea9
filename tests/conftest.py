"""For all tests: figures are drawn without a screen; each file's own tests come first."""

import os

import pytest

os.environ["MPLBACKEND"] = "Agg"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put scikit-learn's checks last in each file: what fails before them names the formula."""
    place = {path: i for i, path in enumerate(dict.fromkeys(item.path for item in items))}

    def last(item: pytest.Item) -> bool:
        name = item.nodeid.lower().replace("_", "")
        return "scikitlearn" in name and "check" in name

    items.sort(key=lambda item: (place[item.path], last(item)))
