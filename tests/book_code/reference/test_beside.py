import re
from pathlib import Path

import pandas as pd
import pytest

from bayesloss_book.reference import beside
from bayesloss_book.reference.beside import (
    ALGORITHMS,
    FIGURES,
    NO_LEVELS,
    Excerpt,
    figure,
    in_a_line,
    more,
    number_table,
)
from paperledger.ledger.claims import ledger, of_papers

BOOK = Path(__file__).resolve().parents[3] / "book"
CODE = "def f(x):\n    y = 1\n    for i in x:\n        y += i\n    return y\n"


def test_every_claim_of_the_papers_has_a_line_and_no_other():
    assert list(in_a_line()) == [claim.id for claim in of_papers()]
    long = {id: line for id, line in in_a_line().items() if len(line) > 100 or line[-1] != "."}
    assert not long


def test_every_figure_table_and_algorithm_has_something_below_it():
    kinds = {"figure", "table", "algorithm"}
    assert {c.id for c in of_papers() if c.kind in kinds} == {*FIGURES, *ALGORITHMS}
    assert set(more(BOOK, "..")) == {*FIGURES, *ALGORITHMS}
    assert set(NO_LEVELS) < set(FIGURES)


def test_an_excerpt_is_lines_of_the_code_itself():
    excerpt = Excerpt(lambda book: CODE, "f", "for i", "y +=")
    assert excerpt.lines(BOOK) == "for i in x:\n    y += i"
    with pytest.raises(ValueError, match="expected a line of f that begins with 'while', got none"):
        Excerpt(lambda book: CODE, "f", "while", "y +=").lines(BOOK)
    with pytest.raises(ValueError, match="begins with 'def', got none"):  # it is above
        Excerpt(lambda book: CODE, "f", "for i", "def").lines(BOOK)


@pytest.mark.parametrize("id", ALGORITHMS)
def test_an_algorithm_is_short_and_compiles(id):
    for excerpt in ALGORITHMS[id]:
        lines = excerpt.lines(BOOK)
        assert len(lines.splitlines()) <= 24
        compile(f"def f():\n{re.sub('^', '    ', lines, flags=re.MULTILINE)}", id, "exec")


@pytest.mark.parametrize("id", FIGURES)
def test_a_figure_leads_to_its_place_and_says_what_is_seen(id):
    shown = figure(id, BOOK, "..")
    assert f'href="../{ledger()[id].page}.html#{FIGURES[id]}"' in shown
    assert re.search(r'src="\.\./\.\./_images/[0-9a-f]{64}\.svg"', shown)
    assert len(re.search(r'alt="([^"]+)"', shown)[1]) > 40


def test_a_figure_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setitem(beside.FIGURES, "wn-figure-1", "fig-nowhere")
    with pytest.raises(ValueError, match="expected a figure fig-nowhere in learning/proper_losses"):
        figure("wn-figure-1", BOOK, "..")


def test_a_number_table_holds_its_unit_and_its_numbers():
    table = number_table(pd.DataFrame({"in print": ["1.0"], "here": ["1.1"]}, ["a"]), "In m < km.")
    shown = table._repr_html_()
    assert "In m &lt; km." in shown and "<td>1.1</td>" in shown
    assert repr(table).startswith("In m < km.\n")
