"""All figures of the built book as SVG, in one archive to teach with: ``make figures``.

A figure goes by its page and its number there. README.md in the archive has each one's caption, its
page and the licence. Sliders are no files: they stay in their pages.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import notebooks
from bs4 import BeautifulSoup, SoupStrainer, Tag

HTML = notebooks.ROOT / "_build" / "html"
ARCHIVE = notebooks.ROOT / "_build" / "bayesloss-figures.zip"

ABOUT = """# The figures of `bayesloss`, a companion to two papers on losses and Bayes

By the bayesloss authors, under CC BY 4.0: show and change them, and say where they come from.
A file goes by the page of the book and the figure's number there.
"""


@dataclass
class Figure:
    """A figure: its place in the archive, its file in the book, its caption."""

    name: str
    file: Path
    caption: str


def figures(page: str, html: Path = HTML) -> list[Figure]:
    """The figures of a page, in its order."""
    path = html / f"{page}.html"
    found = list[Figure]()
    only = SoupStrainer("figure")
    parsed = BeautifulSoup(path.read_text("utf-8"), "html.parser", parse_only=only)
    for figure in parsed.select("figure"):
        image = figure.select_one("img[src$='.svg']")
        if isinstance(image, Tag):
            caption = re.sub(r"\s+", " ", figure.select_one("figcaption p").get_text())
            caption = caption.strip().removesuffix("#")
            number = re.match(r"Fig\. ((?:[A-Z]\.)?[\d.]*\d)", caption)
            if number is None:
                raise ValueError(f"{page}: expected a caption with a number, got {caption!r}")
            name = f"{page.removeprefix('book/')}/fig_{number[1]}.svg"
            found.append(Figure(name, path.parent / str(image["src"]), caption))
    return found


def pack(archive: Path = ARCHIVE, html: Path = HTML) -> list[Figure]:
    """Write the archive, the same to the byte whenever the figures are."""
    files = [file for file in notebooks.toc_files() if file.endswith(".ipynb")]
    found = [figure for file in files for figure in figures(file.removesuffix(".ipynb"), html)]
    lines = [f"* `{figure.name}`: {figure.caption}" for figure in found]
    with ZipFile(archive, "w", ZIP_DEFLATED, compresslevel=9) as into:
        into.writestr(_entry("README.md"), "\n".join([ABOUT, *lines, ""]))
        for figure in found:
            into.writestr(_entry(figure.name), figure.file.read_bytes())
    return found


def _entry(name: str) -> ZipInfo:
    """A name in the archive, without a date."""
    entry = ZipInfo(f"bayesloss-figures/{name}")
    entry.compress_type = ZIP_DEFLATED
    return entry


if __name__ == "__main__":
    count = len(pack())
    print(f"{ARCHIVE}: {count} figures, {ARCHIVE.stat().st_size / 1e6:.1f} MB")
