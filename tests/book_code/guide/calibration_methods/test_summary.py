"""Learned links against calibration: differences and their verdicts."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from bayesloss_book.guide.calibration_methods import summary


def made_up(data, columns, C=1.0):
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
    columns = {
        "base rate": [0.0] * 4,  # best of all, and no rival
        "logistic": [3.0] * 4,
        "sigmoid": [2.0] * 4,
        "isotonic": [1.0] * 4,
        "beta": [2.5] * 4,
        "ISGP": 1.0 + shift + np.array([-0.01, 0.01, -0.02, 0.02]),
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
