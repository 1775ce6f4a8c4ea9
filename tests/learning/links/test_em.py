"""Tests of EM against the paper's own recipe: with psi, and by automatic differentiation."""

import itertools
import math

import numpy as np
import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from textbook_joint import nu_of

from bayesloss import GP, ISGP, LogLoss, MatsushitaLoss, TrigonometricKernel, laplace
from bayesloss.learning.evidence.evidence import at_smoothness
from bayesloss.learning.inference.laplace import even_normals
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.links import em as em_module
from bayesloss.learning.links.em import EM, LinkModel, fit_link
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import fit_fixed_link

KINDS = pytest.mark.parametrize("kind", [ISGP, GP])
N_BASIS = 16


def data_of(n=600, d=3, C=10.0, seed=0):
    """Log odds that bend at zero: no straight link fits."""
    generator = np.random.default_rng(seed)
    z = generator.normal(size=(n, d))
    x = generator.normal(size=(1, d)) @ z.T
    odds = np.where(x < 0, 0.5 * x, 3 * x) - 0.3
    labels = (generator.random((1, n)) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    weight = generator.integers(1, 3, n).astype(float)
    return LinearScores.of(*(torch.from_numpy(array) for array in (z, labels, weight)), C)


def noise(n_draws=16):
    generator = torch.Generator().manual_seed(5)
    return torch.randn((n_draws, N_BASIS + 1), dtype=torch.float64, generator=generator)


def begin(data, kind=ISGP, loss=None, a=1.5, smoothness=None, tol=1e-5, **options):
    """The data in adapted coordinates, a model of the link, and the fit with the fixed link."""
    likelihood = Bernoulli(loss)
    fixed, data = fit_fixed_link(data, likelihood.loss, tol)
    reach = float((fixed.scores - fixed.offset[:, None]).abs().max())
    prior = kind(TrigonometricKernel(a=a, c=0.5 / reach, n_basis=N_BASIS), gamma=0.01)
    family = [prior]
    if smoothness is not None:
        family = [at_smoothness(prior, a) for a in smoothness]
    return data, LinkModel(likelihood, prior, family, noise(), **options), fixed


def run(kind=ISGP, loss=None, data=None, a=1.5, tol=1e-5, max_iter=20, **options):
    data, model, fixed = begin(data or data_of(), kind, loss, a, tol=tol)
    return fit_link(data, model, fixed, tol=tol, max_iter=max_iter, **options)


def plain_expectation(prior, loss, Gamma, x, labels):
    """E_q[log p(y | nu(x))] a datum: every draw through the array psi, as in the paper."""
    u = loss.inverse_canonical_link(nu_of(prior, x, Gamma))
    return torch.where(labels == 1, u.log(), torch.log1p(-u)).mean(0)


@KINDS
@pytest.mark.parametrize("loss", [LogLoss(), MatsushitaLoss()], ids=repr)
def test_m_step_maximises_the_papers_expectation(kind, loss):
    """At the end of an M-step, the plain objective has the value and the slope that were told."""
    data = data_of()
    found = run(kind, loss, data, max_iter=1)
    # One round: E-step at the fixed link, M-step, E-step. Redo the first E-step without the grid.
    fixed = run(kind, loss, data, max_iter=0)
    posterior = fixed.posterior
    Gamma = fixed.draws
    beta = found.beta.clone().requires_grad_()
    x = (data.inputs.Z - data.centre) @ beta
    values = plain_expectation(posterior.prior, loss, Gamma, x, data.labels[0])
    objective = values @ data.weight / data.total - 0.5 * data.ridge * (beta**2).sum()
    told = found.history["expected"][0]
    assert float(objective.detach()) == pytest.approx(told, abs=1e-6)  # the tables' error
    (slope,) = torch.autograd.grad(objective, beta)
    assert float(slope.abs().max()) < 1e-4  # the M-step ends at 1e-5, and the tables' error
    assert told > found.history["expected_before"][0] + 1e-5


@KINDS
def test_grid_is_not_felt(kind):
    """E-step on the grid and on the data themselves: a thousandth of a standard deviation."""
    data = data_of(n=3000)
    found = run(kind, None, data, max_iter=0)
    posterior = found.posterior
    plain = laplace(
        posterior.prior,
        Bernoulli(),
        found.scores,
        data.labels[0].double(),
        sample_weight=data.weight,
        start=posterior.mode,
    )
    scale = plain.covariance.diagonal().sqrt()
    assert float(((posterior.mode - plain.mode) / scale).abs().max()) < 0.002
    x = torch.linspace(float(found.scores.min()), float(found.scores.max()), 50).double()
    shift = (posterior.mean(x) - plain.mean(x)) / plain.variance(x).sqrt()
    assert float(shift.abs().max()) < 0.004
    assert posterior.log_evidence == pytest.approx(plain.log_evidence, abs=0.1)


def brute_force(z, y, *, c, gamma, C, rounds):
    """Weights after some rounds under an ISGP with two basis functions, by nothing of the library.

    nu by Gauss and Legendre, the mode by BFGS and its Hessian by automatic differentiation, the
    mean over the Gaussian by Gauss and Hermite, the weights by BFGS.
    """
    precision = torch.tensor([1, 1, gamma], dtype=torch.float64)  # (15), M = 2: b / a = k(0, 0)
    steps, step_weights = (torch.from_numpy(array) for array in leggauss(12))

    def nu(x, Gamma):
        """Of scores (n,) and Gamma (..., 3): the intercept and the integral of f^2 from 0 to x."""
        t = 0.5 * x[:, None] * (steps + 1)
        waves = torch.stack([torch.cos(math.pi * c * t), torch.sin(math.pi * c * t)])
        f = torch.einsum("...w,wnt->...nt", Gamma[..., :2], waves)
        return Gamma[..., 2:] + 0.5 * x * (f**2 @ step_weights)

    def log_labels(x, Gamma):
        return torch.nn.functional.logsigmoid((2 * y - 1) * nu(x, Gamma))

    def minimum(function, start):
        def with_slope(at):
            point = torch.tensor(at, requires_grad=True)
            value = function(point)
            (slope,) = torch.autograd.grad(value, point)
            return float(value.detach()), slope.numpy()

        found = minimize(with_slope, start, jac=True, method="BFGS", options={"gtol": 1e-9})
        return torch.from_numpy(found.x)

    z = z - z.mean(0)
    fixed = LogisticRegression(C=C, tol=1e-12, max_iter=10_000).fit(z.numpy(), y.numpy())
    beta = torch.from_numpy(fixed.coef_[0])
    Gamma = torch.tensor([1.0, 0.1, float(fixed.intercept_[0])], dtype=torch.float64)
    nodes, node_weights = hermegauss(10)
    points = torch.tensor(list(itertools.product(nodes, repeat=3)))
    products = itertools.product(node_weights, repeat=3)
    shares = torch.tensor([math.prod(weights) for weights in products])
    shares = shares / shares.sum()
    for _ in range(rounds):
        x = z @ beta

        def energy(Gamma, x=x):
            return 0.5 * precision @ Gamma**2 - log_labels(x, Gamma).sum()

        Gamma = minimum(energy, Gamma.numpy())
        H = torch.autograd.functional.hessian(energy, Gamma)  # eq. (11)
        root = torch.linalg.cholesky(torch.linalg.inv(H))
        spread = Gamma + points @ root.T

        def short_of(beta, spread=spread):
            return beta @ beta / (2 * C) - (shares @ log_labels(z @ beta, spread)).sum()

        beta = minimum(short_of, beta.numpy())
    return beta


def test_rounds_are_those_of_brute_force():
    """Two rounds with three parameters and forty labels."""
    generator = torch.Generator().manual_seed(1)
    z = torch.randn((40, 2), dtype=torch.float64, generator=generator)
    error = torch.randn(40, dtype=torch.float64, generator=generator)
    y = (1.5 * z[:, 0] - z[:, 1] > 0.8 * error).double()
    c = 0.15
    gamma = 0.5
    C = 1.0
    tol = 1e-10
    data = LinearScores.of(z, y[None].long(), torch.ones(40, dtype=torch.float64), C)
    fixed, adapted = fit_fixed_link(data, LogLoss(), tol)
    prior = ISGP(TrigonometricKernel(a=1.5, c=c, n_basis=2), gamma=gamma)
    points = even_normals(2**12, 3)
    em = EM(adapted, LinkModel(Bernoulli(), prior, [prior], points, ordered=True), fixed, tol)
    expected = brute_force(z, y, c=c, gamma=gamma, C=C, rounds=2)
    for _ in em.rounds(2):
        pass
    # Of it 1.3e-4 are missing here, and as much with two or four times as many draws.
    torch.testing.assert_close(em.beta[0], expected, rtol=5e-4, atol=0)
    assert float((fixed.beta[0] - expected).abs().max()) > 0.3


@KINDS
def test_m_steps_ascend_and_evidence_rises(kind):
    """The first is certain. The second is not, with Laplace's E-step, but is seen here."""
    found = run(kind, max_iter=60)
    history = {name: np.array(values) for name, values in found.history.items()}
    assert (history["expected"] > history["expected_before"]).all()
    assert np.isfinite(history["change"]).all()
    assert len(history["log_evidence"]) == len(history["expected"]) + 1
    assert found.posterior.log_evidence == history["log_evidence"][-1]
    assert history["log_evidence"][-1] > history["log_evidence"][0]
    assert found.unsettled == ()


def test_each_e_step_begins_at_the_mode_of_the_one_before(monkeypatch):
    """Another start may lead to another mode, and the objective then falls."""
    starts = []
    modes = []
    search = em_module.find_mode

    def watched(joint, start, **how):
        starts.append(start.clone())
        mode = search(joint, start, **how)
        modes.append(mode.Gamma.clone())
        return mode

    monkeypatch.setattr(em_module, "find_mode", watched)
    run(max_iter=3)
    assert len(starts) == 4
    for start, before in zip(starts[1:], modes, strict=False):
        torch.testing.assert_close(start, before, rtol=0, atol=0)


def test_an_m_step_may_take_scores_half_as_far_again():
    """What it climbs is the expectation there, too, and not what lies at the table's end."""
    data, model, fixed = begin(data_of())
    reach = float((fixed.scores - fixed.offset[:, None]).abs().max())
    # Scores fill the period, and the table has whole periods: it has to have another.
    prior = ISGP(TrigonometricKernel(a=1.5, c=1 / reach, n_basis=N_BASIS), gamma=0.01)
    em = EM(data, LinkModel(model.likelihood, prior, [prior], noise()), fixed, 1e-5)
    em.e_step(1)
    x = reach * torch.tensor([-1.45, -1.1, 1.1, 1.45], dtype=torch.float64)
    for label in (0, 1):
        found = em_module.by_parts(em._expectations(), x, torch.full((4,), label))[0]
        expected = plain_expectation(em.prior, LogLoss(), em.draws(), x, torch.full((4,), label))
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_scores_are_those_of_the_weights():
    data = data_of()
    found = run(data=data)
    expected = data.scores(found.beta[None])[0]
    torch.testing.assert_close(found.scores, expected, rtol=1e-10, atol=1e-10)


def test_what_did_not_settle_is_named():
    found = run(max_iter=1, tol=1e-30)  # below what rounding lets an evidence be
    assert any("its last round still changed the evidence" in what for what in found.unsettled)


def test_bar(capsys):
    run(max_iter=2, progress=True)
    assert "EM" in capsys.readouterr().err


def test_rounds_may_be_watched():
    """After each E-step link and weights belong together; the last are the result."""
    data, model, fixed = begin(data_of())
    em = EM(data, model, fixed, 1e-5)
    watched = []
    for number in em.rounds(3):
        assert number == len(em.history["log_evidence"])
        watched.append((em.beta.clone(), em.found()))
    found = run(max_iter=3)
    assert len(watched) == 4
    torch.testing.assert_close(watched[-1][0][0], found.beta, rtol=0, atol=0)
    evidences = [posterior.log_evidence for _, posterior in watched]
    assert evidences == found.history["log_evidence"]


def test_rounds_on_another_device_are_those_of_the_processor(second_device):
    def fit(device):
        data = data_of(n=300)
        given = (tensor.to(device) for tensor in (data.inputs.Z, data.labels, data.weight))
        data, model, fixed = begin(LinearScores.of(*given, 1.0), smoothness=(1.2, 2.0))
        return fit_link(data, model, fixed, tol=1e-4, max_iter=2)

    with second_device() as device:
        there = fit(device.device)
    here = fit("cpu")
    assert device.used
    for name in ("beta", "scores"):
        got = getattr(there, name).held
        torch.testing.assert_close(got, getattr(here, name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("ordered", [False, True])
def test_draws_have_the_moments_of_the_posterior(ordered):
    generator = torch.Generator().manual_seed(0)
    many = torch.randn((4000, N_BASIS + 1), dtype=torch.float64, generator=generator)
    data, model, fixed = begin(data_of())
    model = LinkModel(model.likelihood, model.prior, model.family, many, ordered=ordered)
    found = fit_link(data, model, fixed, tol=1e-5, max_iter=1)
    q = found.posterior
    sd = q.covariance.diagonal().sqrt()
    assert float(((found.draws.mean(0) - q.mode) / sd).abs().max()) < 0.08  # five standard errors
    torch.testing.assert_close(found.draws.var(0).sqrt(), sd, rtol=0.06, atol=0)


def test_links_may_be_constant_beyond_the_period():
    """What an M-step sees beyond it has no slope, and scores count as those at its end."""
    data, model, fixed = begin(data_of(), constant_ends=True)
    narrow = ISGP(TrigonometricKernel(a=1.5, c=3 * model.prior.kernel.c, n_basis=N_BASIS))
    model = LinkModel(model.likelihood, narrow, [narrow], noise(), constant_ends=True)
    em = EM(data, model, fixed, 1e-5)
    em.e_step(1)
    edge = narrow.kernel.edge
    assert float(em.scores.abs().max()) > edge
    assert max(-em.low, em.high) == pytest.approx(edge, rel=1e-12)
    table = em._expectations()
    value, slope = table(torch.tensor([edge, 1.5 * edge], dtype=torch.float64), 1)
    assert value[0] == value[1]
    assert slope[1] == 0


def test_the_evidence_chooses_the_prior():
    data, model, fixed = begin(data_of(), GP, smoothness=(1.1, 4.0, 1.5))
    found = fit_link(data, model, fixed, tol=1e-5, max_iter=1)
    labels = data.labels[0].double()
    evidence = [
        laplace(prior, Bernoulli(), found.scores, labels, sample_weight=data.weight).log_evidence
        for prior in model.family
    ]
    assert found.posterior.prior is model.family[evidence.index(max(evidence))]


def test_the_prior_is_chosen_anew_where_scores_have_moved():
    """By the evidence of the data themselves, after the third M-step another is best."""
    smoothness = np.geomspace(1.2, 4.0, 9).tolist()
    data, model, fixed = begin(data_of(n=300, seed=1), GP, smoothness=smoothness)
    labels = data.labels[0].double()
    em = EM(data, model, fixed, 1e-5)
    best = []
    for _ in em.rounds(3):
        evidence = [
            laplace(prior, Bernoulli(), em.scores[0], labels, sample_weight=data.weight)
            for prior in model.family
        ]
        best.append(int(np.argmax([posterior.log_evidence for posterior in evidence])))
    assert em.found().prior is model.family[best[-1]]
    assert best[0] != best[-1]  # or the test would not see a choice that stands


def test_rounds_end_when_the_penalised_evidence_stands_still():
    """Of the last changes in nats a case only the last is below the tolerance."""
    data = data_of()
    tol = 1e-6
    data, model, fixed = begin(data, tol=tol)
    em = EM(data, model, fixed, tol)
    values = []
    for number in em.rounds(60):
        assert number == len(em.history["log_evidence"])
        penalty = 0.5 * data.ridge * float(em.beta.square().sum())
        values.append(em.found().log_evidence / data.total - penalty)
    changes = np.abs(np.diff(values))
    assert len(changes) > 2
    assert changes[-1] < tol
    assert (changes[:-1] >= tol).all()
