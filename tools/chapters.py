"""Sphinx extension: what stands around a chapter's text and is written in one place.

Under its title a box says what a reader needs, will be able to do, and how long it takes, from
``book/course/chapters.yml`` and the words that Read shows; it leads to the chapter's questions on
``book/course/checkpoints.md``, and offers the student notebook. In the text, a term of
``book/reference/glossary.md`` is a link where it comes first, and its definition travels with the
page: ``glossary.js`` shows it on hover and on focus. Sphinx's glossary asks for a role at each
place, and no extension counts what Read shows.
"""

from __future__ import annotations

import functools
import html
import posixpath
import re
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from repository_buttons import binder
from sphinx import addnodes
from sphinx.application import Sphinx

BOOK = Path(__file__).resolve().parents[1] / "book"
ASKED = ("learning/", "calibrating/", "beyond/")  # the parts whose chapters have questions
PACE = 120  # words a minute, formulas among them
APART = (
    nodes.title,
    nodes.literal,
    nodes.reference,
    addnodes.pending_xref,
    nodes.raw,
    nodes.strong,
)
# Words of the glossary in another sense.
ELSE = re.compile(
    r"in the evidence|evidence (below|proves|has|explains)|link of 1 GB|double precision", re.I
)
ENTRY = re.compile(r"^(\w.*)\n {4}(.+)", re.MULTILINE)


@functools.cache
def chapters() -> dict[str, dict[str, Any]]:
    """What the boxes say, by page."""
    return yaml.safe_load((BOOK / "course" / "chapters.yml").read_text("utf-8"))


@functools.cache
def glossary() -> dict[str, str]:
    """The terms, with the first paragraph of what is said of each."""
    text = (BOOK / "reference" / "glossary.md").read_text("utf-8")
    return dict(ENTRY.findall(text.partition("{glossary}\n")[2]))


@functools.cache
def _terms() -> tuple[re.Pattern[str], dict[str, str]]:
    """What finds a term or its plural in a text; and the terms by their lower case."""
    longest = sorted(glossary(), key=len, reverse=True)
    found = "|".join(map(re.escape, longest)).replace(r"\ ", r"\s+").replace("'", "['’]")
    return re.compile(rf"(?<![\w-])({found})(?:s|es)?(?![\w-])", re.I), {
        t.lower(): t for t in longest
    }


def minutes(doctree: nodes.document) -> int:
    """How long text and open code take to read, in steps of five minutes."""
    said = [part.astext() for part in doctree.findall(nodes.paragraph) if not _hidden(part)]
    for cell in doctree.findall(nodes.container):
        folded = any(name.startswith(("tag_hide", "tag_remove")) for name in cell["classes"])
        if cell.get("nb_element") == "cell_code" and not folded and not _hidden(cell.parent):
            said += [block.astext() for block in cell.findall(nodes.literal_block)]
    return max(5, 5 * round(sum(len(text.split()) for text in said) / PACE / 5))


def _hidden(node: nodes.Node | None) -> bool:
    """Tell whether a node is folded in Read: evidence, solutions, how things were made."""
    while node is not None:
        if isinstance(node, nodes.Element):
            folded = {"sd-dropdown", "cell", "made-box", "made-page"} & set(node["classes"])
            if folded or "evidence" in node["ids"]:
                return True
        node = node.parent
    return False


def add(app: Sphinx, doctree: nodes.document) -> None:
    """Put the box under the title, and the terms into the text."""
    docname = app.env.docname
    told = chapters().get(docname.removeprefix("book/"))
    title = doctree.next_node(nodes.title)
    if title and told:
        box = _box(app, docname, told, minutes(doctree))
        _link_terms(doctree)
    elif title and "/problems_" in docname:
        words = nodes.Text("The starters and their assertions, without the solutions: ")
        starters = _offer(app, docname, words)
        solutions = nodes.paragraph("", "", nodes.Text("For afterwards: "))
        solutions += _save(docname, "solutions", "Solutions", "What passes the assertions, and why")
        box = nodes.container("", starters, solutions, classes=["chapter-box"])
    else:
        return
    title.parent.insert(title.parent.index(title) + 1, box)


