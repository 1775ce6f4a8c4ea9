"""The losses against textbook formulas, numerical infima, derivatives and integrals."""

import decimal
import math

import mpmath
import numpy as np
import pandas as pd
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from bayesloss.composite_losses import CompositeLoss
from bayesloss.proper_losses import LogLoss, MatsushitaLoss, SkewedLogLoss, SquareLoss

LOSSES = [LogLoss(), SquareLoss(), MatsushitaLoss(), SkewedLogLoss(2), SkewedLogLoss(5)]
INSIDE = np.array([1e-6, 0.01, 0.2, 0.5, 0.73, 0.99, 1 - 1e-6])

each_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)
many = settings(max_examples=100, derandomize=True, deadline=None)
some_loss = st.sampled_from(LOSSES)
probability = st.floats(0, 1)
inner = st.floats(1e-9, 1 - 1e-9)
score = st.floats(-50, 50)


def textbook(loss, y, u):
    """The losses as one writes them down, without care for rounding, in plain Python."""
    hit = u if y == 1 else 1 - u
    if isinstance(loss, LogLoss):
        return -math.log(hit)
    if isinstance(loss, SquareLoss):
        return (1 - hit) ** 2
    if isinstance(loss, MatsushitaLoss):
        return math.sqrt((1 - hit) / hit)
    # Schervish: the weight's integral; the weight from the slope of sigmoid(a + H)^k.
    k = loss.power
    if y == 1:
        return quad(lambda c: (1 - c) / (k * c * (1 - c ** (1 / k))), u, 1, epsabs=1e-13)[0]
    return quad(lambda c: 1 / (k * (1 - c ** (1 / k))), 0, u, epsabs=1e-13)[0]


@each_loss
@pytest.mark.parametrize("y", [-1, 1])
def test_loss_is_the_textbook_loss(loss, y):
    u = INSIDE[1:-1]
    expected = [textbook(loss, y, value) for value in u]
    assert loss.loss(y, u).numpy() == pytest.approx(expected, rel=1e-10)


@each_loss
@pytest.mark.parametrize("pi", [0.003, 0.4, 0.77, 0.99])
def test_bayes_risk_is_the_infimum(loss, pi):
    def risk(u):
        return pi * textbook(loss, 1, u) + (1 - pi) * textbook(loss, -1, u)

    best = minimize_scalar(risk, bounds=(1e-9, 1 - 1e-9), method="bounded", options={"xatol": 1e-9})
    assert float(loss.bayes_risk(pi)) == pytest.approx(best.fun, abs=1e-8)
    assert abs(best.x - pi) < 1e-4


@each_loss
def test_link_and_weight_are_derivatives(loss):
    u = torch.tensor(INSIDE[1:-1], requires_grad=True)
    (slope,) = torch.autograd.grad(loss.bayes_risk(u).sum(), u, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), u)
    assert loss.canonical_link(u).detach().numpy() == pytest.approx(-slope.detach().numpy())
    assert loss.weight(u).detach().numpy() == pytest.approx(-curvature.numpy(), rel=1e-9)


@each_loss
def test_link_and_its_inverse(loss):
    u = torch.tensor(INSIDE)
    assert loss.inverse_canonical_link(loss.canonical_link(u)).numpy() == pytest.approx(
        INSIDE, rel=1e-12
    )
    low, high = loss.link_range
    assert loss.canonical_link([0.0, 1.0]).tolist() == [low, high]


@each_loss
def test_conjugate_is_the_supremum(loss):
    for a in (-30.0, -3.0, -1.0, 0.4, 1.0, 2.0, 30.0):
        best = minimize_scalar(
            lambda u, a=a: -float(a * u + loss.bayes_risk(u)),
            bounds=(0, 1),
            method="bounded",
            options={"xatol": 1e-13},
        )
        assert float(loss.conjugate(a)) == pytest.approx(max(-best.fun, max(0.0, a)), abs=1e-9)


