"""Sphinx extension: a search that finds sections, claims and entries of the API, without a network.

What there is to find is read from the pages as they are written: a section with its own text, not
that of the sections in it; a definition or theorem in its box; an entry of the API with its
docstring; and, from the ledger, a claim with its verdict, which leads to the box that checks it.
``search_index.js`` carries them as a script, because a page opened from disk may load no other
data; ``book/_static/search.js`` ranks them with elasticlunr, the library that pdoc ships and keeps.
Sphinx's own search finds whole pages, and knows neither claims nor verdicts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.domains.math import MathDomain

from bayesloss_book.ledger.claims import ledger

# Parts of a section that are found as something of their own, or not at all.
APART = (addnodes.desc, nodes.literal_block, nodes.raw, nodes.comment, nodes.title)
NOTES = {"made-box", "made-page", "chapter-box"}  # how a figure was made; what a chapter needs

LIBRARY = "pdoc/templates/resources/elasticlunr.min.js"

Entry = dict[str, str]


def read(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Keep what a page has to find, for as long as the build lives."""
    uri = cast(StandaloneHTMLBuilder, app.builder).get_target_uri(docname)
    app.__dict__.setdefault("_book_search", []).extend(_found(doctree, uri))


def _entry(kind: str, title: str, where: str, url: str, text: str, **more: str) -> Entry:
    return {"kind": kind, "title": title, "where": where, "url": url, "text": text, **more}


def _found(doctree: nodes.document, uri: str) -> Iterator[Entry]:
    """A page's sections, the outermost being the page; its boxes with a number; its API."""
    page = _text(doctree.next_node(nodes.title))
    for part in doctree.findall(nodes.Element):
        place = f"{uri}#{part['ids'][0]}" if part["ids"] else uri
        if _has_title(part):
            kind = "api" if part.next_node(addnodes.desc) else "section"
            title, text = _text(part.next_node(nodes.title)), _text(part)
            if part.parent is doctree:
                yield _entry(kind, title, "", uri, text)
            elif text:
                yield _entry(kind, title, page, place, text)
        elif "proof" in part["classes"] and part["ids"] and isinstance(part[0], nodes.title):
            title = _text(part[0]).removeprefix("(").removesuffix(")")
            yield _entry("section", title, page, place, _text(part))
        elif isinstance(part, addnodes.desc_signature) and part["ids"]:
            text = _text(part.parent.next_node(addnodes.desc_content))
            yield _entry("api", part["fullname"], part["module"] or "", place, text)


def _has_title(section: nodes.Node) -> bool:
    """Tell whether a section is one to a reader; sphinx-proof makes others, for its boxes."""
    return isinstance(section, nodes.section) and isinstance(section[0], nodes.title)


def _apart(node: nodes.Node) -> bool:
    """Tell whether a part of a section is none of its own text."""
    noted = isinstance(node, nodes.Element) and not NOTES.isdisjoint(node["classes"])
    return isinstance(node, APART) or noted or _has_title(node)


def _text(node: nodes.Node) -> str:
    """Return a node's own text, with formulas between dollar signs and single spaces."""

    def parts(inner: nodes.Node) -> Iterator[str]:
        for child in inner.children:
            if _apart(child):
                continue
            if isinstance(child, nodes.math | nodes.math_block):
                yield f"${child.astext()}$"
            elif isinstance(child, nodes.Text):
                yield child.astext().replace("$", "")
            else:
                yield from parts(child)
            if not isinstance(child, nodes.Inline | nodes.Text):
                yield " "

    return " ".join("".join(parts(node)).split())


def write(app: Sphinx, exception: Exception | None) -> None:
    """Put the entries, those of the ledger's claims, and the library beside the book."""
    if exception or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    entries = []
    for claim in ledger().values():
        url, title = f"book/{claim.page}.html#claim-{claim.id}", f"{claim.paper}, {claim.where}"
        said, verdict = claim.statement, claim.verdict
        entries.append(_entry("claim", title, claim.page, url, said, verdict=verdict))
    entries += [*app.__dict__["_book_search"]]
    script = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    (static / "search_index.js").write_text(f"const SEARCH_INDEX = {script};\n", "utf-8")
    library = Path(str(metadata.distribution("pdoc").locate_file(LIBRARY)))
    (static / library.name).write_bytes(library.read_bytes())
    (Path(app.outdir) / "searchindex.js").unlink(missing_ok=True)  # the theme's, which none reads


def prepare(app: Sphinx, pagename: str, *_: Any) -> None:
    """Have the search page load MathJax, for the formulas in what it finds."""
    if pagename == "search":
        domain = cast(MathDomain, app.env.get_domain("math"))
        domain.data["has_equations"]["search"] = True


def setup(app: Sphinx) -> dict[str, bool]:
    """Read after all references are resolved, write when the rest is."""
    app.connect("doctree-resolved", read, priority=900)
    app.connect("html-page-context", prepare, priority=100)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
