"""Sphinx extension: what the page on citing says, from where it is kept.

The book's entry, with version and date, is that of ``CITATION.cff``, the papers' are those of
``references.bib``. Where ``_config.yml`` names a repository, the PDFs of its last release are
linked; without one the page says how to make them.
"""

import re
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx
from sphinx.config import Config

ROOT = Path(__file__).resolve().parents[1]
PAPERS = ("walder2020all", "lacoste2011approximate")
PDFS = {
    "bayesloss.pdf": "the book to read",
    "bayesloss-evidence.pdf": "the book with its evidence",
    "report-walder-nock.pdf": "the report on Walder and Nock",
    "report-lacoste-julien.pdf": "the report on Lacoste-Julien, Huszár and Ghahramani",
}


def book_entry(citation: dict[str, Any]) -> str:
    """The BibTeX of the book, from the content of ``CITATION.cff``."""
    (author,) = citation["authors"]
    date = citation["date-released"]
    return (
        "@misc{bayesloss,\n"
        f"  author  = {{{{{author['name']}}}}},\n"
        f"  title   = {{{{{citation['title']}}}}},\n"
        f"  year    = {{{date.year}}},\n"
        f"  note    = {{Version {citation['version']}, {date.isoformat()}}}\n"
        "}"
    )


def paper_entry(bibliography: str, key: str) -> str:
    """One entry of a BibTeX file, as it stands there.

    Raises
    ------
    ValueError
        If the file has no such entry.
    """
    found = re.search(rf"^@\w+{{{re.escape(key)},\n.*?^}}", bibliography, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"expected an entry {key} in the bibliography, got none")
    return found[0]


def pdfs(address: str) -> str:
    """Where the PDFs are, as Markdown: links to the last release, or how to make them."""
    if not address:
        names = ", ".join(f"`_build/{file}` ({words})" for file, words in PDFS.items())
        return f"In a clone of the repository `make pdf` writes {names}."
    release = f"{address}/releases/latest/download"
    return "\n".join(f"* [{words}]({release}/{file})" for file, words in PDFS.items())


def substitute(app: Sphinx, config: Config) -> None:
    """Hand the texts to the page, which names them in double braces."""
    root = Path(app.confdir)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    bibliography = (ROOT / "book" / "references.bib").read_text("utf-8")
    settings = yaml.safe_load((root / "_config.yml").read_text("utf-8"))
    papers = "\n\n".join(paper_entry(bibliography, key) for key in PAPERS)
    config.myst_substitutions |= {
        "book_bibtex": f"```bibtex\n{book_entry(citation)}\n```",
        "papers_bibtex": f"```bibtex\n{papers}\n```",
        "version": citation["version"],
        "date": citation["date-released"].isoformat(),
        "pdfs": pdfs(settings["repository"]["url"]),
    }


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("config-inited", substitute)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
