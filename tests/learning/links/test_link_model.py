import pytest
import torch

from bayesloss import GP, TrigonometricKernel, laplace
from bayesloss.learning.evidence.evidence import at_smoothness
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.links.link_model import LinkModel

X = torch.linspace(-2, 2, 80, dtype=torch.float64)
Y = (X > 0.3).to(X.dtype)


def prior_of(scores):
    kernel = TrigonometricKernel(a=1.5, c=0.5 / float(scores.abs().max()), n_basis=8)
    return GP(kernel.scaled(4.0), gamma=0.1)


def fitted(**options):
    noise = torch.randn((4000, 9), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = LinkModel(Bernoulli(), prior_of, noise, **options)
    link = model.link(X, torch.tensor(0.7, dtype=torch.float64))
    link.low, link.high, link.reach = -2.0, 2.0, 2.0
    data = Bernoulli().condense(link.prior.features, X, Y)
    if len(link.rivals) > 1:
        link.choose_prior(Bernoulli(), data)
    link.fit(LogJoint(link.prior, Bernoulli(), data), 0.5, 80.0, by_nearest=False)
    return model, link


@pytest.mark.parametrize("ordered", [False, True])
def test_draws_have_the_moments_of_the_posterior(ordered):
    model, link = fitted(ordered=ordered)
    draws, q = model.draws(link), link.posterior
    sd = q.covariance.diagonal().sqrt()
    assert float(((draws.mean(0) - q.mode) / sd).abs().max()) < 0.08  # five standard errors
    torch.testing.assert_close(draws.var(0).sqrt(), sd, rtol=0.06, atol=0)


def test_expectations_are_means_over_draws_and_constant_beyond_the_period():
    model, link = fitted(constant_ends=True)
    table, edge = model.expectations(link), link.prior.kernel.edge
    nu = link.prior.source(X, model.draws(link))
    for row, sign in ((0, -1), (1, 1)):
        expected = torch.nn.functional.logsigmoid(sign * nu).mean(0)
        torch.testing.assert_close(table(X, row)[0], expected, rtol=1e-5, atol=1e-5)
    value, slope = table(torch.tensor([edge, 1.5 * edge], dtype=torch.float64), 1)
    assert value[0] == value[1]
    assert slope[1] == 0


def test_a_fit_says_how_much_the_evidence_changed():
    _, link = fitted()
    assert link.found
    assert link.gain == link.drift == float("inf")
    data = Bernoulli().condense(link.prior.features, X, Y)
    link.fit(LogJoint(link.prior, Bernoulli(), data), 0.7, 80.0, by_nearest=False)
    assert link.drift == pytest.approx(0, abs=1e-12)
    assert link.gain == pytest.approx(0.2)  # the penalty's


def test_the_evidence_chooses_the_prior():
    _, link = fitted(family=lambda prior: [at_smoothness(prior, a) for a in (1.1, 4.0, 1.5)])
    evidence = [laplace(prior, Bernoulli(), X, Y).log_evidence for prior in link.family]
    assert link.posterior.prior is link.family[evidence.index(max(evidence))]
