"""Bases: the fast forms against the generic ones, and inference with a basis that has no others.

``Bare`` hides everything of a basis but its eigenvalues, phi and psi. For a Nyström basis the
independent route is quadrature: nu as a sum over Gauss-Legendre nodes, its log joint density from
``torch.distributions``, the mode by SciPy.
"""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.distributions import Normal

from bayesloss import GP, ISGP, Gaussian, TrigonometricKernel, laplace, maximise_evidence
from bayesloss.kernels import SquaredExponential
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.links.tables import table_nodes
from bayesloss.learning.sources.basis import Basis
from bayesloss.learning.sources.nystrom import NystromBasis
from bayesloss.learning.sources.priors import grid_size

KINDS = pytest.mark.parametrize("kind", [ISGP, GP])


class Bare(Basis):
    """No more of a basis than one must bring."""

    def __init__(self, full):
        self.n_basis = full.n_basis
        self.eigenvalues = full.eigenvalues
        self.full = full

    def basis(self, x):
        return self.full.basis(x)

    def psi(self, x):
        return self.full.psi(x)


def trigonometric(n_basis=6):
    return TrigonometricKernel(a=1.6, b=0.9, c=0.4, n_basis=n_basis)


def nystrom(n=6):
    points = torch.linspace(-1.2, 1.1, n, dtype=torch.float64)
    return NystromBasis(SquaredExponential(a=4.0, b=1.3), points)


BASES = pytest.mark.parametrize("full", [trigonometric(), nystrom()], ids=["trigonometric", "SE"])


def points(n=12, reach=2.4, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(-reach, reach, n))


def random(*shape, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@BASES
class TestFastAgainstGeneric:
    """Two routes to every function of x and w; phi and psi are tested in the modules' own tests."""

    def test_slopes_by_finite_differences(self, full):
        x = points()
        step = 1e-5
        expected = (full.basis(x + step) - full.basis(x - step)) / (2 * step)
        # Truncation step^2, rounding 1e-16 / step, times derivatives of size 1000 at most.
        torch.testing.assert_close(full.slopes(x), expected, rtol=1e-6, atol=1e-6)

    @KINDS
    @pytest.mark.parametrize("labels", [False, True])
    def test_inference(self, full, kind, labels):
        x = points(30, reach=1.0)
        y = torch.tanh(2 * x) + 0.2 * random(30)
        likelihood, y = (Bernoulli(), (y > 0.1).double()) if labels else (Gaussian(20.0), y)
        one, other = (
            laplace(kind(basis, mu=0.2, gamma=2.0), likelihood, x, y)
            for basis in (full, Bare(full))
        )
        assert other.converged
        at = points(reach=1.0, seed=5)
        for got, expected in zip(other.moments(at), one.moments(at), strict=True):
            # Features of 1/eigenvalue ~ 1e4 cost four digits of sixteen, Newton's end some more.
            torch.testing.assert_close(got, expected, rtol=1e-7, atol=1e-8)
        assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-7)
        assert other.evidence_bound == pytest.approx(one.evidence_bound, abs=1e-7)


def test_slopes_in_inference_mode_and_of_a_constant():
    expected = trigonometric().slopes(points())
    with torch.inference_mode():
        torch.testing.assert_close(trigonometric().slopes(points()), expected)
    constant = Bare(trigonometric())
    constant.basis = lambda x: torch.ones((len(x), 6), dtype=torch.float64)
    assert not constant.slopes(points()).any()