@each_loss
def test_conjugate_is_the_integral_of_the_inverse_link(loss):
    for a in (-4.0, -0.5, 1.5):
        value, _ = quad(
            lambda t: float(loss.inverse_canonical_link(t)), -math.inf, a, epsabs=1e-12, limit=200
        )
        rest, _ = quad(
            lambda t: 1 - float(loss.inverse_canonical_link(t)),
            a,
            math.inf,
            epsabs=1e-12,
            limit=200,
        )
        assert float(loss.canonical_loss(-1, a)) == pytest.approx(value, abs=1e-9)
        assert float(loss.canonical_loss(1, a)) == pytest.approx(rest, abs=1e-9)


@each_loss
def test_normalised_and_the_inverse_link_has_mean_zero(loss):
    """L(0) = L(1) = 0 says that the distribution function (-L')^{-1} has mean zero."""
    assert loss.bayes_risk([0.0, 1.0]).tolist() == [0, 0]
    mean, _ = quad(lambda u: float(loss.canonical_link(u)), 0, 1, epsabs=1e-10, limit=200)
    assert mean == pytest.approx(0, abs=1e-8)


def test_skewed_loss_with_power_one_is_the_log_loss():
    a = torch.linspace(-40, 40, 81, dtype=torch.float64)
    for y in (-1, 1):
        skewed, log = (loss.canonical_loss(y, a) for loss in (SkewedLogLoss(1), LogLoss()))
        assert skewed.numpy() == pytest.approx(log.numpy(), rel=1e-10)


@each_loss
def test_limits(loss):
    """At 0 and 1 and at infinite scores: values, never nan."""
    inf = math.inf
    assert loss.loss([1, -1], [1.0, 0.0]).tolist() == [0, 0]
    worst = 1.0 if isinstance(loss, SquareLoss) else inf
    assert loss.loss([1, -1], [0.0, 1.0]).tolist() == [worst, worst]
    assert loss.inverse_canonical_link([-inf, inf]).tolist() == [0, 1]
    assert loss.canonical_loss([1, -1], [inf, -inf]).tolist() == [0, 0]
    assert loss.canonical_loss([1, -1], [-inf, inf]).tolist() == [inf, inf]
    assert loss.conjugate([-inf, inf]).tolist() == [0, inf]
    assert (loss.weight([0.0, 1.0]) > 0).all()
    assert float(loss.divergence(1.0, 1.0)) == float(loss.dual_divergence(inf, inf)) == 0
    far = loss.canonical_loss([1, -1], [1e3, -1e3])
    assert ((far >= 0) & (far <= 1e-2)).all()


@each_loss
def test_small_tails_do_not_cancel(loss):
    """The loss of a nearly certain, right prediction, against the integral of the tail."""
    a = float(loss.canonical_link(1e-4))
    tail, _ = quad(lambda t: float(loss.inverse_canonical_link(t)), loss.link_range[0], a, epsabs=0)
    assert float(loss.canonical_loss(-1, a)) == pytest.approx(tail, rel=1e-7, abs=0)


@pytest.mark.parametrize("power", [2, 3, 5])
def test_skewed_loss_of_tiny_probabilities(power):
    """Against the formula in 80 decimal digits, where it may cancel."""
    with decimal.localcontext(prec=80):
        s = decimal.Decimal("1e-8")
        exact = -(1 - s).ln() - sum(s**j / j for j in range(1, power))
        u = s**power
    assert float(SkewedLogLoss(power).loss(-1, float(u))) == pytest.approx(
        float(exact), rel=1e-12, abs=0
    )


def test_log_loss_of_large_scores_keeps_its_digits():
    """Where a softplus with a threshold would be linear already."""
    loss = float(LogLoss().canonical_loss(-1, 20.5))
    assert loss - 20.5 == pytest.approx(math.exp(-20.5), abs=1e-14)


def bregman(generator, x, x0):
    """G(x) - G(x0) - (x - x0) G'(x0)."""
    slope = torch.autograd.functional.jacobian(generator, x0).diagonal()
    return generator(x) - generator(x0) - (x - x0) * slope


