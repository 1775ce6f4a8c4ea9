"""The pages of the built book, each parsed once for all files of tests."""

import functools
import re

import notebooks
from bs4 import BeautifulSoup

HTML = notebooks.ROOT / "_build" / "html"


def plain_code(path):
    """A page's HTML; in its code Pygments' elements, the most of any, are plain text."""
    html = path.read_text("utf-8")
    return re.sub(r'<span class="\w{1,3}">([^<]*)</span>', r"\1", html)


@functools.cache
def built(page):
    """One page, parsed."""
    return BeautifulSoup(plain_code(HTML / f"book/{page}.html"), "html.parser")
