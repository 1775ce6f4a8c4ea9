"""The browser that the tests of the built book share."""

import os

import browser as tools
import pytest


@pytest.fixture(scope="session")
def browser():
    if tools.executable() is None:
        say = "no chromium on this machine (on Debian: apt install chromium)"
        pytest.fail(say) if os.environ.get("CI") else pytest.skip(say)
    with tools.chromium() as started:
        yield started
