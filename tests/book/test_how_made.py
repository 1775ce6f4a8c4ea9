"""Figures, tables and pages say how they were made; the notes are read off the code, and true."""

import functools
import json
import pkgutil
from contextlib import suppress
from unittest.mock import Mock

import how_made
import notebooks
import pytest
from built_pages import HTML, built
from docutils import nodes

from paperledger.stores.tables import read

STORES = {"auto_mpg": {}, "other": {}}


@functools.cache
def outputs(page):
    cells = built(page).select(".cell_output:has(table)")
    tables = [cell for cell in cells if not cell.select(".claim")]
    return [*built(page).select(".cell_output:has(figure, input[type=range])"), *tables]


def test_each_figure_and_table_says_how_it_was_made():
    all_of_them = [(page, output) for page in notebooks.pages() for output in outputs(page)]
    assert len(all_of_them) > 100
    for page, output in all_of_them:
        note = output.select_one("details.made")
        assert note, f"{page}: no note under {output.get_text()[:200]!r}"
        assert f"make notebooks PAGE={page}" in note.get_text()


@pytest.mark.parametrize("page", notebooks.pages())
def test_the_functions_named_exist(page):
    for code in built(page).select(".made a code, .made-page a code, figcaption a code"):
        if not code.find_parent("a", class_="download"):
            assert any(map(callable, named(code.get_text())))


def named(name):
    """What has a name in one of the packages."""
    for package in how_made.PACKAGES:
        with suppress(ImportError, AttributeError):
            yield pkgutil.resolve_name(f"{package}.{name}")


@pytest.mark.parametrize("page", notebooks.pages())
def test_each_page_can_be_downloaded(page):
    (link,) = built(page).select(".made-page a.download")
    there = (HTML / "book" / page).parent / link["href"]
    same = there.read_bytes() == notebooks.notebook_path(page).read_bytes()
    assert same, "the book that is built has another state of this notebook: make book"


def test_stored_results_say_when_on_what_and_how_long():
    run = json.loads((how_made.RESULTS / "auto_mpg.provenance.json").read_text())["runs"][-1]
    foot = built("learning/auto_mpg").select_one(".made-page").get_text()
    for said in (
        run["end"][:10],
        run["processor"],
        run["commit"][:10],
        f"{run['seconds']:.0f} seconds",
    ):
        assert said in foot
    assert "make paper PAGE=learning/auto_mpg" in foot


def test_rows_are_counted_where_they_are_and_not_where_runs_were_superseded():
    """Of `when_to_use` 3,665 rows were measured; 1,960 are there."""
    provenance = json.loads((how_made.RESULTS / "when_to_use.provenance.json").read_text())
    rows = read(how_made.RESULTS / "when_to_use.csv")[0]
    assert sum(run["cells"] for run in provenance["runs"]) > len(rows)
    assert f"`: {len(rows):,} rows by" in how_made._store("when_to_use", provenance)
    gone = [run["commit"][:10] for run in provenance["runs"] if run["cells"] == run.get("replaced")]
    assert gone and gone[0] not in how_made._store("when_to_use", provenance)


def origin(*cells):
    parameters = 'results = "results"\nseed = 3\nn_basis = 8\nsizes = (1, 2)'
    imports = (
        "import numpy as np\n"
        "from paperledger.stores.results import load_results\n"
        "from bayesloss_book.learning.isgp import figures, prior as isgp\n"
        'stored = load_results(results, "auto_mpg")'
    )
    return how_made.Code([parameters, imports, *cells], 0, STORES).origin(len(cells) + 1)


def test_a_figure_names_its_function_and_parameters():
    found = origin("figure = figures.draw_paths(seed=seed)\nprint(sizes)")
    assert found.functions == ["bayesloss_book.learning.isgp.figures.draw_paths"]
    assert found.parameters == {"seed": "3"}
    assert found.stores == []


def test_names_are_followed_backwards():
    found = origin("table = isgp.slope_table(n_basis)", "shown = table.T", "shown.round(2)")
    assert found.functions == ["bayesloss_book.learning.isgp.prior.slope_table"]
    assert found.parameters == {"n_basis": "8"}


def test_stored_results_are_found():
    assert origin("stored.groupby('size').mean()").stores == ["auto_mpg"]
    assert origin('print("other")', "np.ones(3)").stores == []


@pytest.mark.parametrize(
    "change", ["rows.append(seed)", "rows[0] = seed", "for n in sizes:\n    rows.append(seed)"]
)
def test_what_changes_a_name_counts(change):
    assert "seed" in origin(f"rows = []\n{change}", "rows").parameters


def test_what_is_made_anew_does_not_depend_on_the_old():
    assert origin("rows = [seed]", "rows = [1]", "rows").parameters == {}


def test_the_variables_of_a_loop_are_its_own():
    assert origin("name = seed", "[name for name in (1, 2)]").parameters == {}
    assert origin("name = seed", "for name in (1, 2):\n    print(name)").parameters == {}
    nested = "for name in (1, 2):\n    print([name for _ in 'ab'])"
    assert origin("name = seed", nested).parameters == {}
    assert origin("[seed for seed in (1, 2)]").parameters == {}


@pytest.mark.parametrize(
    ("named", "warnings"), [("figures.draw_paths", 0), ("figures.draw_cost", 1)]
)
def test_a_caption_that_names_another_function_is_a_warning(monkeypatch, named, warnings):
    logger = Mock()
    monkeypatch.setattr(how_made, "logger", logger)
    literal = nodes.literal("", f"learning.isgp.{named}")
    cell = nodes.container("", nodes.caption("", "A figure. Drawn by ", literal))
    drew = "bayesloss_book.learning.isgp.figures.draw_paths"
    assert how_made._check_caption(cell, [drew]) == [drew][warnings:]
    assert logger.warning.call_count == warnings


def test_a_function_of_the_book_is_described_by_its_docstring(monkeypatch):
    def draws():
        r"""Draw :math:`x^2` by :func:`~a.b` and ``c``,
        in two lines.

        More.
        """

    monkeypatch.setattr(how_made.pkgutil, "resolve_name", lambda name: draws)
    said = how_made._described("bayesloss_book.learning.isgp.figures.draws")
    found = how_made._paragraph(said)
    assert found.astext() == "learning.isgp.figures.draws: Draw x^2 by a.b and c, in two lines."
    (formula,) = found.findall(nodes.math)
    assert formula.astext() == "x^2"
