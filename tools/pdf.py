"""Print the built book as two PDFs, to read and to check, and a report a paper: ``make pdf``.

The first has the argument, with a line of verdicts where a page checks claims. The second has
everything: boxes, tables of evidence, proofs, solutions, and the reference.

The pages of `_build/html` become one document, which a headless Chromium prints. Sphinx's
`singlehtml`, from which Jupyter Book prints, gives places of several pages one id, so that links,
and citations first of all, lead to another page's.
"""

import re
from dataclasses import dataclass
from html import escape
from os.path import dirname, normpath
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import browser
import notebooks
import yaml
from bs4 import BeautifulSoup, Tag
from playwright.sync_api import Browser
from pypdf import PdfWriter
from pypdf.generic import NameObject, TextStringObject

Page = tuple[str, str]  # its part, and its name
HTML = notebooks.ROOT / "_build" / "html"
# What the volume to read has of these parts: what is argued, not what is looked up.
LOOKED_UP = ("Beside the paper", "Guide", "Reference", "Appendix")
TO_READ = ("book/guide/ten_minutes", "book/reference/notation", "book/reference/bibliography")
# What it leaves out of a page: what Read hides on a screen, and what is folded.
EVIDENCE = ".admonition-this-page, .made-box, .made-page, .cell.tag_parameters, details, #evidence,"
EVIDENCE += ".output:has(.claim[id]), .claim[id]"
# What paper has no use for, hidden code among it; a slider's script looks for its button.
SCREEN = "a.headerlink, button:not(.cell_output button), noscript, details.hide > summary, "
SCREEN += "details.hide:not(.tag_hide-cell *), .definitions, .chapter-box .notebook"

REPORTS = ("book/reference/report_walder_nock", "book/reference/report_lacoste_julien")

# of the print; 16 mm, in CSS pixels
SCALE = 0.7
MARGIN = round(16 / 25.4 * 96)
WIDTH = round((210 / 25.4 * 96 - 2 * MARGIN) / SCALE)  # of A4 between the margins, in CSS pixels

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


def chapters(evidence: bool) -> list[Page]:
    """The part, empty for the front page, and the name of each page of a volume, in order."""
    found = []
    part = ""
    toc = (notebooks.ROOT / "_toc.yml").read_text("utf-8")
    for caption, file in re.findall(r"- caption: (.*)|(?:root|file): (\S+)\.", toc):
        part = caption or part
        found += [(part, file)] if file else []
    return [page for page in found if evidence or page[0] not in LOOKED_UP or page[1] in TO_READ]


def assemble(html: Path, pages: list[Page], title: str, evidence: bool) -> tuple[str, list[str]]:
    """One document with the articles of all pages, to lie beside their folder; its headings."""
    names = {name for _, name in pages}
    contents = ""
    body = ""
    headings = []
    last = ""
    for part, name in pages:
        soup = BeautifulSoup((html / f"{name}.html").read_text("utf-8"), "html.parser")
        article = soup.select_one("article.bd-article")
        _prepare(article, evidence)
        _lead_inside(article, name, names)
        if part != last:
            contents += f"<h2 role='none'>{escape(part)}</h2>"
            body += f"<h1 class='print-part'>{escape(part)}</h1>"
            headings.append(part)
            last = part
        for heading in article.find_all(re.compile("^h[1-6]$")):
            heading["aria-level"] = int(heading.name[1]) + bool(part)  # in the PDF's outline
            headings.append(heading.get_text().replace("\\(", "").replace("\\)", ""))
        contents += f"<p><a href='#{name}--'>{escape(article.h1.get_text())}</a></p>"
        body += f"<div id='{name}--'>{article}</div>"
    maths = [tag for tag in soup.head.find_all("script") if "athjax" in str(tag).lower()]
    head = "".join(map(str, soup.select("head link[rel=stylesheet]") + maths))
    header = f"<header><h1 role='none'>{escape(title)}</h1><nav>{contents}</nav></header>"
    document = (
        "<!DOCTYPE html><html lang='en' data-theme='light' "
        f"data-show='{'check' if evidence else 'read'}'><head><meta charset='utf-8'>"
        f"<title>{escape(title)}</title>{head}</head><body><main class='bd-content print-book'>"
        f"{header if len(pages) > 1 else ''}{body}</main></body></html>"
    )
    return re.sub(r'((?:src|href)=")(?:\.\./)+_', r"\1_", document), headings


