"""How long each page of the built book takes to load from disk in headless Chromium.

Until the browser's load event, with formulas typeset. The aim is less than 2 seconds; the figures
depend on the machine and on what else it does.
"""

import browser
import notebooks
import pytest

HTML = notebooks.ROOT / "_build" / "html"
PAGES = [file.rpartition(".")[0] for file in notebooks.toc_files()]


@pytest.fixture(scope="module")
def chromium():
    if browser.executable() is None:
        pytest.skip("no chromium on this machine")
    with browser.chromium() as started:
        yield started


@pytest.mark.parametrize("page", PAGES)
def test_page_load(benchmark, chromium, page):
    def load(tab):
        tab.goto((HTML / f"{page}.html").as_uri())
        tab.evaluate("window.MathJax?.startup?.promise")

    def fresh_tab():
        return (chromium.new_page(),), {}

    benchmark.pedantic(load, setup=fresh_tab, rounds=3)
    for context in chromium.contexts:
        context.close()
