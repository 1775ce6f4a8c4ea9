"""Tests of the choice among penalties, against SciPy's standard errors."""

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import sem

from bayesloss.learning.estimators.penalties import strongest_of_the_best, warn_at_the_end


def losses(n=40):
    """Of four penalties: the third the least, the second hardly worse on any row."""
    generator = np.random.default_rng(0)
    hard = generator.exponential(size=n)
    level = np.array([[0.1], [0.001], [0.0], [0.3]])
    noise = 0.03 * generator.normal(size=(4, n))
    return hard + level + noise - noise.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("copies", [1, 3])
def test_the_strongest_within_a_standard_error_row_by_row(copies):
    """With weights as with rows that are repeated."""
    found = losses()
    times = np.resize(np.arange(1, copies + 1), found.shape[1])
    repeated = np.repeat(found, times, axis=1)
    best = int(repeated.mean(axis=1).argmin())
    behind = repeated - repeated[best]
    near = behind.mean(axis=1) <= sem(behind, axis=1, ddof=0)
    expected = int(near.argmax())
    assert expected == 1
    # Far within the error of one loss: only the difference tells the first from the best.
    assert behind[0].mean() < sem(repeated[0])
    weight = torch.from_numpy(times.astype(float))
    chosen = strongest_of_the_best(torch.from_numpy(found), weight, float(times.sum()))
    assert chosen == expected


def test_a_row_of_little_weight_says_little_of_the_error():
    """Two rows of five cases each, and one case that differs by more than all others."""
    found = np.array([[0.5, 0.5, 2.0], [0.4, 0.3, 2.5]])
    times = np.array([5, 5, 1])
    behind = np.repeat(found[0] - found[1], times)
    assert behind.mean() > sem(behind, ddof=0)  # so the stronger penalty is worse
    weight = torch.from_numpy(times.astype(float))
    assert strongest_of_the_best(torch.from_numpy(found), weight, float(times.sum())) == 1


def test_more_cases_tell_more_penalties_apart():
    found = torch.from_numpy(losses())
    weight = torch.ones(40, dtype=torch.float64)
    assert strongest_of_the_best(found, weight, 4000.0) == 2
    assert strongest_of_the_best(found, weight, 0.1) == 0


@pytest.mark.parametrize(
    ("least", "said"), [(0, "C=0.1, is the strongest"), (1, None), (2, "C=10, is the weakest")]
)
def test_the_least_loss_at_an_end_is_told(least, said):
    given = np.ones(3)
    given[least] = 0.5
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warn_at_the_end(np.array([0.1, 1.0, 10.0]), tuple(given))
    assert [said in str(one.message) for one in told] == ([] if said is None else [True])


def test_of_one_penalty_there_is_nothing_to_tell(recwarn):
    warn_at_the_end(np.array([1.0]), (np.nan,))
    assert not recwarn.list