class TestNystrom:
    """The ISGP and the GP over a Nyström basis, against quadrature and SciPy."""

    x = points(25, reach=1.0, seed=6)
    full = nystrom(5)
    y = torch.tanh(3 * points(25, reach=1.0, seed=6)) + 0.2 * random(25, seed=7)
    mu = 0.1
    gamma = 1.5
    alpha = 25.0

    def source(self, kind, x, z):
        """nu(x) at Gamma = location + scale z, z of shape (..., M + 1), by quadrature.

        Of phi nothing is used but k(., X) and its eigenvectors.
        """
        K = self.full.kernel(self.full.points, self.full.points) + 1.3e-8 * torch.eye(5)
        values, vectors = torch.linalg.eigh(K)
        v = (z[..., :-1] / values.sqrt()) @ vectors.T  # w = sqrt(lambda) z, so f = k(., X) v
        nu_0 = self.mu + z[..., -1:] / math.sqrt(self.gamma)
        if kind is GP:
            return nu_0 + v @ self.full.kernel(self.full.points, x)
        nodes, weights = map(torch.from_numpy, np.polynomial.legendre.leggauss(60))
        inner = (0.5 * x[:, None] * (nodes + 1)).flatten()
        square = (v @ self.full.kernel(self.full.points, inner)) ** 2
        return nu_0 + 0.5 * x * (square.unflatten(-1, (len(x), 60)) @ weights)

    def log_joint(self, kind, z, labels):
        nu = self.source(kind, self.x, z)
        prior = Normal(0.0, 1.0).log_prob(z).sum()
        if labels:
            y = (self.y > 0).double()
            return prior + torch.distributions.Bernoulli(logits=nu).log_prob(y).sum()
        return prior + Normal(nu, self.alpha**-0.5).log_prob(self.y).sum()

    @KINDS
    @pytest.mark.parametrize("labels", [False, True])
    def test_laplace_by_quadrature(self, kind, labels):
        """The mode, the Hessian, the evidence and the moments."""
        prior = kind(self.full, mu=self.mu, gamma=self.gamma)
        likelihood, y = (Bernoulli(), (self.y > 0).double()) if labels else (Gaussian(25.0), self.y)
        posterior = laplace(prior, likelihood, self.x, y)
        assert posterior.converged

        def negative(vector):
            z = torch.from_numpy(vector.copy()).requires_grad_()
            value = -self.log_joint(kind, z, labels)
            (slope,) = torch.autograd.grad(value, z)
            return float(value.detach()), slope.numpy()

        # The same w in the eigenvectors' order and signs of the other route: both ascend from here.
        starts = [*np.random.default_rng(8).normal(size=(8, 6))]
        found = [minimize(negative, s, jac=True, options={"gtol": 1e-9}) for s in starts]
        best = min(found, key=lambda result: result.fun)
        z = torch.from_numpy(best.x)
        H = torch.autograd.functional.hessian(lambda v: -self.log_joint(kind, v, labels), z)
        expected = -best.fun + 3 * math.log(2 * math.pi) - 0.5 * float(torch.logdet(H))
        if kind is ISGP:  # the twin at -w, which hardly overlaps here
            expected += math.log(2)
        # SciPy's mode is good to 1e-8, its value to the square; the twins overlap by a little.
        tolerance = 1e-6 if kind is GP else 1e-2
        assert posterior.log_evidence == pytest.approx(expected, abs=tolerance)
        draws = z + random(20_000, 6, seed=9) @ torch.linalg.cholesky(torch.linalg.inv(H)).T
        at = torch.tensor([-0.9, -0.3, 0.2, 0.8], dtype=torch.float64)
        paths = self.source(kind, at, draws)
        mean, variance = posterior.moments(at)
        errors = 4 * paths.std(dim=0) / math.sqrt(20_000)
        assert bool(((paths.mean(dim=0) - mean).abs() < errors).all())
        squares = (paths - mean) ** 2
        assert bool(((squares.mean(0) - variance).abs() < 4 * squares.std(0) / 141).all())

    def test_prior_mean_is_not_linear(self):
        """mu + tr(psi(x) Lambda): Monte Carlo over paths by quadrature, four standard errors."""
        at = torch.tensor([-2.0, -0.5, 0.7, 3.0], dtype=torch.float64)
        paths = self.source(ISGP, at, random(20_000, 6, seed=10))
        mean = ISGP(self.full, mu=self.mu, gamma=self.gamma).mean(at)
        errors = 4 * paths.std(dim=0) / math.sqrt(20_000)
        assert bool(((paths.mean(dim=0) - mean).abs() < errors).all())
        line = self.mu + 1.3 * at
        assert float((mean - line)[3].abs()) > 1.0  # there are no points there

    def test_derivative_is_the_square_of_the_root(self):
        prior = ISGP(self.full)
        step = 1e-5
        Gamma = prior.sample(2, torch.Generator().manual_seed(0))
        ends = [prior.source(self.x + s, Gamma) for s in (step, -step)]
        slopes = (ends[0] - ends[1]) / (2 * step)
        torch.testing.assert_close(prior.derivative(self.x, Gamma), slopes, rtol=0, atol=1e-7)

    def test_start_is_near_the_prior_mean(self):
        prior = ISGP(nystrom(12))
        x = torch.linspace(-1, 1, 50, dtype=torch.float64)
        gap = prior.source(x, prior.start(x)) - prior.mean(x)
        assert float(gap.abs().max()) < 0.1 * 2 * 1.3  # it rises by 2 b


class TestRefusals:
    prior = ISGP(nystrom())

    @pytest.mark.parametrize("kernel", [SquaredExponential(a=1.0), None, "trigonometric"])
    @KINDS
    def test_what_is_no_basis(self, kind, kernel):
        said = "expected a Basis, such as a TrigonometricKernel, got "
        with pytest.raises(TypeError, match=said):
            kind(kernel)

    def test_an_unfinished_basis(self):
        with pytest.raises(TypeError, match="abstract method"):
            type("Half", (Basis,), {"basis": lambda self, x: x})()

    @pytest.mark.parametrize(
        ("action", "need"),
        [
            (lambda p, x: maximise_evidence(p, Gaussian(), x, x), "whose smoothness a"),
            (lambda p, x: grid_size(p, 1.0, 10), "whose a and c say how fine the grid"),
            (lambda p, x: table_nodes(p), "whose periods the table covers"),
        ],
    )
    def test_where_a_and_c_are_needed(self, action, need):
        said = f"expected a prior with a TrigonometricKernel, {need}.*; got ISGP.NystromBasis"
        with pytest.raises(TypeError, match=said):
            action(self.prior, points(5))
