"""Learned links against calibration: differences, costs, and the stored results."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from bayesloss_book.guide.calibration_methods import methods, summary
from bayesloss_book.stores.results import load_provenance, load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


def made_up(data, columns, C=1.0):
    """Results of one problem: for each method its log loss by seed."""
    rows = [
        {"data": data, "task": "odd", "size": 9, "C": C, "seed": seed, "method": method}
        | {"log_loss": value, "seconds": 2.0 + len(method)}
        for method, values in columns.items()
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_differences_are_paired_and_their_errors_those_of_a_t_test():
    rng = np.random.default_rng(0)
    base = rng.normal(size=6) * 100  # would drown the difference if it were not paired
    gap = rng.normal(0.3, 0.1, size=6)
    found = summary.differences(made_up("mnist", {"logistic": base, "ISGP": base + gap}))
    row = found.loc[("mnist", "odd", 9, 1.0, "ISGP")]
    # Differences of numbers near 100 lose three digits.
    assert row["mean"] == pytest.approx(gap.mean(), rel=1e-10)
    assert row["mean"] / row["error"] == pytest.approx(ttest_1samp(gap, 0).statistic, rel=1e-10)
    assert row["clear"] == (ttest_1samp(gap, 0).pvalue < 0.01)
    assert row["n"] == 6


def test_splits_of_one_small_set_are_not_independent():
    """Nadeau and Bengio's variance, (1/J + 1/2) times that over splits, by hand."""
    columns = {"logistic": [0.0, 0.0, 0.0], "beta": [0.1, 0.2, 0.3]}
    image, small = (
        summary.differences(made_up(name, columns))["error"].item() for name in ("mnist", "digits")
    )
    assert image == pytest.approx(0.1 / np.sqrt(3))
    assert small == pytest.approx(0.1 * np.sqrt(1 / 3 + 1 / 2))


@pytest.mark.parametrize(
    ("shift", "verdict"), [(-0.5, "better"), (0.5, "worse"), (0.0, "not clear")]
)
def test_a_learned_link_meets_the_best_rival(shift, verdict):
    noise = np.array([-0.01, 0.01, -0.02, 0.02])
    columns = {
        "base rate": [0.0] * 4,  # best of all, and no rival
        "logistic": [3.0] * 4,
        "sigmoid": [2.0] * 4,
        "isotonic": [1.0] * 4,
        "beta": [2.5] * 4,
        "ISGP": 1.0 + shift + noise,
    }
    row = summary.learned_against_calibrated(made_up("kmnist", columns), "ISGP").iloc[0]
    assert row["rival"] == "isotonic"
    assert row["mean"] == pytest.approx(shift, abs=1e-12)
    assert row["verdict"] == verdict


def test_a_method_that_was_not_run_is_no_rival():
    columns = {"logistic": [1.0, 1.1], "isotonic": [0.5, 0.7], "ISGP": [0.6, 0.6]}
    other = {"logistic": [1.0, 1.1], "sigmoid": [0.1, 0.2], "ISGP": [0.6, 0.6]}
    both = pd.concat([made_up("mnist", other), made_up("mnist", columns, C=0.01)])
    found = summary.learned_against_calibrated(both, "ISGP")
    assert found["rival"].tolist() == ["sigmoid", "isotonic"]


def test_costs_are_ratios_of_medians():
    found = summary.costs(made_up("mnist", {"logistic": [1.0] * 3, "ISGP": [1.0] * 3}))
    assert found.loc[("images", 9), "seconds"] == 10
    assert found.loc[("images", 9), "ISGP"] == pytest.approx(6 / 10)


@pytest.fixture(scope="module")
def stored():
    return load_results(RESULTS, "calibration_methods")


def test_all_cells_are_stored(stored):
    columns = ["data", "task", "size", "C", "seed", "method"]
    assert stored[columns].to_dict("records") == methods.cells()
    provenance = load_provenance(RESULTS, "calibration_methods")
    assert provenance["function"] == "bayesloss_book.guide.calibration_methods.methods:measure"


def test_the_truth_is_a_floor_and_measures_are_in_their_ranges(stored):
    simulated = stored[stored["divergence"].notna()]
    assert (simulated["divergence"] > 0).all()
    assert stored["accuracy"].between(0, 1).all()
    assert stored["calibration"].between(0, 1).all()
    assert stored["brier"].between(0, 1).all()
    # No rule is better than the one that knows the link, but for chance: at 30,000 by the mean.
    large = summary.averages(simulated[simulated["size"] == 30_000], "divergence")
    assert (large["true link"] <= large.min(axis=1) + 1e-4).all()


def test_what_the_page_says_of_direction_is_stored(stored):
    angle = summary.averages(stored[stored["size"] == 30_000], "angle")
    angle = angle.droplevel(["size", "C"])
    assert angle.loc[("kinked", "skewed"), "logistic"] > 5
    assert angle.loc[("kinked", "Gaussian"), "logistic"] < 3
    assert angle.loc[("kinked", "skewed"), "ISGP"] < 2
