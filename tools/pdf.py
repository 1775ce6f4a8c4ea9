"""Make two PDFs of the built book, one to read and one to check: ``make pdf``.

The first has the argument, with a line of verdicts where a page checks claims. The second has
everything: boxes, tables of evidence, proofs, solutions, and the reference.

The pages of `_build/html` are put into one document, in the order of `_toc.yml`, so that links
between them work in print too. A headless Chromium renders the formulas and prints, twice: first
to learn on which paper page each chapter begins, then with these numbers in the contents. Code that
a page hides is left out. Nothing is fetched from a network.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import browser
import notebooks
import yaml
from bs4 import BeautifulSoup, Tag
from playwright.sync_api import Page
from pypdf import PdfReader, PdfWriter
from pypdf.generic import NameObject, TextStringObject

HTML = notebooks.ROOT / "_build" / "html"
# Each volume, and whether it has the evidence.
VOLUMES = {"bayesloss.pdf": False, "bayesloss-evidence.pdf": True}
# What the volume to read has of these parts: what is argued, not what is looked up.
LOOKED_UP = ("Guide", "Reference", "Appendix")
TO_READ = ("book/guide/ten_minutes", "book/reference/notation", "book/reference/bibliography")
# What it leaves out of a page: what Read hides on a screen, and what is folded.
EVIDENCE = ".admonition-this-page, .made-box, .made-page, .cell.tag_parameters, details, #evidence"

NO_BROWSER = (
    "expected chromium, chromium-browser or google-chrome on the PATH to print with, found none. "
    "On Debian: apt install chromium"
)
# On A4, in CSS pixels: what the margins leave, at the scale of the print.
SCALE = 0.7
MARGIN_MM = 16
WIDTH = round((210 - 2 * MARGIN_MM) / 25.4 * 96 / SCALE)

# What is wider than the paper is made smaller until it fits, the inner parts first: a formula
# in a table, which would take the others' room; what scrolls on a screen; what holds it. All are
# measured before any is changed, or each would lay out the whole book again.
FIT = """
const page = document.querySelector("article").clientWidth;
const wide = [...document.querySelectorAll("td mjx-container")]
  .map(formula => [formula, formula.getBoundingClientRect().width / (0.45 * page)]);
for (const [formula, excess] of wide) if (excess > 1) formula.style.zoom = 1 / excess;
for (const kind of ["mjx-container[display], .pst-scrollable-table-container",
                    "figure, .claim, .cell_output > *"]) {
  const boxes = [...document.querySelectorAll(kind)].map(box => {
    const ends = [...box.querySelectorAll("table, svg, mjx-math")]
      .map(part => part.getBoundingClientRect().right - box.getBoundingClientRect().left);
    return [box, box.clientWidth, Math.max(box.scrollWidth, ...ends)];
  });
  for (const [box, room, needed] of boxes)
    if (room && needed > room + 1) box.style.zoom = room / needed;
}
"""

# Into the contents, which has the room already.
NUMBER = """numbers => document.querySelectorAll("[data-page]").forEach(
  place => place.textContent = numbers[place.dataset.page])"""

HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]


def chapters(root: Path = notebooks.ROOT) -> list[tuple[str, str]]:
    """The part, empty for the front page, and the document of each page, in order."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    found = [("", toc["root"])]
    for part in toc["parts"]:
        for chapter in part["chapters"]:
            pages = [chapter, *chapter.get("sections", [])]
            found += [(part["caption"], page["file"]) for page in pages]
    return [(part, PurePosixPath(file).with_suffix("").as_posix()) for part, file in found]


