"""Zeros, slopes, costs and origins of the ISGP prior, each by a second route."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize

from bayesloss.learning.sources.basis import Basis
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book.learning.isgp import prior as isgp

TRIALS = settings(max_examples=200, deadline=None, derandomize=True)


def drawn(prior, n, seed=0):
    return prior.sample(n, torch.Generator().manual_seed(seed))


def plain_f(w, c):
    """The path f written out, one harmonic at a time."""
    half = len(w) // 2

    def f(x):
        angles = [math.pi * m * c * x for m in range(1, half + 1)]
        return sum(
            p * math.cos(t) + q * math.sin(t)
            for p, q, t in zip(w[:half], w[half:], angles, strict=True)
        )

    return f


# ------------------------------------------------------------------------------------- any basis


class Bins(Basis):
    """A basis that Definition 2 allows: f is constant on each bin, and jumps between them."""

    def __init__(self, edges):
        self.low, self.high = torch.tensor(edges[:-1]), torch.tensor(edges[1:])
        self.n_basis, self.eigenvalues = len(self.low), torch.ones(len(self.low)).double()

    def basis(self, x):
        return ((x[:, None] >= self.low) & (x[:, None] < self.high)).double()

    def psi(self, x):
        reached = x[:, None].clamp(self.low, self.high) - torch.zeros(1).clamp(self.low, self.high)
        return torch.diag_embed(reached)


def test_with_bins_a_draw_has_kinks_and_with_a_gap_it_stands_still():
    edges = torch.linspace(-1, 1, 9).double().tolist()
    path = drawn(isgp.ISGP(Bins(edges)), 1, seed=3)[0]
    nu = lambda x: isgp.ISGP(Bins(edges)).source(torch.tensor(x).double(), path)  # noqa: E731
    at, h = np.array(edges[1:-1]), 1e-6
    left, right = (nu(at) - nu(at - h)) / h, (nu(at + h) - nu(at)) / h
    assert left.numpy() == pytest.approx(path[:7].numpy() ** 2, rel=1e-5, abs=1e-8)
    assert right.numpy() == pytest.approx(path[1:8].numpy() ** 2, rel=1e-5, abs=1e-8)
    assert (left - right).abs().max() > 0.1
    gap = isgp.ISGP(Bins([-1.0, 0.0, 0.5, 0.5, 1.0]))  # a bin of no width adds nothing
    gap.kernel.low[1] = 0.25  # nor does anything between 0 and 1/4
    still = gap.source(torch.tensor([0.0, 0.25]).double(), drawn(gap, 1)[0])
    assert still[0] == still[1]


# ---------------------------------------------------------------------------------------- zeros


def test_counted_zeros_are_the_roots_on_the_unit_circle():
    """Times z^(M/2), f is a polynomial of degree M in z = exp(i pi c x): its roots by numpy."""
    prior = isgp.make_prior(a=1.5, n_basis=12)
    paths = drawn(prior, 40)
    for Gamma, count in zip(paths, isgp.count_zeros(prior, paths), strict=True):
        p, q = Gamma[:6].numpy(), Gamma[6:12].numpy()
        upper = (p - 1j * q) / 2  # the coefficients of z, ..., z^6
        roots = np.roots(np.concatenate([upper[::-1], [0.0], upper.conj()]))
        assert np.sum(np.abs(np.abs(roots) - 1) < 1e-7) == count


def test_rice_formula_against_the_kernel_by_finite_differences():
    kernel = TrigonometricKernel(a=1.4, c=0.7, n_basis=20)
    h = 1e-4
    ends = torch.tensor([0.0, h, -h], dtype=torch.float64)
    k = kernel(ends, torch.zeros(1, dtype=torch.float64))
    curvature = float(k[1] + k[2] - 2 * k[0]) / h**2
    rate = math.sqrt(-curvature / float(k[0])) / math.pi  # zeros a unit of x
    assert isgp.expected_zeros(kernel) == pytest.approx(rate * 2 / 0.7, rel=1e-5)


def test_rice_formula_against_paths():
    table = isgp.zeros_table((1.2, 2.0, 8.0), n_basis=32, n_paths=2000, seed=1)
    assert (np.abs(table["counted"] - table["rice"]) < 4 * table["error"]).all()
    assert (table["fewest"] >= 2).all()
    assert (table["most"] <= 32).all()
    assert (table["odd counts"] == 0).all()


def test_a_constant_lowers_the_number_of_zeros():
    kernel = isgp.make_prior().kernel
    free, half = isgp.expected_zeros(kernel), isgp.expected_zeros(kernel, constant=1.0)
    assert half == pytest.approx(free / math.sqrt(2))


def test_outside_the_domain_the_source_is_a_staircase():
    prior = isgp.make_prior(c=0.8, n_basis=6)
    Gamma = drawn(prior, 1)[0]
    x = torch.linspace(-1, 1, 11, dtype=torch.float64)
    rise = prior.source(x + 2 / 0.8, Gamma) - prior.source(x, Gamma)
    assert rise.numpy() == pytest.approx(float((Gamma[:-1] ** 2).sum()) / 0.8)


# --------------------------------------------------------------------------------------- slopes


@TRIALS
@given(
    seed=st.integers(0, 2**32 - 1),
    half=st.integers(1, 16),
    a=st.floats(1.05, 20.0),
    x=st.floats(-1.0, 1.0),
)
def test_slopes_stay_below_lemma_6(seed, half, a, x):
    prior = isgp.make_prior(a=a, n_basis=2 * half)
    Gamma = drawn(prior, 1, seed)
    w = Gamma[0, :-1].numpy()
    slope = plain_f(w, 1.0)(x) ** 2
    sup = isgp.steepest(prior, Gamma, 4096)[0]
    bound = half * (w @ w)
    assert slope <= sup * (1 + 1e-3)
    assert sup <= bound * (1 + 1e-12)


def test_lemma_6_is_sharp_for_weights_along_the_basis():
    prior = isgp.make_prior(n_basis=10)
    phi = prior.kernel.basis(torch.tensor([0.25], dtype=torch.float64))
    Gamma = torch.cat([phi, torch.zeros((1, 1), dtype=torch.float64)], dim=1)
    assert isgp.steepest(prior, Gamma)[0] == pytest.approx(5 * float((phi**2).sum()))


@pytest.mark.parametrize("a", [1.2, 2.0, 8.0])
@pytest.mark.parametrize("probability", [0.5, 0.05, 0.01])
def test_the_tail_bound_covers(a, probability):
    prior = isgp.make_prior(a=a)
    sup = isgp.steepest(prior, drawn(prior, 4000, seed=2), 2048)
    share = (sup > isgp.tail_bound(prior.kernel, probability)).mean()
    assert share <= probability + 4 * math.sqrt(probability / 4000)
    if probability == 0.01:  # and it is not idle
        assert share > 0.3 * probability


# ----------------------------------------------------------------------- what the prior can do


@pytest.mark.parametrize("constant", [0.0, 0.3])
def test_level_cost_against_a_general_optimiser(constant):
    kernel = isgp.make_prior(a=2.0, n_basis=6).kernel
    fraction, tolerance = 0.4, 0.1
    x = np.linspace(-fraction, fraction, 4001)
    basis = kernel.basis(torch.from_numpy(x)).numpy() * kernel.eigenvalues.sqrt().numpy()
    if constant:
        basis = np.column_stack([np.full(len(x), math.sqrt(constant)), basis])
    found = minimize(
        lambda v: v @ v,
        np.linalg.lstsq(basis, np.ones(len(x)), rcond=None)[0],
        jac=lambda v: 2 * v,
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda v: tolerance**2 - np.mean((basis @ v - 1) ** 2),
        },
        options={"maxiter": 500, "ftol": 1e-10},
    )
    cost = isgp.level_cost(kernel, fraction, tolerance=tolerance, constant=constant)
    assert cost == pytest.approx(found.fun, rel=1e-3)


def test_a_whole_period_near_one_is_out_of_reach_without_a_constant():
    kernel = isgp.make_prior(n_basis=8).kernel
    assert isgp.level_cost(kernel, 1.0, tolerance=0.5) == math.inf
    # With one, w = (1 - tolerance, 0, ...) does it.
    cost = isgp.level_cost(kernel, 1.0, tolerance=0.1, constant=0.5)
    assert cost == pytest.approx(0.9**2 / 0.5, rel=1e-6)


def line(x):
    return np.ones_like(x)


def test_a_line_comes_near_on_half_a_period_but_not_on_a_whole():
    half = [
        isgp.best_root(line, isgp.make_prior(c=0.5, n_basis=n).kernel, 1.0) for n in (4, 8, 16, 32)
    ]
    assert all(later[0] < earlier[0] / 3 for earlier, later in pairwise(half))
    assert half[-1][1] < 1e-10
    root, source = isgp.best_root(line, isgp.make_prior(c=1.0, n_basis=32).kernel, 1.0)
    assert root > 0.99
    assert source > 0.99


def test_a_root_that_flips_comes_near_on_a_whole_period():
    """A square wave: (4 / pi) sum sin(m pi x) / m over odd m; the error of nu by quadrature."""
    n_basis = 8
    kernel = isgp.make_prior(c=1.0, n_basis=n_basis).kernel

    def f(x):
        return 4 / math.pi * sum(math.sin(m * math.pi * x) / m for m in range(1, 5, 2))

    gaps = [abs(quad(lambda z: f(z) ** 2 - 1, 0, x)[0]) for x in np.linspace(0, 1, 201)]
    assert isgp.flipped_root(line, kernel) == pytest.approx(max(gaps), rel=2e-3)


def test_the_flipped_root_error_falls_with_the_basis():
    errors = [
        isgp.flipped_root(line, isgp.make_prior(c=1.0, n_basis=n).kernel) for n in (8, 16, 32)
    ]
    assert errors[2] < 0.6 * errors[1] < 0.4 * errors[0]


# -------------------------------------------------------------------------------------- origins


def test_cumulants_against_samples():
    prior = isgp.make_prior(c=0.25, n_basis=8)
    matrix, shift = isgp.origin_quadratic(prior, 1.5, -1.0, "paths")
    w = drawn(prior, 200_000)[:, :-1]
    q = ((w @ matrix) * w).sum(dim=1).numpy()
    mean, sd, skewness = isgp.cumulants(prior, matrix)
    assert q.mean() == pytest.approx(mean, abs=4 * sd / math.sqrt(len(q)))
    assert q.std() == pytest.approx(sd, rel=0.02)
    assert ((q - mean) ** 3).mean() / sd**3 == pytest.approx(skewness, rel=0.1)
    assert mean + shift == pytest.approx(1.5)  # unbiased


def test_the_origin_forms_against_quadrature():
    prior = isgp.make_prior(c=0.3, n_basis=6)
    w = drawn(prior, 1)[0, :-1]
    f = plain_f(w.numpy(), 0.3)
    matrix, shift = isgp.origin_quadratic(prior, 0.8, -0.6, "paths")
    integral = quad(lambda z: f(z) ** 2, -0.6, 0.8, epsabs=1e-13)[0]
    assert float(w @ matrix @ w) + shift == pytest.approx(integral - 0.6, abs=1e-11)


@pytest.mark.parametrize("x", [0.0, 0.4, 2.0])
def test_the_shifted_form_has_the_same_law_but_not_the_same_paths(x):
    prior = isgp.make_prior(c=0.3, n_basis=6)
    (paths, one), (law, other) = (
        isgp.origin_quadratic(prior, x, -0.6, form) for form in ("paths", "law")
    )
    assert one == other
    assert isgp.cumulants(prior, paths) == pytest.approx(isgp.cumulants(prior, law))
    assert not torch.allclose(paths, law)


def test_the_printed_form_is_pinned_inside_the_domain():
    prior = isgp.make_prior(c=0.3, n_basis=6)
    matrix, shift = isgp.origin_quadratic(prior, 0.6, -0.6, "printed")
    assert float(matrix.abs().max()) == 0
    assert shift == pytest.approx(0.6)


def test_slope_table_keeps_the_order_of_the_bounds():
    table = isgp.slope_table((1.2, 8.0), n_basis=16, n_paths=500, seed=0)
    assert (table["log loss, median"] < table["sup f², median"]).all()
    assert (table["sup f², 95 %"] < 1.15 * table["Rice, 95 %"]).all()
    assert (table["Rice, 95 %"] < table["Lemma 6, 95 %"]).all()
    assert (table["tightest"] > 1).all()
