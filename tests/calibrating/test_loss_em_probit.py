"""Loss-EM for classification: fixed points, limits, and many data sets at once."""

import warnings

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from bayesloss import CostMatrix
from bayesloss.calibrating import loss_em_probit as loss_em_probit_module
from bayesloss.calibrating.loss_em_probit import loss_em_probit
from bayesloss.calibrating.probit.laplace import log_joint
from bayesloss.calibrating.probit.tilted_ep import tilted_ep
from bayesloss.calibrating.probit.whitened_gp import decide
from bayesloss.calibrating.utility import LogUtility
from bayesloss_book.references.probit_references import draw_data


def problem(n_sets=4, n_test=40, seed=0, amplitude=3.0):
    prior, y, unit = draw_data(0.3, amplitude, n_sets, n_test, seed)
    features, noise = prior.project((unit[1] + 0.2).expand(n_sets, -1))
    return prior, y, features, noise


def test_ends_at_a_fixed_point():
    """The mode is stationary, its covariance the inverse Hessian, the decisions their own."""
    prior, y, features, noise = problem(n_sets=6)
    costs = CostMatrix(0.2, 1)
    found = loss_em_probit(prior.features, y, features, noise, costs)
    assert found.converged.all()
    term = LogUtility(features, noise, found.decisions, costs, 1.0)

    def total(z):
        return log_joint(z, prior.features, y, term).sum()

    assert torch.func.grad(total)(found.q.mean).abs().max() < 1e-8
    hessian = torch.func.hessian(total)(found.q.mean)
    for i in range(6):
        product = -hessian[i, :, i] @ found.q.covariance[i]
        torch.testing.assert_close(
            product, torch.eye(len(product), dtype=torch.float64), rtol=1e-5, atol=1e-8
        )
    assert torch.equal(found.decisions, decide(found.q, features, noise, costs.probit_threshold))


def test_batch_does_what_one_does():
    """Also the data sets that settle sooner than others, and are left alone from then on."""
    prior, y, features, noise = problem()
    costs = CostMatrix(0.6, 1)
    start = torch.ones_like(noise)
    together = loss_em_probit(prior.features, y, features, noise, costs, start=start)
    n_rounds = together.n_rounds.tolist()
    assert len(set(n_rounds)) > 1
    for i in range(4):
        own = slice(i, i + 1)
        one = loss_em_probit(
            prior.features[own], y[own], features[own], noise[own], costs, start=start[own]
        )
        torch.testing.assert_close(one.q.mean[0], together.q.mean[i], rtol=1e-5, atol=1e-9)
        assert torch.equal(one.decisions[0], together.decisions[i])
        assert int(one.n_rounds) == n_rounds[i]


def test_each_e_step_begins_at_the_mode_of_the_one_before(monkeypatch):
    """The loss term is not concave: from elsewhere another mode may be found, and a worse."""
    prior, y, features, noise = problem(n_sets=20)
    starts = []
    means = []
    laplace = loss_em_probit_module.laplace_probit

    def watched(features, y, **how):
        q = laplace(features, y, **how)
        starts.append(how.get("start"))
        means.append(q.mean.clone())
        return q

    monkeypatch.setattr(loss_em_probit_module, "laplace_probit", watched)
    start = torch.ones_like(noise)
    found = loss_em_probit(prior.features, y, features, noise, CostMatrix(0.2, 1), start=start)
    assert int(found.n_rounds.max()) >= 2
    assert (found.decisions < 0).any() and (start == 1).all()  # what is given stays
    assert starts[0] is None
    torch.testing.assert_close(starts[1], means[0], rtol=0, atol=0)
    for begun, before in zip(starts[2:], means[1:], strict=False):
        # Those that go on are some of those before, in order.
        assert all(bool((row == before).all(dim=1).any()) for row in begun)


def test_too_few_rounds_are_reported():
    prior, y, features, noise = problem(n_sets=20)
    start = torch.ones_like(noise)
    with pytest.warns(ConvergenceWarning, match="still changed"):
        found = loss_em_probit(
            prior.features, y, features, noise, CostMatrix(1, 1), start=start, max_iter=1
        )
    assert not found.converged.all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loss_em_probit(
            prior.features, y, features, noise, CostMatrix(1, 1), start=start
        ).converged.all()


def test_loss_em_by_ep_ends_at_its_own_decisions():
    prior, y, target_features, noise = problem(n_sets=10)
    features = prior.features
    costs = CostMatrix(0.2, 1)
    found = loss_em_probit(features, y, target_features, noise, costs, inference="ep")
    assert found.converged.all() and found.q.converged.all()
    term = LogUtility(target_features, noise, found.decisions, costs, 1.0)
    again = tilted_ep(features, y, term)
    assert (again.mean - found.q.mean).abs().max() < 1e-9
    assert torch.equal(
        found.decisions, decide(again, target_features, noise, costs.probit_threshold)
    )
    one = slice(3, 4)
    alone = tilted_ep(features[one], y[one], term.select(torch.tensor([3])))
    assert (alone.mean - again.mean[one]).abs().max() < 1e-7
