"""What the book says it found leads to a cell that Check shows.

Looked at are the boxes "What was found" (or "What we found" and the list below it), the front page,
the ten minutes and README. There a sentence that compares, ranks or generalises carries a number
that a cell gives it, or a reference to a claim, a figure or a proof; Check shows the cell, and what
was measured comes with its error, or beside a figure that has it.
"""

import re

import nbformat
import notebooks
import pytest

from paperledger.ledger.claims import numbers_in

WHOLE = ("index", "guide/ten_minutes")
SOURCES = {page: (notebooks.BOOK / f"{page}.md").read_text("utf-8") for page in notebooks.pages()}
# An admonition, or a paragraph and the list below it.
BOX = re.compile(
    r"^```\{admonition\} What was found\n(?:[^`].*\n)+"
    r"|^(?:\*\*)?What (?:was|we) found.*\n+(?:[*] .*\n)*",
    re.MULTILINE,
)
BOXES = [page for page, source in SOURCES.items() if BOX.search(source) and page not in WHOLE]
COMPARES = re.compile(
    r"\b((?<!one )(?<!once )more|less|fewer|better|worse|best|worst|most|mostly|least|lowest"
    r"|highest|nearer|ahead|behind|than|beats?|wins?|falls?|loses?|lost|saves?|gains?|always|never"
    r"|every|none|harm|right)\b"
    r"|±|\d\.\d"
)
TIE = re.compile(r"\{(glue:text|claim|numref|prf:ref|eq)\}`([^`]+)`")
HIDDEN = {"remove-cell", "remove-input"}
ERRORS = re.compile(r"standard error|interval|a mark a problem|Dots are data sets")  # in a caption
# A count, a threshold, a diagnostic; and what is of one sample each, and said to be.
EXACT = {"by_size", "costs_row", "worst-rhat", "band_low"}


def passages(source: str, whole: bool) -> list[str]:
    source = re.sub(r"\A---\n.*?\n---\n", "", source, flags=re.DOTALL)
    source = re.sub(r"^(`{3,})\{code-cell\}.*?^\1$", "", source, flags=re.DOTALL | re.MULTILINE)
    box = BOX.search("" if whole else source)
    source = box[0] if box else source
    lines = [re.sub(r"^[*] ", "", line) for line in source.splitlines()]
    return [line for line in lines if line and not re.match(r"[`#:|]", line)]


def sentences(passage: str) -> list[str]:
    return re.sub(r"([.?!][*)]*)\s+(?=[A-Z*({`])", r"\1\n", passage).splitlines()


def untied(passage: str) -> list[str]:
    """The sentences that compare, and lead to nothing that was computed.

    A heading in bold or italics is tied by what follows it.
    """
    said = sentences(passage)
    if passage[0] == "*":
        said[0] += " " + " ".join(re.findall(r"\{[^`]*`[^`]*`", passage))
    compare = [s for s in said if COMPARES.search(re.sub(r"\$[^$]*\$", "", s))]
    return [sentence for sentence in compare if not TIE.search(sentence)]


def problems(page: str, source: str, notebook: nbformat.NotebookNode) -> list[str]:
    """What a page says in its boxes that no cell computes, that none shows, or without an error."""
    shown = set()
    values = {}
    captions = {}
    for cell in notebook.cells:
        figure = cell.metadata.get("mystnb", {}).get("figure", {"name": "", "caption": ""})
        captions[figure["name"]] = figure["caption"]
        for output in cell.get("outputs", []):
            name = output.get("metadata", {}).get("scrapbook", {}).get("name")
            if name:
                values[name] = "".join(output.data["application/papermill.record/text/plain"])
                if not HIDDEN & set(cell.metadata.get("tags", [])):
                    shown.add(name)
    found = []
    for passage in passages(source, page in WHOLE):
        found += [f"no cell computes: {sentence}" for sentence in untied(passage)]
        figures = [captions.get(name, "") for _, name in TIE.findall(passage)]
        spread = any(ERRORS.search(caption) for caption in figures)
        for sentence in sentences(passage):
            names = [name for role, name in TIE.findall(sentence) if role == "glue:text"]
            found += [f"Check hides the cell of {name}" for name in names if name not in shown]
            found += [
                f"without its error: {name}, {values[name]}"
                for name in names
                # A count or an exact number is glued as a number, what was measured as text.
                if re.match(r"'[−+-]?\d", values.get(name, "")) and " of " not in values[name]
                if "±" not in values[name] + sentence and "standard error" not in sentence
                if not spread and name not in EXACT
            ]
    return found


@pytest.mark.parametrize("page", [*WHOLE, *BOXES])
def test_what_was_found_is_computed_in_check(page):
    source = SOURCES[page]
    notebook = nbformat.read(notebooks.notebook_path(page), as_version=4)
    assert not problems(page, source, notebook)
    for cell in [cell for cell in notebook.cells if cell.get("outputs")]:  # each box sees its cells
        cell.metadata["tags"] = ["remove-cell"]
    assert problems(page, source, notebook)


def test_readme_says_what_the_ten_minutes_compute():
    text = (notebooks.ROOT / "README.md").read_text("utf-8")
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    values = [str(v) for v in numbers_in(notebooks.notebook_path("guide/ten_minutes")).values()]
    rows = re.findall(r"^\| [^|]* \| (\d+\.\d.*) \|$", text, flags=re.MULTILINE)
    assert len(rows) == 3
    for row in rows:  # of the table: a number a size
        *others, last = row.split(" | ")
        assert f"{', '.join(others)} and {last}" in values
    text = re.sub(r"^\|.*", "", text, flags=re.MULTILINE)
    compares = re.compile(r"±|\b(lowest|highest|best|better|worse|ahead|harm|lower|higher)\b")
    said = [s for line in text.splitlines() for s in sentences(line) if compares.search(s)]
    assert said
    for sentence in said:
        assert any(len(value) > 1 and value in sentence for value in values), sentence
        for number in re.findall(r"\d[\d.]* ± \d+(?:\.\d)?|\d+\.\d", sentence):
            assert any(number in value for value in values), number