def _prepare(article: Tag, evidence: bool) -> None:
    """Open what is folded; without the evidence, leave of the boxes a line with their verdicts."""
    for cell in article.select(".cell:has(.claim[id])") if not evidence else ():
        heads = [" ".join(h.get_text(" ").split()) for h in cell.select(".claim[id] .claim-head")]
        line = f"<p class='claim-line'>Checked: {escape('; '.join(heads))}.</p>"
        cell.insert_after(BeautifulSoup(line, "html.parser").p)
    for tag in article.select(SCREEN if evidence else f"{SCREEN}, {EVIDENCE}"):
        tag.extract()
    for details in article.find_all("details"):
        details["open"] = ""


def _lead_inside(article: Tag, name: str, names: set[str]) -> None:
    """Give each place of a page an id that has the page's name; lead links there."""
    for tag in (tag for tag in article.find_all(id=True) if not tag.find_parent("svg")):
        own = tag["id"]
        tag["id"] = f"{name}--{tag['id']}"
        for script in article.find_all("script", string=True):
            script.string = script.string.replace(f'"{own}"', f'"{tag["id"]}"')
    for link in article.find_all("a", href=True):
        path, _, place = unquote(link["href"]).partition("#")
        page = normpath(f"{dirname(name)}/{path}").removesuffix(".html") if path else name
        if page in names:
            link["href"] = f"#{page}--{place}"
        elif ":" not in path:
            link.unwrap()  # an index or a file, which print has not


def name_outline(pdf: Path, headings: list[str]) -> None:
    """Write the headings into the outline, where Chromium repeats and drops parts of them."""
    writer = PdfWriter(clone_from=pdf)
    waiting: list[Any] = [writer.get_outline_root()["/First"]]
    for heading in headings:
        entry = waiting.pop()
        entry[NameObject("/Title")] = TextStringObject(heading)
        waiting += [entry[place] for place in ("/Next", "/First") if place in entry]
    if waiting:
        raise ValueError(f"expected {len(headings)} entries in the outline of {pdf}, got more")
    writer.write(pdf)


@dataclass(frozen=True)
class Volume:
    """What is printed into one file."""

    file: str
    title: str
    pages: list[Page]
    evidence: bool


def volumes() -> list[Volume]:
    """The book, to read and with all evidence, and the report on each paper."""
    title = yaml.safe_load((notebooks.ROOT / "_config.yml").read_text("utf-8"))["title"]
    found = [
        Volume("bayesloss.pdf", title, chapters(evidence=False), evidence=False),
        Volume("bayesloss-evidence.pdf", f"{title}: the evidence", chapters(True), evidence=True),
    ]
    for name in REPORTS:
        file = f"{name.rpartition('/')[2].replace('_', '-')}.pdf"
        found.append(Volume(file, title, [("", name)], evidence=False))
    return found


def print_volume(volume: Volume, html: Path, started: Browser) -> Path:
    """Print one volume beside the folder of the built book."""
    small = "<div style='font-size:8px;width:100%;text-align:center;color:#555'>{}</div>"
    text, headings = assemble(html, volume.pages, volume.title, volume.evidence)
    document = html / "print.html"
    document.write_text(text, "utf-8")
    file = html.parent / volume.file
    page = started.new_page(viewport={"width": WIDTH, "height": 1000}, color_scheme="light")
    page.set_default_timeout(600_000)
    page.emulate_media(media="print")
    page.goto(document.as_uri())
    browser.typeset(page)
    page.evaluate(FIT)
    page.pdf(
        path=file,
        format="A4",
        scale=SCALE,
        margin={"left": MARGIN, "right": MARGIN, "top": MARGIN, "bottom": MARGIN},
        print_background=True,
        tagged=True,
        outline=True,
        display_header_footer=True,
        header_template=small.format(escape(volume.title)),
        footer_template=small.format("<span class='pageNumber'></span>"),
    )
    page.close()
    document.unlink()
    name_outline(file, headings)
    return file


def main() -> None:
    """Print all volumes of the built book."""
    if not browser.executable():
        raise SystemExit("no chromium on this machine (on Debian: apt install chromium)")
    for volume in volumes():
        with browser.chromium() as started:  # anew for each: the book fills its memory
            print(print_volume(volume, HTML, started))


if __name__ == "__main__":
    main()
