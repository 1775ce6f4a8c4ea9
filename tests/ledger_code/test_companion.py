"""A companion of an invented paper, from an empty folder to its scorecard."""

import json
import sys

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from paperledger.kernels import KERNEL
from paperledger.ledger import falsify, seeds
from paperledger.ledger.claims import disagreements, ledger
from paperledger.ledger.scorecard import all_findings, claims_table, counts, own_table, titles
from paperledger.stores import rerun, verify
from paperledger.stores.results import load_provenance, load_results, run_cells

SETTINGS = """
own = "Our own"
seeds = 2
versions = { numpy = "numpy" }

[papers]
Toss = "Toss, On fair coins, 2026"
"""
CLAIMS = """
- id: toss-variance
  paper: Toss
  kind: equation
  where: Equation (1)
  statement: The number of heads among $n$ tosses has the variance $n / 2$.
  page: coins
  verdict: holds as corrected
  correction: formula
- id: toss-runs
  paper: Toss
  kind: table
  where: Table 1
  statement: The mean length of the longest run.
  page: coins
  verdict: reproduced
  printed: {50: 5.9, 200: 8.0}
- id: own-sum
  paper: Our own
  kind: statement
  where: Appendix
  statement: The chances of all numbers of heads sum to one.
  page: coins
  verdict: holds
"""
EXPERIMENT = """
import numpy as np

from paperledger.stores.results import crossed, runs


def longest(tosses):
    changes = np.flatnonzero(np.diff(tosses)) + 1
    return np.diff([0, *changes, len(tosses)]).max()


def measure(*, n, seed):
    rng = np.random.default_rng([n, seed])
    return {"longest": np.mean([longest(rng.integers(0, 2, n)) for _ in range(200)])}


def cells():
    return crossed(n=[50, 200], seed=range(5))


run = runs(measure, cells, "longest_runs")
"""
PAGE = (
    "seed = 0",
    """
import numpy as np
from scipy.stats import binom

from paperledger.ledger.checks import check_formula, check_numbers, check_statement, within
from paperledger.ledger.claims import ledger
from paperledger.stores.results import load_results
""",
    """
n = np.array([1, 7, 40])
variance = binom(n, 0.5).var()
check_formula(
    "toss-variance", truth=variance, printed=n / 2, corrected=n / 4, tolerance=1e-12, by="SciPy"
)
""",
    """
means = load_results("results", "longest_runs").groupby("n")["longest"].mean()
check_numbers(
    "toss-runs", means.to_dict(), ledger()["toss-runs"].printed, tolerance=0.2
)
""",
    """
total = binom.pmf(np.arange(8), 7, 0.5).sum()
check_statement("own-sum", {"seven tosses": within(total, 1, 1e-12)})
""",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "paperledger.toml").write_text(SETTINGS, "utf-8")
    (tmp_path / "claims.yml").write_text(CLAIMS, "utf-8")
    (tmp_path / "tossing.py").write_text(EXPERIMENT, "utf-8")
    cells = [new_markdown_cell("# Fair coins"), *map(new_code_cell, PAGE)]
    metadata = {"kernelspec": {"name": "python3", "display_name": "", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=metadata), tmp_path / "coins.ipynb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("tossing", None)


def execute(folder):
    notebook = nbformat.read(folder / "coins.ipynb", as_version=4)
    NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}, **KERNEL).execute()
    nbformat.write(notebook, folder / "coins.ipynb")


def measured(folder):
    """The store of the experiment, by two runs of which the second goes on after the first."""
    import tossing

    run_cells(tossing.measure, tossing.cells()[:4], folder / "results", "longest_runs")
    tossing.run(folder / "results")


def test_an_experiment_is_resumed_and_says_where_it_comes_from(folder, capsys):
    measured(folder)
    assert len(load_results(folder / "results", "longest_runs")) == 10
    provenance = load_provenance(folder / "results", "longest_runs")
    assert [run["cells"] for run in provenance["runs"]] == [4, 6]
    assert provenance["function"] == "tossing:measure"
    assert list(provenance["runs"][0]["versions"]) == ["python", "numpy"]
    assert verify.main(["--seed", "1"]) == 0
    assert rerun.main(["longest_runs"]) == 0
    assert "longest_runs: 10 cells agree in 10 measures" in capsys.readouterr().out
    assert (folder / "_build" / "rerun" / "longest_runs.csv").is_file()


def test_a_page_is_checked_against_the_ledger_and_shown_on_the_scorecard(folder):
    measured(folder)
    execute(folder)
    assert disagreements(folder, ledger(), {"coins"}) == []
    findings = all_findings(folder)
    assert [finding.verdict for _, finding in findings.values()] == [
        claim.verdict for claim in ledger().values()
    ]
    assert titles(folder) == {"coins": "Fair coins"}
    assert counts()["all papers"].to_dict() == {"holds as corrected": 1, "reproduced": 1, "all": 2}
    shown = claims_table(findings, titles(folder), root=".")
    assert repr(shown) == "toss-variance: holds as corrected\ntoss-runs: reproduced"
    assert 'href="./coins.html#claim-toss-runs"' in shown._repr_html_()
    assert repr(own_table(findings, titles(folder), root=".")) == "own-sum: holds"


def test_a_verdict_that_is_typed_into_the_ledger_stops_the_page(folder):
    measured(folder)
    said = CLAIMS.replace("holds as corrected\n  correction: formula", "holds")
    (folder / "claims.yml").write_text(said, "utf-8")
    with pytest.raises(CellExecutionError, match="ledger says 'holds', the check gives 'holds as"):
        execute(folder)


def test_a_wrong_number_makes_each_check_fail(folder, capsys):
    measured(folder)
    execute(folder)
    assert falsify.falsifiers() == {}
    assert falsify.main([]) == 0
    assert capsys.readouterr().out.startswith("coins: 3 falsifiers, ")
    found = falsify.falsifiers()
    assert set(found) == set(ledger())
    assert all(found[id].verdict != claim.verdict for id, claim in ledger().items())
    assert set(json.loads((folder / "falsifiers.json").read_text("utf-8"))) == set(ledger())
    text = claims_table(all_findings(folder), titles(folder), root=".")._repr_html_()
    assert text.count("Can it fail? With") == 2


def test_other_seeds_are_tried_and_stored(folder, capsys):
    measured(folder)
    execute(folder)
    assert seeds.main([], n_jobs=1) == 0
    rows = load_results(folder / "results", seeds.STORE)
    assert rows[["page", "seed", "verdicts", "moved"]].to_numpy().tolist() == [
        ["coins", 1, 3, 0],
        ["coins", 2, 3, 0],
    ]