def to_read(pages: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pages that the volume to read has."""
    return [(part, name) for part, name in pages if part not in LOOKED_UP or name in TO_READ]


class Links:
    """Where links lead, once all pages are one document: an id that two pages have gets another."""

    def __init__(self, articles: Mapping[str, Tag], html: Path) -> None:
        self.articles, self.html = articles, html
        self.ids = Counter(
            t["id"] for article in articles.values() for t in article.find_all(id=True)
        )

    def anchor(self, name: str, own: str) -> str:
        """An id that is one page's only."""
        return own if own and self.ids[own] == 1 else f"{name}--{own}"

    def mend(self, name: str) -> None:
        """Give what a page has its new ids, and its links and pictures their new addresses."""
        article = self.articles[name]
        for tag in article.find_all(id=True):
            if not tag.find_parent("svg"):
                own, tag["id"] = tag["id"], self.anchor(name, tag["id"])
                for script in article.find_all("script", string=True) if tag["id"] != own else ():
                    script.string = script.string.replace(f'"{own}"', f'"{tag["id"]}"')
        for tag in article.find_all(["a", "img"]):
            key = "href" if tag.name == "a" else "src"
            address = urlsplit(tag.get(key, ""))
            if address.scheme or key not in tag.attrs:
                continue
            target = (PurePosixPath(name).parent / unquote(address.path)).as_posix()
            target = os.path.normpath(target) if address.path else f"{name}.html"
            page = target.removesuffix(".html")
            if tag.name == "img":
                tag[key] = f"{self.html.name}/{target}"
            elif page in self.articles:
                tag[key] = "#" + self.anchor(page, unquote(address.fragment))
            else:
                tag.unwrap()  # an index or a file, which print has not


def assemble(
    html: Path, pages: list[tuple[str, str]], title: str, evidence: bool = True
) -> tuple[str, list[str]]:
    """One document with the articles of all pages, to lie beside the built book; its headings.

    Without the evidence proofs, solutions and boxes are left out; a line says their verdicts.
    """
    soups = {
        name: BeautifulSoup((html / f"{name}.html").read_text(encoding="utf-8"), "html.parser")
        for _, name in pages
    }
    articles = {name: soup.select_one("article.bd-article") for name, soup in soups.items()}
    for article in articles.values():
        if not evidence:
            _leave_argument(article)
    links = Links(articles, html)
    contents, body, headings, last = [], [], [], ""
    for part, name in pages:
        article, top = articles[name], links.anchor(name, "")
        _prepare(article)
        links.mend(name)
        if part != last:
            contents.append(f"<h2 role='none'>{escape(part)}</h2>")
            body.append(f"<h1 class='print-part'>{escape(part)}</h1>")
            headings.append(part)
        last = part
        for heading in article.find_all(HEADINGS):
            heading["aria-level"] = int(heading.name[1]) + bool(part)  # in the PDF's outline
            headings.append(heading.get_text().replace("\\(", "").replace("\\)", ""))
        chapter = f"<a href='#{top}'>{escape(article.h1.get_text())}</a>"
        contents.append(f"<p>{chapter} <span data-page='{top}'></span></p>")
        body.append(f"<div id='{top}'>{article}</div>")
    head = _head(soups[pages[0][1]], PurePosixPath(pages[0][1]).parent, html.name)
    document = (
        "<!DOCTYPE html><html lang='en' data-theme='light' "
        f"data-show='{'check' if evidence else 'read'}'><head><meta charset='utf-8'>"
        f"<title>{escape(title)}</title>{head}</head><body><main class='bd-content print-book'>"
        f"<header><h1 role='none'>{escape(title)}</h1><nav>{''.join(contents)}</nav></header>"
        f"{''.join(body)}</main></body></html>"
    )
    return document, headings


def _prepare(article: Tag) -> None:
    """Open what is folded, drop hidden code and what only a screen can use."""
    for details in article.find_all("details"):
        cell = details.find_parent(class_="tag_hide-cell")
        if "hide" in details.get("class", []) and not cell:
            details.decompose()
        else:
            details["open"] = ""
            if "hide" in details.get("class", []):
                details.summary.decompose()
    # A slider's script looks for its button, which print hides.
    for tag in article.select("a.headerlink, button:not(.cell_output button), noscript"):
        tag.decompose()


def _leave_argument(article: Tag) -> None:
    """Leave of a page what is to be read."""
    for cell in article.select(".cell"):
        boxes = cell.select(".claim[id]")
        if boxes:
            heads = [box.select_one(".claim-head").get_text(" ") for box in boxes]
            verdicts = "; ".join(" ".join(head.split()) for head in heads)
            line = BeautifulSoup("<p class='claim-line'></p>", "html.parser").p
            line.string = f"Checked: {verdicts}."
            cell.insert_after(line)
        for box in boxes:
            (box.find_parent(class_="output") or box).decompose()
    for tag in article.select(EVIDENCE):
        if not tag.decomposed:
            tag.decompose()


def _head(soup: BeautifulSoup, folder: PurePosixPath, root: str) -> str:
    """Return the style sheets and the formula renderer of a page, for use beside the book."""
    kept = []
    for tag in soup.head.find_all(["link", "script"]):
        if tag.name == "link" and "stylesheet" not in tag.get("rel", []):
            continue
        if tag.name == "script" and "athjax" not in f"{tag.get('src')} {tag.string}".lower():
            continue
        for key in {"href", "src"} & tag.attrs.keys():
            tag[key] = f"{root}/{os.path.normpath(folder / tag[key])}"
        kept.append(str(tag))
    return "".join(kept)


def render(page: Page, document: Path) -> None:
    """Open a document, render its formulas and make everything fit the paper."""
    page.goto(document.as_uri())
    browser.typeset(page)
    page.evaluate(FIT)


def print_pdf(page: Page, output: Path, title: str, outline: bool) -> None:
    """Print what a browser shows, with page numbers; the outline and the tags take most time."""
    side = f"{MARGIN_MM}mm"
    small = "font-size:8px;width:100%;text-align:center;color:#555"
    page.pdf(
        path=output,
        format="A4",
        scale=SCALE,
        margin={"left": side, "right": side, "top": side, "bottom": side},
        print_background=True,
        tagged=outline,
        outline=outline,
        display_header_footer=True,
        header_template=f"<div style='{small}'>{escape(title)}</div>",
        footer_template=f"<div style='{small}'><span class='pageNumber'></span></div>",
    )


def page_numbers(pdf: Path) -> dict[str, int]:
    """Return the paper page, from 1, of each place that a link in the PDF leads to."""
    reader = PdfReader(pdf)
    places = reader.named_destinations.items()
    numbers = {name: reader.get_destination_page_number(place) for name, place in places}
    return {unquote(name.lstrip("/")): n + 1 for name, n in numbers.items() if n is not None}


def finish(pdf: Path, headings: Sequence[str], title: str, author: str) -> int:
    """Mend the outline, in which Chromium repeats parts of headings; count the paper pages."""
    writer = PdfWriter(clone_from=pdf)
    for entry, heading in zip(_entries(writer.get_outline_root()), headings, strict=True):
        entry[NameObject("/Title")] = TextStringObject(heading)
    writer.add_metadata({"/Title": title, "/Author": author})
    writer.write(pdf)
    return len(writer.pages)


def _entries(parent: Any) -> Iterator[Any]:
    """Yield the entries of an outline, in the order of reading."""
    entry = parent.get("/First")
    while entry is not None:
        entry = entry.get_object()
        yield entry
        yield from _entries(entry)
        entry = entry.get("/Next")


def main() -> int:
    """Print the built book; return the exit status."""
    config = yaml.safe_load((notebooks.ROOT / "_config.yml").read_text(encoding="utf-8"))
    title = config["title"]
    if not browser.executable():
        print(NO_BROWSER, file=sys.stderr)
        return 1
    for name, evidence in VOLUMES.items():
        pages = chapters() if evidence else to_read(chapters())
        volume = f"{title}: the evidence" if evidence else title
        output, start = HTML.parent / name, time.perf_counter()
        text, headings = assemble(HTML, pages, volume, evidence)
        document = HTML.parent / "print.html"
        document.write_text(text, encoding="utf-8")
        with browser.chromium() as started:
            page = started.new_page(viewport={"width": WIDTH, "height": 1000}, color_scheme="light")
            page.set_default_timeout(600_000)
            page.emulate_media(media="print")
            render(page, document)
            print_pdf(page, output, volume, outline=False)
            page.evaluate(NUMBER, page_numbers(output))
            print_pdf(page, output, volume, outline=True)
        document.unlink()
        count = finish(output, headings, volume, config["author"])
        took, size = time.perf_counter() - start, output.stat().st_size / 1e6
        print(f"{output}: {count} pages, {size:.1f} MB, in {took:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
