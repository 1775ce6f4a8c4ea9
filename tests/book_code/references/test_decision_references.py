"""What pages say about finite decision problems, against SciPy and enumeration.

The bound of loss-EM and its mixed form are tested beside the library's algorithms.
"""

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from bayesloss_book.references.decision_references import (
    discretise,
    kl_divergence,
    optimal_actions,
    prediction_losses,
)

HALVES = torch.tensor([0.5, 0.5])


def masses(rng, *shape):
    p = rng.exponential(size=shape)
    return torch.tensor(p / p.sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("seed", range(5))
def test_kl_is_scipy_s(seed):
    """Some masses of q are zero, or of both."""
    rng = np.random.default_rng(seed)
    p = masses(rng, 5)
    q = masses(rng, 5) * torch.tensor(rng.random(5) < 0.8)
    q = q / q.sum() if q.sum() else p
    p = p * torch.tensor(rng.random(5) < 0.9)
    p = p / p.sum()
    assert float(kl_divergence(q, p)) == pytest.approx(entropy(q.numpy(), p.numpy()), abs=1e-10)


def test_discretise_normalises():
    found = discretise(torch.tensor([0.0, -np.inf, np.log(3)]) - 1000)
    np.testing.assert_allclose(found, [0.25, 0, 0.75], atol=1e-6)  # the input is float32


def test_more_bad_input():
    with pytest.raises(ValueError, match="at least one cell"):
        discretise(torch.tensor([-np.inf, -np.inf]))
    with pytest.raises(ValueError, match="at least one cell, got nan"):
        discretise(torch.tensor([0.0, np.nan]))
    with pytest.raises(ValueError, match="at least one cell"):
        discretise(torch.tensor([]))
    with pytest.raises(ValueError, match=r"shape \(K, X, Y\)"):
        prediction_losses(torch.ones(2, 2), torch.ones(2, 2))
    with pytest.raises(ValueError, match="sum to 1"):
        prediction_losses(torch.ones(2, 2, 2), torch.ones(2, 2))
    assert float(kl_divergence(HALVES, torch.tensor([1.0, 0.0]))) == np.inf
    assert float(kl_divergence(torch.tensor([1.0, 0.0]), HALVES)) == pytest.approx(np.log(2))


def test_risks_that_differ_by_rounding_errors_are_equal():
    """By no more than the tolerance; one of the actions is always among the best."""
    risks = torch.tensor([[0.0, 0.5e-12, 1.5e-12, 1.0]], dtype=torch.float64)
    p = torch.ones(1, dtype=torch.float64)
    assert optimal_actions(p, risks).tolist() == [True, True, False, False]
    assert optimal_actions(p, risks, tolerance=0.0).tolist() == [True, False, False, False]
    assert optimal_actions(p, risks, tolerance=2.0).all()
