"""Debian's Chromium, driven by Playwright, from which nothing leaves the machine.

Playwright would download a browser of its own; ours is the system's.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

# A page that asks for an address finds that no host of any name exists.
CUT = ["--host-resolver-rules=MAP * ~NOTFOUND"]


def executable() -> str | None:
    """Return the path of the system's Chromium or Chrome, None where there is none."""
    mac = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
    names = ("chromium", "chromium-browser", "google-chrome", mac)
    return next((path for path in map(shutil.which, names) if path), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a headless browser with the network cut; it ends with the context."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=CUT)
        yield browser
        browser.close()


def typeset(page: Page) -> None:
    """Have MathJax typeset every formula, which it does only when one comes into view."""
    page.wait_for_function("!window.MathJax || window.MathJax.startup?.promise !== undefined")
    page.evaluate(
        """async () => {
          await window.MathJax?.startup.promise;
          await window.MathJax?.startup.document.lazyTypesetAll();
          await document.fonts.ready;
        }"""
    )