def _offer(app: Sphinx, docname: str, *words: nodes.Node) -> nodes.paragraph:
    """Words, the button that saves the student notebook, and what opens it."""
    about = "The code of this page, to run and to change"
    offer = nodes.paragraph("", "", *words, _save(docname, "student", "Notebook", about))
    if address := app.config.html_theme_options.get("repository_url"):
        there = binder(address, _notebook(docname, "student"))
        title = "Run this page's notebook on mybinder.org"
        offer += _button(f'class="notebook" href="{there}" title="{title}"', "Binder")
    else:
        offer += nodes.Text(" ")
        offer += _reference("doc", "/book/guide/change_a_number", "make lab", explicit=True)
        offer += nodes.Text(" opens it.")
    return offer


def _notebook(docname: str, kind: str) -> str:
    """Where in the built book a notebook of a page is."""
    return f"notebooks/{docname.removeprefix('book/')}_{kind}.ipynb"


def _save(docname: str, kind: str, words: str, title: str) -> nodes.raw:
    """The button that saves a notebook of a page."""
    there = posixpath.relpath(_notebook(docname, kind), posixpath.dirname(docname))
    return _button(f'class="download notebook" href="{there}" download title="{title}"', words)


def _button(attributes: str, words: str) -> nodes.raw:
    return nodes.raw("", f"<a {attributes}>{words}</a>", format="html")


def _box(app: Sphinx, docname: str, told: dict[str, Any], time: int) -> nodes.container:
    needs = [nodes.strong("", "You need"), nodes.Text(f" {told['needs']}.")]
    for at, page in enumerate(told.get("after", [])):
        before = [nodes.Text("; ")] if at else [nodes.Text(" "), nodes.strong("", "Read first")]
        needs += [*before, nodes.Text("" if at else " "), _reference("doc", f"/book/{page}", page)]
    able = [nodes.strong("", "You will be able to"), nodes.Text(f" {told['able']}.")]
    lines = [nodes.paragraph("", "", *parts) for parts in (needs, able)]
    page = docname.removeprefix("book/")
    words = [nodes.Text(f"About {time} minutes")]
    if page.startswith(ASKED):
        words += [nodes.Text("; "), _reference("ref", asked_at(page), "three questions", True)]
        words.append(nodes.Text(" for afterwards"))
    lines.append(_offer(app, docname, *words, nodes.Text(". ")))
    return nodes.container("", *lines, classes=["chapter-box"])


def asked_at(page: str) -> str:
    """The label of a chapter's questions."""
    return f"ask-{page}".replace("/", "-").replace("_", "-")


def _reference(kind: str, target: str, words: str, explicit: bool = False) -> nodes.Node:
    """What Sphinx turns into a link: to a page, a label, a term, under these words."""
    given = {"refdomain": "std", "reftype": kind, "reftarget": target, "refwarn": True}
    link = addnodes.pending_xref("", refexplicit=explicit, **given)
    link += nodes.inline("", words, classes=[f"std-{kind}"])
    return link


def _link_terms(doctree: nodes.document) -> None:
    """Make the first place of each term a link, and carry the definitions."""
    pattern, terms = _terms()
    used = dict[str, str]()
    for text in list(doctree.findall(nodes.Text)):
        above: nodes.Node | None = text.parent
        while above is not None and not isinstance(above, (nodes.paragraph, *APART)):
            above = above.parent
        if not isinstance(above, nodes.paragraph) or _hidden(above):
            continue
        parts = list[nodes.Node]()
        end = 0
        others = [match.span() for match in ELSE.finditer(text)]
        for match in pattern.finditer(text):
            term = terms[re.sub(r"\s+", " ", match[1].lower().replace("’", "'"))]
            if term in used or any(a <= match.start() < b for a, b in others):
                continue
            used[term] = glossary()[term]
            link = _reference("term", term, match[0], explicit=True)
            parts += [nodes.Text(text[end : match.start()]), link]
            end = match.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[end:])])
    said = "".join(
        f'<p id="about-{nodes.make_id(term)}"><strong>{html.escape(term)}</strong>: '
        f"{html.escape(meaning)}</p>"
        for term, meaning in used.items()
    )
    doctree += nodes.raw("", f'<div class="definitions" hidden>{said}</div>', format="html")


def setup(app: Sphinx) -> None:
    """Work when a page is read, after `how_made`."""
    app.connect("doctree-read", add, priority=450)
