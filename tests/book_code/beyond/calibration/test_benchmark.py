"""The benchmark of calibrators: its cells, its measures, its stores."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import brier_score_loss, log_loss

from bayesloss_book import score_tables as tables
from bayesloss_book.beyond.calibration import benchmark, rivals
from bayesloss_book.stores.results import load_provenance, load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


def test_cells_are_as_many_as_data_allow():
    cells = benchmark.cells(sizes=(200, 5_000, 100_000), draws=2)
    assert len(cells) == 2 * len([cell for cell in cells if cell["number"] == 0])
    assert max(cell["n"] for cell in cells if cell["data"] == "digits") == 200
    assert max(cell["n"] for cell in cells if cell["data"] == "mnist") == 5_000
    assert max(cell["n"] for cell in cells if cell["data"] == "votes") == 100_000
    assert min(cell["n"] for cell in cells if cell["data"] == "rare") == 5_000


def test_later_cells_are_other_sizes_and_real_tables():
    first, later = benchmark.cells(), benchmark.more_cells()
    columns = ["data", "task", "model", "n", "number"]
    keys = [tuple(cell[key] for key in columns) for cell in first + later]
    assert len(set(keys)) == len(keys)
    real = {cell["data"] for cell in later} - {cell["data"] for cell in first}
    assert len(real) == 6
    assert {cell["n"] for cell in later if cell["data"] not in real} == {50, 20_000, 100_000}
    sizes = {50, 200, 1_000, 5_000, 20_000}
    assert {cell["n"] for cell in later if cell["data"] == "flights"} == sizes
    assert max(cell["n"] for cell in later if cell["data"] == "mnist") == 20_000


def test_the_larger_tables_and_the_mixed_parts_have_one_draw():
    found = benchmark.table_cells()
    assert {cell["data"] for cell in found} == set(tables.LARGER)
    assert len(found) == 5 * 7 * len(tables.LARGER)  # sizes and classifiers
    mixed = benchmark.shuffled_cells()
    assert {(cell["data"], cell["task"]) for cell in mixed} == {("kmnist", "odd")}
    assert {cell["n"] for cell in mixed} == {50, 200, 1_000, 5_000, 20_000}
    assert {cell["number"] for cell in found + mixed} == {0}


def test_seconds_are_measured_where_asked_for():
    cell = {"data": "votes", "task": "curve", "model": "curve", "n": 200, "number": 0}
    plain = benchmark.measure(methods=["sigmoid"], **cell)
    timed = benchmark.measure(methods=["sigmoid"], timed=True, **cell)
    assert timed.keys() - plain.keys() == {"sigmoid: fit_seconds", "sigmoid: predict_seconds"}
    assert plain == {name: timed[name] for name in plain}
    assert timed["sigmoid: fit_seconds"] > 0


def test_measures_of_labels_are_scikit_learns():
    rng = np.random.default_rng(0)
    s, t = rng.normal(size=100), rng.normal(size=500)
    y, truth = ((rng.random(len(x)) < expit(x)).astype(float) for x in (s, t))
    found = benchmark.measure_one("none", s, y, t, truth, False)
    assert found["log_loss"] == pytest.approx(log_loss(truth, expit(t)))
    assert found["brier"] == pytest.approx(brier_score_loss(truth, expit(t)))
    assert found["failed"] == 0


def test_measures_of_probabilities_are_expectations():
    """Of the log loss and the Brier score over labels, by Monte Carlo, four standard errors."""
    rng = np.random.default_rng(0)
    t = rng.normal(size=2_000)
    truth = expit(2 * t)
    found = benchmark.measure_one("none", t, (truth > 0.5).astype(float), t, truth, False)
    draws = (rng.random((200, len(t))) < truth).astype(float)
    losses = [log_loss(y, expit(t)) for y in draws]
    assert found["log_loss"] == pytest.approx(np.mean(losses), abs=4 * np.std(losses) / 200**0.5)
    losses = [brier_score_loss(y, expit(t)) for y in draws]
    assert found["brier"] == pytest.approx(np.mean(losses), abs=4 * np.std(losses) / 200**0.5)


def test_a_method_that_fails_is_counted(monkeypatch):
    s = np.linspace(-1, 1, 20)
    y = (s > 0.5).astype(float)

    def broken(method, *_):
        if method == "beta":
            raise ZeroDivisionError
        if method == "isotonic":
            raise ImportError("no such package")
        return lambda t: np.where(t > 0, np.nan, 1 + 1e-9)

    monkeypatch.setattr(rivals, "fit", broken)
    found = benchmark.measure_one("beta", s, y, s, y, False)
    assert found["failed"] == 1
    assert found["brier"] == pytest.approx(((y.mean() - y) ** 2).mean())
    assert benchmark.measure_one("sigmoid", s, y, s, y, False)["failed"] == 0.5
    with pytest.raises(ImportError):  # of the environment, not of the method
        benchmark.measure_one("isotonic", s, y, s, y, False)


def test_coverage_counts_the_test_scores_whose_truth_is_in_the_band():
    """A truth that is never in the band, and one that always is."""
    rng = np.random.default_rng(0)
    s = rng.normal(size=300)
    y = (rng.random(300) < expit(s)).astype(float)
    curve = rivals.fit(rivals.OURS, s, y, False)
    middle = curve(s)
    for truth, share in ((middle, 1.0), (np.clip(middle + 0.4, 0, 1), 0.0)):
        found = benchmark.measure_one(rivals.OURS, s, y, s, truth, False, known=True)
        assert found["coverage"] == pytest.approx(share, abs=0.02)
        assert 0 < found["width"] < 0.4
    assert np.isnan(benchmark.measure_one(rivals.OURS, s, y, s, y, False)["coverage"])


def test_a_row_is_every_method_on_the_same_cases():
    cell = {"data": "votes", "task": "curve", "model": "curve", "n": 200, "number": 0}
    both = benchmark.measure(methods=["none", "sigmoid"], **cell)
    one = benchmark.measure(methods=["sigmoid"], **cell)
    assert {name.split(": ")[0] for name in both} == {"none", "sigmoid"}
    assert one == {name: value for name, value in both.items() if name.startswith("sigmoid")}


@pytest.mark.parametrize("name", benchmark.STORES)
def test_stores_hold_every_cell_from_a_clean_tree(name):
    """Those of later sizes as far as they were measured; every real table is whole."""
    rows = load_results(RESULTS, name)
    columns = ["data", "task", "model", "n", "number"]
    stored = set(rows[columns].itertuples(index=False, name=None))
    planned = {tuple(cell[key] for key in columns) for cell in benchmark.planned(name)}
    if "more" in name:
        planned = {c for c in planned if c[1] == "real" or (c[4] == 0 and c[3] < 1e5)}
    assert planned <= stored
    provenance = load_provenance(RESULTS, name)
    assert provenance["parameters"] == benchmark.STORES[name]
