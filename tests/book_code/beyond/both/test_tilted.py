import math

import numpy as np
import pytest
import torch

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.learning.inference.laplace import approximate
from bayesloss.learning.inference.newton import find_mode
from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book.beyond.both import tilted
from bayesloss_book.data.labelled_scores import make_prior, problem

COSTS = CostMatrix(0.25, 1)
AT = torch.linspace(-50, 50, 21, dtype=torch.float64)


@pytest.fixture(scope="module")
def few():
    """Two basis functions and an intercept, so that a grid has the truth."""
    prior = ISGP(TrigonometricKernel(a=1.5, c=0.01, n_basis=2).scaled(0.05), mu=0.0, gamma=0.5)
    generator = torch.Generator().manual_seed(0)
    x = 100 * torch.rand(25, dtype=torch.float64, generator=generator) - 50
    y = (torch.rand(25, dtype=torch.float64, generator=generator) < torch.sigmoid(x / 15)).double()
    joint = tilted.labels_joint(prior, x, y)
    return joint, find_mode(joint, prior.start(x)), prior.features(AT), x


@pytest.fixture(scope="module")
def simulated():
    """Fifteen labels, nine targets."""
    prior = make_prior()
    given = problem("simulated", 15, 0, n_targets=9)
    return prior, tilted.labels_joint(prior, given.x, given.y), given


@pytest.mark.parametrize("costs", [COSTS, CostMatrix(1, 0.1)])
def test_derivatives(simulated, costs):
    prior, labels, given = simulated
    joint = tilted._tilted(labels, prior.features(given.targets), 4, costs)
    Gamma = prior.sample(1, torch.Generator().manual_seed(1))[0]
    by_hand = joint.derivatives(Gamma)
    leaf = Gamma.clone().requires_grad_()
    (slope,) = torch.autograd.grad(joint(leaf), leaf, create_graph=True)
    hessian = torch.stack([torch.autograd.grad(s, leaf, retain_graph=True)[0] for s in slope])
    assert (by_hand[0] - slope).abs().max() < 1e-8
    assert (by_hand[1] + hessian).abs().max() < 1e-9 * by_hand[1].abs().max()


def test_the_utility_is_m_less_the_risk(simulated):
    prior, labels, given = simulated
    joint = tilted._tilted(labels, prior.features(given.targets), 4, COSTS)
    Gamma = prior.sample(1, torch.Generator().manual_seed(1))[0]
    p = torch.sigmoid(prior.source(given.targets, Gamma))
    loss = (p[:4].sum() + 0.25 * (1 - p[4:]).sum()) / 9
    assert float(joint(Gamma) - labels(Gamma)) == pytest.approx(math.log(1 - float(loss)))


def posterior_grid(joint, reach, n):
    """Parameters on a grid, and the logarithms of their masses: prior times likelihood."""
    axis = torch.linspace(-reach, reach, n, dtype=torch.float64)
    z = torch.cartesian_prod(axis, axis, axis)
    Gamma = joint.prior.location + z * joint.prior.precision.rsqrt()
    nu = joint.prior.coefficients(Gamma) @ joint.data.features.T
    log_mass = torch.nn.functional.logsigmoid((2 * joint.data.targets - 1) * nu).sum(-1)
    log_mass = log_mass - 0.5 * (z**2 + math.log(2 * math.pi)).sum(-1)
    return Gamma, log_mass + 3 * math.log(float(axis[1] - axis[0]))


def test_two_evidences_are_nearer_than_one_gaussian(few):
    joint, mode, targets, x = few
    base = float(joint.log_evidence(mode.Gamma))
    noise = torch.randn(
        20_000, len(mode.Gamma), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    one = tilted.mean_probability(approximate(joint, mode), targets, noise)
    Gamma, log_mass = posterior_grid(joint, 6, 81)
    p = torch.softmax(log_mass, 0) @ torch.sigmoid(joint.prior.coefficients(Gamma) @ targets.T)
    yes = torch.arange(21)
    errors = {"two": [], "one": []}
    for cut in (3, 8, 13, 18):
        exact = float(torch.where(yes >= cut, 0.25 * (1 - p), p).mean())
        two = 1 - math.exp(tilted.tilted_evidence(joint, mode, targets, cut, COSTS) - base)
        by_one = torch.where(yes >= cut, 0.25 * (1 - one), one).mean()
        errors["two"].append(abs(two - exact))
        errors["one"].append(abs(float(by_one) - exact))
    assert max(errors["two"]) < 0.5 * max(errors["one"])
    by_label = tilted.one_more_label(joint.prior, x, joint.data.targets, mode, AT)
    assert (by_label - p).abs().mean() < 0.7 * (one - p).abs().mean()


def test_best_cut_is_the_best_of_all(few):
    joint, mode, targets, _ = few
    for costs in (CostMatrix(1, 1), COSTS, CostMatrix(1, 0.1)):
        every = [tilted.tilted_evidence(joint, mode, targets, cut, costs) for cut in range(22)]
        assert tilted.best_cut(joint, mode, targets, costs) == int(np.argmax(every))


def test_cut_of_and_table_3(few):
    joint, mode, targets, _ = few
    p = torch.tensor([0.1, 0.2, 0.6, 0.9], dtype=torch.float64)
    assert tilted.cut_of(p, CostMatrix(1, 1)) == 2
    assert tilted.cut_of(p, CostMatrix(0.01, 1)) == 0
    assert tilted.cut_of(p, CostMatrix(99, 1)) == 4
    noise = torch.randn(
        500, len(mode.Gamma), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    cut, settled = tilted.table_3(joint, mode, targets, COSTS, noise, 10)
    assert settled
    again, _ = tilted.table_3(joint, mode, targets, COSTS, noise, cut)
    assert again == cut


def test_tilted_bound_by_finite_differences(simulated):
    """What the utility adds to the derivatives of the variational bound, along a line of q."""
    prior, joint, given = simulated
    mode = find_mode(joint, prior.start(given.x))
    bound = tilted.TiltedBound(tilted._tilted(joint, prior.features(given.targets), 4, COSTS))
    m = mode.Gamma
    precision = joint.curvature(mode.Gamma)
    q = bound(m, precision)
    gradient, hessian = bound.derivatives(q)
    S = q.root @ q.root.T
    scale = prior.precision.sqrt()
    noise = torch.randn(
        len(m), len(m), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    step = q.root @ noise[0]
    turn = q.root @ (noise + noise.T) @ q.root.T

    def at(length):
        there = torch.linalg.inv(S + length * turn) / torch.outer(scale, scale)
        return float(bound(m + length * step, 0.5 * (there + there.T)).value)

    expected = float(gradient @ step + 0.5 * ((torch.linalg.inv(S) - hessian) * turn).sum())
    h = 1e-4  # truncation 1e-10, rounding 1e-11
    found = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    assert found == pytest.approx(expected, rel=1e-5)


def test_variational_bounds_lie_below_the_evidences(few):
    """Labels with and without the utility; the grid of two weights and an intercept is the truth.

    The mean of the log probability is taken as if nu were normal: at most a tenth of a nat here.
    """
    joint, mode, *_ = few
    targets = joint.prior.features(torch.linspace(-40, 40, 9, dtype=torch.float64))
    Gamma, log_mass = posterior_grid(joint, 5.5, 61)
    for cut in (2, 6):
        term = tilted._tilted(joint, targets, cut, COSTS)
        truth = float(torch.logsumexp(log_mass + term.log_utility(Gamma), 0))
        found = tilted.tilted_evidence(joint, mode, targets, cut, COSTS, by_variation=True)
        assert truth - 0.6 < found < truth + 0.1
