"""Sphinx extension: a search that finds sections, claims and entries of the API, without a network.

What there is to find is read from the pages as they are written: a section with its own text, not
that of the sections in it; a definition or theorem in its box; an entry of the API with its
docstring; and, from the ledger, a claim with its verdict, which leads to the box that checks it.
``search_words.yml`` adds what readers type who do not know the book's words.
``search_index.js`` carries them as a script, because a page opened from disk may load no other
data; ``book/_static/search.js`` ranks them by stems of elasticlunr, the library
that pdoc ships and keeps. Sphinx's own search finds whole pages, and knows neither claims nor
verdicts.
"""

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging

from paperledger.ledger.claims import ledger

# Parts of a section that are found as something of their own, or not at all.
APART = (addnodes.desc, nodes.literal_block, nodes.raw, nodes.comment, nodes.title)
NOTES = {"made-box", "made-page", "chapter-box"}  # how a figure was made; what a chapter needs

# Found as one place: the sections have the titles of the chapters that they ask about.
ONE_PLACE = {"book/course/checkpoints"}

LIBRARY = resources.files("pdoc") / "templates" / "resources" / "elasticlunr.min.js"

WORDS = Path(__file__).with_name("search_words.yml")
logger = logging.getLogger(__name__)

# The parts of an entry; only a claim has the last.
PARTS = ("kind", "title", "where", "url", "text", "verdict")
_READ: list[tuple[str, ...]] = []


def read(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Keep what a page has to find, for as long as the build lives."""
    app.builder.indexer = None  # type: ignore[attr-defined]  # of the search that none reads
    found = _found(doctree, app.builder.get_target_uri(docname))
    _READ.extend(islice(found, 1) if docname in ONE_PLACE else found)
    # The search page, which is written last, shows the formulas in it: it has to load MathJax.
    app.env.get_domain("math").data["has_equations"]["search"] = True


def _found(doctree: nodes.document, uri: str) -> Iterator[tuple[str, ...]]:
    """A page's sections, the outermost being the page; its boxes with a number; its API."""
    page = _text(doctree.next_node(nodes.title))
    for part in doctree.findall(nodes.Element):
        place = f"{uri}#{part['ids'][0]}" if part["ids"] else uri
        if _has_title(part):
            kind = "api" if part.next_node(addnodes.desc) else "section"
            title = _text(part.next_node(nodes.title))
            text = _text(part)
            if part.parent is doctree:
                yield kind, title, "", uri, text
            elif text:
                yield kind, title, page, place, text
        elif "proof" in part["classes"] and part["ids"] and isinstance(part[0], nodes.title):
            title = _text(part[0]).removeprefix("(").removesuffix(")")
            yield "section", title, page, place, _text(part)
        elif isinstance(part, addnodes.desc_signature) and part["ids"]:
            text = _text(part.parent.next_node(addnodes.desc_content))
            yield "api", part["fullname"], part["module"] or "", place, text


def _has_title(section: nodes.Node) -> bool:
    """Tell whether a section is one to a reader; sphinx-proof makes others, for its boxes."""
    return isinstance(section, nodes.section) and isinstance(section[0], nodes.title)


def _text(node: nodes.Node) -> str:
    """Return a node's own text, with formulas between dollar signs and single spaces."""

    def parts(inner: nodes.Node) -> Iterator[str]:
        for child in inner.children:
            noted = isinstance(child, nodes.Element) and not NOTES.isdisjoint(child["classes"])
            if noted or isinstance(child, APART) or _has_title(child):
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


def hold_static(app: Sphinx) -> None:
    """Make the folder of what pages load, before a build can fail.

    The theme copies its logo also when a build has failed: without the folder, to a file of its
    name, at which the next build would stop.
    """
    static = Path(app.outdir) / "_static"
    if static.is_file():
        static.unlink()
    static.mkdir(parents=True, exist_ok=True)


def write(app: Sphinx, exception: Exception | None) -> None:
    """Put the entries, those of the ledger's claims, and the library beside the book."""
    if exception:
        return
    static = Path(app.outdir) / "_static"
    claims = []
    for claim in ledger().values():
        url = f"book/{claim.page}.html#claim-{claim.id}"
        title = f"{claim.paper}, {claim.where}"
        claims.append(("claim", title, claim.page, url, claim.statement, claim.verdict))
    entries = [dict(zip(PARTS, entry, strict=False)) for entry in claims + _READ]
    add_words(entries, yaml.safe_load(WORDS.read_text("utf-8")))
    script = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    (static / "search_index.js").write_text(f"const SEARCH_INDEX = {script};\n", "utf-8")
    (static / LIBRARY.name).write_bytes(LIBRARY.read_bytes())


def add_words(entries: list[dict[str, Any]], words: Mapping[str, list[str]]) -> None:
    """Give each place the phrases that readers type for it; warn of a place that is none."""
    places = {_place(entry["url"]): entry for entry in entries if entry["kind"] == "section"}
    for place, phrases in words.items():
        if place in places:
            places[place]["asked"] = phrases
        else:
            logger.warning("%s: expected places of the book, got %r", WORDS.name, place)


def _place(url: str) -> str:
    return url.removeprefix("book/").replace(".html", "", 1)


def setup(app: Sphinx) -> None:
    """Read after all references are resolved, write when the rest is."""
    app.connect("builder-inited", hold_static)
    app.connect("doctree-resolved", read, priority=900)
    app.connect("build-finished", write)
