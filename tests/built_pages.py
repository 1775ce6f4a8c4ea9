"""The pages of the built book, each parsed once for all files of tests."""

import functools
import re

import notebooks
from bs4 import BeautifulSoup

HTML = notebooks.ROOT / "_build" / "html"


@functools.cache
def built(page):
    """One page; in its code Pygments' elements, the most of any, are plain text."""
    html = (HTML / f"book/{page}.html").read_text("utf-8")
    html = re.sub(r'<span class="\w{1,3}">([^<]*)</span>', r"\1", html)
    return BeautifulSoup(html, "html.parser")