@each_loss
@pytest.mark.parametrize("y", [-1, 1])
def test_both_forms_of_equation_1(loss, y):
    """Each divergence from its definition, the generator differentiated automatically."""
    u = torch.tensor([0.05, 0.3, 0.6, 0.9], dtype=torch.float64)
    label = torch.full_like(u, (y + 1) / 2)
    a = loss.canonical_link(u)
    # -L'(y*) is infinite for most; the limit, from near.
    near = loss.canonical_link(abs(label - 1e-13))
    first = bregman(lambda p: -loss.bayes_risk(p), label, u)
    second = bregman(loss.conjugate, a, near)
    expected = [textbook(loss, y, float(value)) for value in u]
    assert first.numpy() == pytest.approx(expected, rel=1e-9)
    # For Matsushita's loss the limit is approached as the square root of the distance.
    assert second.numpy() == pytest.approx(expected, rel=1e-4)
    limit = loss.dual_divergence(a, loss.canonical_link(label))
    assert limit.numpy() == pytest.approx(expected, rel=1e-9)
    assert loss.divergence(label, u).numpy() == pytest.approx(expected, rel=1e-9)


@many
@given(loss=some_loss, p=inner, u=inner)
def test_dual_divergences_agree(loss, p, u):
    """D_{-L}(p || u) = D_{(-L)*}(-L'(u) || -L'(p)), and neither is negative."""
    first = float(loss.divergence(p, u))
    second = float(loss.dual_divergence(*(loss.canonical_link(v) for v in (u, p))))
    scale = 1 + abs(float(loss.canonical_link(u))) + float(loss.weight(u)) * 1e-3
    assert first == pytest.approx(second, abs=1e-11 * scale)
    assert min(first, second) >= -1e-11 * scale


@pytest.mark.parametrize("bad", [-0.1, 1.5, math.nan])
def test_bad_probabilities_are_refused(bad):
    for call in (LogLoss().canonical_link, LogLoss().bayes_risk, LogLoss().weight):
        with pytest.raises(ValueError, match=r"expected probabilities in \[0, 1\], got"):
            call([0.5, bad])


def test_other_bad_input_is_refused():
    with pytest.raises(ValueError, match="expected labels -1 and 1, got 0"):
        LogLoss().loss([0, 1], 0.5)
    with pytest.raises(ValueError, match="expected scores, finite or infinite, got nan"):
        LogLoss().conjugate(math.nan)
    for power in (0, 1.5, -1):
        with pytest.raises(ValueError, match="expected an integer power of at least 1, got"):
            SkewedLogLoss(power)


