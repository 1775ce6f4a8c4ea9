"""When to use what: differences and contests by hand."""

import numpy as np
import pandas as pd
import pytest

from bayesloss_book.guide.when_to_use import summary


def made_up(losses, measure="log_loss"):
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
    rho = 1 / 3
    J = 5
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
