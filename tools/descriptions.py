"""Sphinx extension: a description of each page, which chats and search engines show of a link.

It is the beginning of the page's first paragraph, without formulas' code. `sphinxext-opengraph`
wants the address of the site, which is known to its publisher alone, and draws pictures.
"""

import html
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

LONGEST = 200  # characters that a preview shows


def description(doctree: nodes.document) -> str:
    """The first paragraph of a page that is no note, in whole words."""
    for paragraph in doctree.findall(nodes.paragraph):
        if _in_note(paragraph):
            continue
        words = " ".join(_plain(paragraph).split())
        if len(words) >= 40:
            return shortened(words)
    return ""


def shortened(text: str) -> str:
    """The whole words of a text that fit, with an ellipsis where it goes on."""
    if len(text) <= LONGEST:
        return text
    return text[: LONGEST - 1].rpartition(" ")[0].rstrip(",;:") + "…"


def _in_note(node: nodes.Node) -> bool:
    """Tell whether a paragraph stands in a box, a cell or a list."""
    above = node.parent
    while above is not None and not isinstance(above, nodes.section | nodes.document):
        if isinstance(above, nodes.container | nodes.Admonition | nodes.list_item):
            return True
        above = above.parent
    return False


def _plain(node: nodes.Node) -> str:
    """The text of a node; a formula as it is written, without braces and backslashes."""
    if isinstance(node, nodes.math):
        return node.astext().translate(str.maketrans("", "", "\\{}"))
    if isinstance(node, nodes.Text):
        return node.astext()
    return "".join(_plain(child) for child in node.children)


def add(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Put the description into the head of a page."""
    said = description(doctree) if doctree else ""
    if said:
        title = html.escape(context["title"], quote=True)
        text = html.escape(said, quote=True)
        context["metatags"] += (
            f'\n<meta name="description" content="{text}"/>'
            f'\n<meta property="og:title" content="{title}"/>'
            f'\n<meta property="og:description" content="{text}"/>'
            '\n<meta property="og:type" content="article"/>'
        )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("html-page-context", add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
