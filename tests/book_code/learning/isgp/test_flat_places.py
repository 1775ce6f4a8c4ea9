import numpy as np
import pytest
import torch

from bayesloss import TrigonometricKernel
from bayesloss_book.learning.isgp import flat_places

SMALL = flat_places.WithConstant(TrigonometricKernel(a=1.5, c=0.4, n_basis=6), 0.7)


@pytest.mark.parametrize("x", [-2.0, 0.0, 1.3])
def test_psi_is_the_integral_of_the_products(x):
    nodes, weights = np.polynomial.legendre.leggauss(40)
    phi = SMALL.basis(torch.from_numpy(x / 2 * (1 + nodes))).numpy()
    expected = x / 2 * (phi.T * weights) @ phi
    found = SMALL.psi(torch.tensor([x], dtype=torch.float64))[0]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_both_priors_have_one_variance():
    waves = TrigonometricKernel(a=1.2, c=0.2, n_basis=32)
    zero = torch.zeros(1, dtype=torch.float64)
    both = flat_places.WithConstant(waves.scaled(0.5), 0.5).variance_at(zero)
    assert float(both) == pytest.approx(float(waves.variance_at(zero))) == pytest.approx(1)


def test_excess_is_what_new_labels_cost():
    """Of 400,000 new labels, within four standard errors."""
    found = flat_places.measure(source="kink", n=100, filled=0.5, a=1.2, seed=1, n_basis=8)
    x, y = flat_places.labels("kink", 100, 1)
    posterior = flat_places.fit("waves", x, y, filled=0.5, a=1.2, n_basis=8)
    said = torch.sigmoid(torch.from_numpy(flat_places.source_draws(posterior))).mean(dim=0).numpy()
    true = torch.sigmoid(flat_places.SOURCES["kink"](flat_places.grid())).numpy()
    generator = np.random.default_rng(0)
    at = generator.integers(len(true), size=400_000)
    new = generator.random(len(at)) < true[at]
    cost = np.where(new, np.log(true[at] / said[at]), np.log((1 - true[at]) / (1 - said[at])))
    assert abs(cost.mean() - found["waves_excess"]) < 4 * cost.std() / np.sqrt(len(cost))
    assert found["waves_excess"] > 8 * cost.std() / np.sqrt(len(cost))


def test_labels_follow_the_source():
    x, y = flat_places.labels("line", 40_000, 3)
    p = torch.sigmoid(x)
    assert float(x.min()) >= -3
    assert float(x.max()) <= 3
    assert abs(float(((y - p) * x).mean())) < 4 * float((x**2 * p * (1 - p)).mean().sqrt()) / 200


def test_exact_posterior_is_that_of_a_sum():
    """Three parameters and a grid of 40 points each way, in units of the prior's deviations."""
    x, y = flat_places.labels("line", 60, 2)
    joint = flat_places.joint_density("waves", x, y, filled=0.5, a=1.2, n_basis=2)
    sample = flat_places.exact(joint, n_chains=96, n_temperatures=40, seed=0)
    # Beyond lies less than 1e-7 of the mass; 60 points change the evidence by 1e-6.
    lines = [torch.linspace(-end, end, 40, dtype=torch.float64) for end in (3, 4.5, 0.5)]
    cube = torch.cartesian_prod(*lines)
    step = np.prod([line[1] - line[0] for line in lines])
    scale = joint.prior.precision.rsqrt()
    at = torch.linspace(-3, 3, 7, dtype=torch.float64)
    grid = joint.prior.location + scale * cube
    signs = 2 * y - 1
    nu_of_parts = (joint.prior.source(x, part) for part in grid.split(4000))
    fit = torch.cat([torch.nn.functional.logsigmoid(signs * nu).sum(dim=1) for nu in nu_of_parts])
    mass = fit - 0.5 * (cube**2).sum(dim=1) - 1.5 * np.log(2 * np.pi) + np.log(step)
    # Four standard errors; the data are on a grid there and not here, a hundredth of a nat.
    assert abs(sample.log_evidence - float(mass.logsumexp(0))) < 4 * sample.error + 0.01
    expected = torch.softmax(mass, 0) @ torch.sigmoid(joint.prior.source(at, grid))
    p = torch.sigmoid(joint.prior.source(at, joint.prior.location + scale * sample.points))
    error = ((p - expected) ** 2).T @ sample.weights / sample.effective_size
    assert bool(((sample.weights @ p - expected).abs() < 4 * error.sqrt()).all())
