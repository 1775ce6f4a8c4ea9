"""For all tests: no screen for figures; a file's own tests first; failing ones name formulas.

The shapes that annotations of the library state are checked at run time.
"""

import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from jaxtyping import install_import_hook
from stands_on import stands_on

# Folders and modules of the library whose annotated shapes are checked. Public functions say
# themselves what they expect, so theirs stand in docstrings.
SHAPED: list[str] = [
    "bayesloss.learning.inference.binning",
    "bayesloss.learning.inference.log_joint",
    "bayesloss.learning.inference.newton",
    "bayesloss.lbfgs",
]
install_import_hook(SHAPED, "shaped.checked")

os.environ["MPLBACKEND"] = "Agg"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put scikit-learn's checks last in each file: what fails before them names the formula."""
    place = {path: i for i, path in enumerate(dict.fromkeys(item.path for item in items))}

    def last(item: pytest.Item) -> bool:
        name = item.nodeid.lower().replace("_", "")
        return "scikitlearn" in name and "check" in name

    items.sort(key=lambda item: (place[item.path], last(item)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say of a test that failed what it stands on; see `tools/stands_on.py`."""
    report = yield
    if report.failed and call.excinfo and isinstance(item, pytest.Function):
        lines = stands_on(item, call.excinfo)
        report.sections += [("what this test stands on", "\n".join(lines))] if lines else []
    return report


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The browser that all tests share."""
    import browser as tools

    if tools.executable() is None:
        say = "no chromium on this machine (on Debian: apt install chromium)"
        pytest.fail(say) if os.environ.get("CI") else pytest.skip(say)
    with tools.chromium() as started:
        yield started
        _wait(120)
    _wait(0)


@pytest.fixture(autouse=True)
def answered(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test waits two minutes at most for a browser, which may have died."""
    asked = "browser" in request.fixturenames
    _wait(120 * asked)
    yield
    _wait(0)


def _wait(seconds: int) -> None:
    def stop(*_: object) -> None:
        raise TimeoutError("the browser has not answered for two minutes")

    if seconds:
        signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)


@pytest.fixture
def shown(browser: Any) -> Iterator[Any]:
    """Show a part of a page, such as a slider, in a tab."""
    tab = browser.new_page(offline=True)

    def show(html: str) -> Any:
        tab.set_content(html)
        return tab

    yield show
    tab.close()
