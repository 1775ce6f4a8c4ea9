import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from paperledger.configuration import configuration
from paperledger.ledger import seeds
from paperledger.ledger.claims import ledger
from paperledger.stores.results import load_results

CELLS = (
    "seed = 0",
    "from paperledger.ledger.checks import check_statement, prose\n"
    "prose(seed == 0, 'zero')\n"
    "check_statement('wn-theorem-5', {'zero': (seed == 0, 'seen')})",
    "1 // (2 - seed)",
)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A book of one page, in the place of ours."""
    cells = [new_code_cell(source) for source in CELLS]
    cells[0].metadata.tags = ["parameters"]
    notebook = new_notebook(cells=cells)
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
    (tmp_path / "book").mkdir()
    nbformat.write(notebook, tmp_path / "book/page.ipynb")
    ours = configuration()
    settings = f'claims = "{ours.claims}"\npages = "book"\nown = "{ours.own}"\n'
    (tmp_path / "paperledger.toml").write_text(settings, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_moves_is_counted_by_page():
    rows = pd.DataFrame(
        {"page": list("aab"), "verdicts": [3, 3, 1], "moved": [0, 2, 0], "untrue": [1, 1, 0]}
    ).assign(stopped=[0, 0, 1])
    counts = seeds.by_page(rows)
    assert counts.loc["a"].tolist() == [3, 2, 1, 2, 0]
    assert counts.loc["b"].tolist() == [1, 1, 0, 0, 1]


def test_a_page_is_run_to_its_end_or_to_where_it_stops_and_anew_where_the_code_has_changed(
    root, capsys
):
    folder = root / "results"
    folder.mkdir()
    assert seeds.main(["--seeds", "0", "2", "--folder", str(folder)], n_jobs=1) == 1
    counts = ["seed", "verdicts", "moved", "untrue", "stopped"]
    rows = load_results(folder, seeds.STORE)
    assert rows[counts].to_numpy().tolist() == [[0, 1, 0, 0, 0], [2, 1, 1, 1, 1]]
    out = capsys.readouterr().out
    assert "page, seed 2: 1 moved, 1 untrue, 1 stopped" in out
    assert f"wn-theorem-5: fails, not {ledger()['wn-theorem-5'].verdict}" in out
    assert "the page says: zero; it is not so" in out
    notebook = nbformat.read(root / "book/page.ipynb", as_version=4)
    notebook.cells[2].source = "1 // 2"
    nbformat.write(notebook, root / "book/page.ipynb")
    assert seeds.main(["--seeds", "2", "--folder", str(folder)], n_jobs=1) == 1
    rows = load_results(folder, seeds.STORE)
    assert rows[["seed", "moved", "stopped"]].to_numpy().tolist() == [[2, 1, 0]]


def test_the_cell_that_checks_parameters_is_not_of_the_code_that_seeds_depend_on(root):
    path = root / "book/page.ipynb"
    before = seeds.code_of("page", root / "book")
    notebook = nbformat.read(path, as_version=4)
    check = "from paperledger.parameters import check_parameters\ncheck_parameters(globals())"
    notebook.cells.insert(1, new_code_cell(check))
    nbformat.write(notebook, path)
    assert seeds.code_of("page", root / "book") == before
    notebook.cells.insert(1, new_code_cell("seed += 1"))
    nbformat.write(notebook, path)
    assert seeds.code_of("page", root / "book") != before
