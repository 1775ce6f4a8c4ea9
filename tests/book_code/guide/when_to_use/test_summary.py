"""When to use what: averages, groups and contests by hand, and the stored results."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayesloss_book.guide.when_to_use import methods, summary
from bayesloss_book.stores.results import load_results

RESULTS = Path(__file__).resolve().parents[4] / "data" / "results"


def made_up(losses, measure="log_loss"):
    """Results from {(data, method): values by seed}."""
    return pd.DataFrame(
        {"data": data, "method": method, "seed": seed, "rows": 200, measure: value}
        for (data, method), values in losses.items()
        for seed, value in enumerate(values)
    )


def test_behind_the_best():
    results = made_up({("wine", "logistic"): [0.2, 0.4], ("wine", "linkgistic"): [0.5, 0.3]})
    found = summary.behind_best(results)
    assert found.loc["wine", "logistic"] == 0
    assert found.loc["wine", "linkgistic"] == pytest.approx(0.1)
    errors = made_up({("cpus", "ISGP"): [2.0], ("cpus", "GP"): [3.0]}, "rmse")
    assert summary.behind_best(errors, "rmse").loc["cpus", "GP"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ([-0.01, -0.004], "better"),
        ([-0.01, -0.002], "level"),  # by less than the margin in one split
        ([-0.01, 0.01], "level"),
        ([0.004, 0.5], "worse"),
    ],
)
def test_a_contest_is_won_in_every_split(gaps, verdict):
    results = made_up({("iris", "logistic CV"): [0.1, 0.2], ("iris", "linkgistic"): [0, 0]})
    results.loc[results["method"] == "linkgistic", "log_loss"] = [0.1 + gaps[0], 0.2 + gaps[1]]
    found = summary.contest(results).loc["iris"]
    assert found["verdict"] == verdict
    assert found["mean"] == pytest.approx(sum(gaps) / 2)
    assert (found["least"], found["most"]) == pytest.approx((min(gaps), max(gaps)))


def test_errors_count_what_splits_share():
    """By simulation: means of J groups that share a part, whose share is n_test to n_train."""
    rng = np.random.default_rng(0)
    n = 20_000
    # Nadeau and Bengio's model: correlation rho = n_test / (n_test + n_train) of the splits.
    rho, J = 1 / 3, 5
    splits = np.sqrt(rho) * rng.normal(size=(n, 1)) + np.sqrt(1 - rho) * rng.normal(size=(n, J))
    gaps = splits[0] / 100
    drawn = "bent, normal, 100x30"  # for which seeds share nothing
    losses = {(data, "linkgistic"): list(gaps) for data in ("iris", drawn)}
    losses |= {(data, "logistic CV"): [0.0] * J for data in ("iris", drawn)}
    errors = summary.contest(made_up(losses))["error"] / gaps.std(ddof=1)
    assert errors[drawn] == pytest.approx(1 / np.sqrt(J))
    within = (splits.std(axis=1, ddof=1) ** 2).mean()  # unbiased in the square
    truth = splits.mean(axis=1).std() ** 2
    assert errors["iris"] ** 2 * within == pytest.approx(truth, rel=0.05)


def test_groups():
    assert summary.group("wine", 118) == "real, under 1,000 rows"
    assert summary.group("digits", 1_198) == "real, 1,000 and more rows"
    assert summary.group("boston", 300) == "real"
    assert summary.group("bent, normal, 20000x10", 20_000) == "link not straight, 20,000 rows"
    assert summary.group("sigmoid, 30", 30) == "smooth curve, 30 rows"
    assert summary.group("step, 300", 300) == "step, skewed or far inputs"


def test_medians_over_a_group():
    losses = {"wine": 0.1, "iris": 0.2, "crabs": 0.9}
    results = made_up({(data, "logistic"): [value] for data, value in losses.items()})
    found = summary.by_group(results, summary.averages(results, "log_loss"))
    assert found.loc["real, under 1,000 rows"].tolist() == [3, 0.2]


def test_seconds_are_medians_of_means():
    results = made_up({("wine", "logistic"): [1.0, 3.0], ("iris", "logistic"): [4.0, 4.0]})
    found = summary.seconds(results.rename(columns={"log_loss": "seconds"}))
    assert found["logistic"].tolist() == [3.0]


def test_the_store_has_every_cell():
    stored = load_results(RESULTS, "when_to_use")
    cells = methods.cells()
    assert len(stored) == len(cells)
    columns = ["task", "data", "method", "seed"]
    stored_cells = set(map(tuple, stored[columns].to_numpy()))
    assert stored_cells == {tuple(cell[column] for column in columns) for cell in cells}
