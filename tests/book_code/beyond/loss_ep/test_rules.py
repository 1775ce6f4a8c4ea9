"""The rules beside the library's, by importance weights, quadrature and enumeration."""

import itertools

import pytest
import torch

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.whitened_gp import predictive
from bayesloss_book.beyond.loss_ep.rules import by_one_more_label, table_3_by_draws
from bayesloss_book.references.probit_references import draw_data, importance_points


def test_one_more_label_is_nearer_to_the_truth_than_ep():
    prior, y, _ = draw_data(0.3, 3.0, 12, 1, seed=3)
    ep = expectation_propagation(prior.features, y)
    z, share = importance_points(prior, y, ep, n_draws=8192, seed=0)
    x = torch.linspace(0, 1.5, 7, dtype=torch.float64)
    features, noise = prior.project(x.expand(12, -1))
    p_draws = torch.special.ndtr((z @ features.mT) / noise[:, None])
    exact = (share[:, None] @ p_draws).squeeze(1)
    error = (by_one_more_label(prior, y, x) - exact).abs()
    # The draws are good to about 1e-4.
    assert error.max() < 0.02
    assert error.mean() < 0.8 * (predictive(ep, features, noise) - exact).abs().mean()


@pytest.mark.parametrize("costs", [CostMatrix(1, 1), CostMatrix(0.2, 1), CostMatrix(2, 1)])
def test_table_3_climbs_the_mean_square(costs):
    """Its fixed point, by enumeration: no decisions are better under the posterior they tilt."""
    generator = torch.Generator().manual_seed(1)
    M = max(costs.c_plus, costs.c_minus)
    for _ in range(20):
        p_draws = torch.rand(30, 4, dtype=torch.float64, generator=generator)
        share = torch.rand(30, dtype=torch.float64, generator=generator)
        share = share / share.sum()

        def square(h, share=share, p_draws=p_draws):
            loss = torch.where(h > 0, costs.c_plus * (1 - p_draws), costs.c_minus * p_draws)
            return float(share @ (M - loss.mean(-1)) ** 2), share * (M - loss.mean(-1))

        h, probability, settled = table_3_by_draws(p_draws, share, costs)
        assert settled
        _, tilted = square(h)
        torch.testing.assert_close(
            probability, tilted / tilted.sum() @ p_draws, rtol=1e-5, atol=1e-8
        )
        risks = {}
        for other in itertools.product([-1.0, 1.0], repeat=4):
            g = torch.tensor(other, dtype=torch.float64)
            loss = torch.where(g > 0, costs.c_plus * (1 - p_draws), costs.c_minus * p_draws)
            risks[other] = float(tilted @ loss.mean(-1))
        assert risks[tuple(h.tolist())] == pytest.approx(min(risks.values()), abs=1e-12)
        bayes = torch.where(share @ p_draws > costs.threshold, 1.0, -1.0)
        assert square(h)[0] >= square(bayes)[0] - 1e-12


def test_a_huge_m_gives_the_bayes_decisions():
    generator = torch.Generator().manual_seed(2)
    p_draws = torch.rand(50, 30, dtype=torch.float64, generator=generator)
    share = torch.full((50,), 0.02, dtype=torch.float64)
    costs = CostMatrix(0.5, 1)
    h, _, settled = table_3_by_draws(p_draws, share, costs, max_loss=1e9)
    assert settled
    assert torch.equal(h > 0, p_draws.mean(0) > costs.threshold)