@each_loss
def test_gradients_are_finite_inside(loss):
    a = torch.tensor([-30.0, -0.5, 0.0, 0.7, 30.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss.canonical_loss(torch.ones(5), a).sum(), a)
    expected = loss.inverse_canonical_link(a).detach() - 1  # the slope of (1) is u - y*
    assert slope.numpy() == pytest.approx(expected.numpy(), abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES[:3], ids=repr)
def test_gradients_lean_on_no_convention(loss, monkeypatch):
    """At the ends of the square loss's link, and at 0, where formulas change branches.

    PyTorch's versions differ in the gradient of clamp at its bound; here it is 0, as in the newest,
    and would show. Link and conjugate are smooth at these scores, so central differences hold.
    """

    def clamp(x, min=-math.inf, max=math.inf):
        return torch.where((x > min) & (x < max), x, x.detach().clip(min, max))

    monkeypatch.setattr(torch.Tensor, "clamp", clamp)
    points = [-1.0, 0.0, 1.0]
    h = 1e-6
    if isinstance(loss, SquareLoss):  # whose link has kinks at its ends, unlike its conjugate
        functions = {loss.conjugate: points, loss.inverse_canonical_link: [0.0]}
    else:
        functions = dict.fromkeys([loss.conjugate, loss.inverse_canonical_link], points)
    for function, where in functions.items():
        a = torch.tensor(where, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(function(a).sum(), a)
        expected = (function(a.detach() + h) - function(a.detach() - h)) / (2 * h)
        # A jump of the second derivative, at most 1/2, leaves h / 8; a wrong branch 1/8 at least.
        assert slope.numpy() == pytest.approx(expected.numpy(), abs=1e-6)


class TestLogProbabilities:
    """Against forty digits: in the tails, where 1 - u is lost in floating point."""

    LINKS = (
        (LogLoss(), lambda a: 1 / (1 + mpmath.exp(-a))),
        (MatsushitaLoss(), lambda a: (1 + a / mpmath.sqrt(4 + a * a)) / 2),
        (SkewedLogLoss(3), lambda a: (1 / (1 + mpmath.exp(-a - 1.5))) ** 3),
    )

    @pytest.mark.parametrize(("loss", "link"), LINKS, ids=[repr(loss) for loss, _ in LINKS])
    @pytest.mark.parametrize("a", [-40.0, -7.3, -0.6, 0.0, 0.4, 3.0, 20.0, 40.0])
    def test_values_and_derivatives(self, loss, link, a):
        with mpmath.workdps(80):
            functions = (lambda t: mpmath.log(1 - link(t)), lambda t: mpmath.log(link(t)))
            for order, values in enumerate(loss.log_probabilities(a)):
                for value, function in zip(values.tolist(), functions, strict=True):
                    truth = mpmath.diff(function, mpmath.mpf(a), order, h=mpmath.mpf(10) ** -20)
                    assert value == pytest.approx(float(truth), rel=1e-11)

    @pytest.mark.parametrize("a", [0.0, 1e-300, 0.3, 1e8, 1e103, 1e160, 1e308, 1.79e308])
    def test_matsushita_at_every_finite_score(self, a):
        """Against the symbolic derivatives of the plain formula, in digits enough to cancel."""
        t = sympy.Symbol("t")
        link = (1 + t / sympy.sqrt(4 + t**2)) / 2
        orders = [sympy.log(link).diff(t, order) for order in range(3)]
        with mpmath.workdps(1400):  # the tail of 1e308 is 1e-616, and the squares of both
            exact = [sympy.lambdify(t, order, "mpmath") for order in orders]
            truth = [(f(mpmath.mpf(-a)), f(mpmath.mpf(a))) for f in exact]
            truth = [[float(low), float(high)] for low, high in truth]
        found = [
            *MatsushitaLoss().log_likelihood(1, [-a, a]),
            MatsushitaLoss().log_probabilities([-a, a])[2][1],
        ]
        for values, expected in zip(found, truth, strict=True):
            # Below 1e-308 floats have fewer and fewer digits, and then none.
            assert values.tolist() == pytest.approx(expected, rel=1e-13, abs=1e-320)
        assert all(math.isfinite(value) for values in found for value in values)

    @pytest.mark.parametrize("loss", [loss for loss, _ in LINKS], ids=repr)
    @pytest.mark.parametrize("a", [-40.0, -0.6, 0.0, 20.0])
    def test_of_one_label_each(self, loss, a):
        (zero, one), (zero_slope, one_slope), _ = loss.log_probabilities(a)
        value, slope = loss.log_likelihood([-1, 1, 1, -1], [a] * 4)
        assert value.tolist() == [zero, one, one, zero]
        assert slope.tolist() == [zero_slope, one_slope, one_slope, zero_slope]

    def test_bounded_links_have_none(self):
        with pytest.raises(ValueError, match=r"all real numbers, got SquareLoss\(\)"):
            SquareLoss().log_probabilities(0.3)
        with pytest.raises(ValueError, match=r"all real numbers, got SquareLoss\(\)"):
            SquareLoss().log_likelihood(1, 0.3)

    def test_labels_are_checked(self):
        with pytest.raises(ValueError, match="expected labels -1 and 1, got 0.0"):
            LogLoss().log_likelihood([1, 0], [0.0, 0.0])


def test_arrays_of_any_layout():
    u = np.array([0.1, 0.5, 0.8])
    expected = LogLoss().loss(1, u.tolist())
    assert LogLoss().loss(1, u[::-1]).flip(0).equal(expected)
    assert LogLoss().loss(1, pd.Series(u, index=[7, 8, 9])).equal(expected)
    assert CompositeLoss(LogLoss(), lambda x: x).link(u[::-1]).shape == (3,)
