"""Risks, actions and the loss divergence, against loops, SciPy and inequalities."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesloss import bayes_action, loss_divergence, posterior_risk
from bayesloss_book.references.decision_references import optimal_actions

EXACT = 1e-12  # sums of a few products of numbers near one, in double precision
many = settings(max_examples=100, deadline=None, derandomize=True)


def masses(rng, *shape):
    p = rng.exponential(size=shape)
    return torch.tensor(p / p.sum(axis=-1, keepdims=True))


@st.composite
def problems(draw):
    """Two distributions, some of whose masses are zero, and losses with ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_states = draw(st.integers(1, 6))
    n_actions = draw(st.integers(1, 5))
    both = rng.exponential(size=(2, n_states)) * (rng.random((2, n_states)) < 0.8)
    both[:, 0] += 1e-3
    p, q = torch.tensor(both / both.sum(axis=1, keepdims=True))
    losses = rng.normal(size=(n_states, n_actions))
    return p, q, torch.tensor(np.round(losses) if draw(st.booleans()) else losses)


def test_risk_is_a_double_loop():
    rng = np.random.default_rng(0)
    p = masses(rng, 3, 4)
    losses = torch.tensor(rng.normal(size=(4, 2)))
    expected = [[sum(p[b, k] * losses[k, a] for k in range(4)) for a in range(2)] for b in range(3)]
    np.testing.assert_allclose(posterior_risk(p, losses), expected, atol=EXACT)
    assert bayes_action(p, losses).tolist() == np.argmin(expected, axis=1).tolist()


def test_first_of_several_minimisers():
    losses = torch.tensor([[2.0, 1.0, 1.0, 3.0]])
    p = torch.ones(1)
    assert int(bayes_action(p, losses)) == 1
    assert optimal_actions(p, losses).tolist() == [False, True, True, False]


@many
@given(problems())
def test_divergence_is_excess_risk_and_never_negative(problem):
    p, q, losses = problem
    found = float(loss_divergence(p, q, losses))
    risk = p.numpy() @ losses.numpy()
    chosen = min(range(losses.shape[1]), key=lambda a: (round(float(q @ losses[:, a]), 12), a))
    optimal = optimal_actions(q, losses)
    # Where rounding decides between ties, any tied action is right.
    assert found == pytest.approx(risk[chosen] - risk.min(), abs=EXACT) or int(optimal.sum()) > 1
    assert found >= 0
    assert float(loss_divergence(p, p, losses)) == 0
    assert (found <= EXACT) == bool(optimal_actions(p, losses)[bayes_action(q, losses)])


def test_divergence_broadcasts():
    rng = np.random.default_rng(1)
    p = masses(rng, 4)
    q = masses(rng, 5, 4)
    losses = torch.tensor(rng.normal(size=(4, 3)))
    found = loss_divergence(p, q, losses)
    assert found.shape == (5,)
    assert found.tolist() == [float(loss_divergence(p, each, losses)) for each in q]
    found = loss_divergence(q, p, losses)
    assert found.tolist() == [float(loss_divergence(each, p, losses)) for each in q]
    found = loss_divergence(q[:, None], q, losses)
    assert found.shape == (5, 5)
    assert float(found[1, 3]) == float(loss_divergence(q[1], q[3], losses))


good = torch.tensor([0.5, 0.5])
bad = torch.tensor([[0.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    ("p", "losses", "said"),
    [
        (torch.tensor([0.5, 0.6]), bad, "sum to 1, got a sum of 1.1 in row 0"),
        (torch.tensor([1.5, -0.5]), bad, r"in \[0, 1\], got 1.5 in row 0"),
        (torch.tensor([np.nan, 1.0]), bad, r"in \[0, 1\], got nan"),
        (torch.tensor([]), bad, "at least one state"),
        (good, torch.tensor([[0.0, np.inf], [1.0, 0.0]]), "expected finite losses, got inf"),
        (good, torch.tensor([[0.0, np.nan], [1.0, 0.0]]), "expected finite losses, got nan"),
        (good, torch.zeros(2, 0), "K, A > 0"),
        (good, torch.zeros(2), r"of shape \(K, A\)"),
        (good, torch.zeros(3, 2), "masses of 3 states, got 2"),
    ],
)
def test_bad_input(p, losses, said):
    with pytest.raises(ValueError, match=said):
        posterior_risk(p, losses)


def test_masses_as_rounding_leaves_them():
    """Three decimals, off by 0.001 together; and none at all."""
    rounded = torch.tensor([[0.333, 0.333, 0.333], [0.2, 0.3, 0.5]], dtype=torch.float64)
    losses = torch.eye(3, dtype=torch.float64)
    rounded.requires_grad_()
    found = posterior_risk(rounded, losses)
    np.testing.assert_allclose(found[0].tolist(), 1 / 3, rtol=1e-15)
    found.sum().backward()
    assert rounded.grad is not None
    assert posterior_risk(torch.zeros(0, 3), losses).shape == (0, 3)
