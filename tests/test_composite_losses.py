"""Composite losses against root finding, brute force, and known pairs of margin loss and link."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit

from bayesloss.composite_losses import CompositeLoss
from bayesloss.proper_losses import LogLoss, MatsushitaLoss, SkewedLogLoss, SquareLoss

LOSSES = [LogLoss(), MatsushitaLoss(), SkewedLogLoss(3)]
PROBABILITIES = np.array([0.02, 0.3, 0.5, 0.81, 0.97])

each_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def bumpy(x, start=0.5, slope=1.0, bump=0.8):
    """A source that is not odd: strictly increasing while |bump| < slope."""
    return start + slope * x + bump * torch.sin(x)


def roots_of_bumpy(values):
    """Where that source has these values, by SciPy's root finder."""
    return [
        brentq(lambda x, a=a: 0.5 + x + 0.8 * math.sin(x) - a, -100, 100, xtol=1e-13)
        for a in values
    ]


@each_loss
def test_link_and_inverse_link_by_root_finding(loss):
    """Equations (3) and (4), with SciPy's root finder on the source in plain Python."""
    composite = CompositeLoss(loss, bumpy)
    expected = roots_of_bumpy(loss.canonical_link(PROBABILITIES).tolist())
    assert composite.link(PROBABILITIES).numpy() == pytest.approx(expected, abs=1e-11)
    assert composite.inverse_link(expected).numpy() == pytest.approx(PROBABILITIES, abs=1e-11)


@each_loss
@pytest.mark.parametrize("y", [-1, 1])
def test_composite_loss_is_the_loss_of_the_probability(loss, y):
    """Equation (5) against ``loss(y, u)`` at u = chi^{-1}(x)."""
    x = torch.linspace(-3, 3, 13, dtype=torch.float64)
    composite = CompositeLoss(loss, bumpy)
    expected = loss.loss(y, composite.inverse_link(x))
    assert composite.loss(y, x).numpy() == pytest.approx(expected.numpy(), rel=1e-10)


@pytest.mark.parametrize("loss", [*LOSSES, SquareLoss()], ids=repr)
@pytest.mark.parametrize("pi", [0.05, 0.4, 0.9])
def test_composite_loss_is_proper(loss, pi):
    """Also with a source onto all real numbers where the link, the square loss's, is bounded."""
    composite = CompositeLoss(loss, bumpy)
    best = minimize_scalar(
        lambda x: float(pi * composite.loss(1, x) + (1 - pi) * composite.loss(-1, x)),
        bounds=(-10, 10),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert best.fun == pytest.approx(float(loss.bayes_risk(pi)), abs=1e-9)
    assert float(composite.inverse_link(best.x)) == pytest.approx(pi, abs=1e-5)


def test_margin_loss_takes_the_inverse_of_the_source():
    """Theorem 2 (ii), with SciPy's root finder; equation (6)'s margin loss for an odd source."""
    z = np.array([-4.0, -0.3, 0.0, 1.7, 6.0])
    composite = CompositeLoss(LogLoss(), bumpy)
    found = composite.margin_loss(torch.exp, z)
    assert found.numpy() == pytest.approx(np.exp(roots_of_bumpy(z)), rel=1e-11)

    odd = CompositeLoss(LogLoss(), lambda x: bumpy(x, start=0.0))
    x = torch.linspace(-3, 3, 13, dtype=torch.float64)
    of_margin = odd.margin_loss(lambda m: odd.loss(1, m), bumpy(x, start=0.0))
    assert of_margin.numpy() == pytest.approx(odd.loss(1, x).numpy(), rel=1e-10)


def test_bounded_source_leaves_probabilities_out():
    """A source is differentiable and increasing; arctan is one, and reaches 0.83 at most."""
    composite = CompositeLoss(LogLoss(), torch.arctan)
    x = torch.linspace(-1e6, 1e6, 200001, dtype=torch.float64)
    risk = 0.95 * composite.loss(1, x) + 0.05 * composite.loss(-1, x)
    q = expit(math.pi / 2)
    infimum = -0.95 * math.log(q) - 0.05 * math.log(1 - q)
    assert float(risk.min()) >= infimum - 1e-12
    assert infimum > float(LogLoss().bayes_risk(0.95)) + 0.05
    with pytest.raises(ValueError, match=r"expected values that the source takes, got 2\.94"):
        composite.link(0.95)


def test_inverse_source_at_the_limits():
    composite = CompositeLoss(LogLoss(), lambda x: 1e-3 * x + x**3)
    assert composite.link([0.0, 1.0]).tolist() == [-math.inf, math.inf]
    assert float(composite.inverse_source(0.0)) == pytest.approx(0, abs=1e-12)
    assert float(composite.inverse_source(1e9)) == pytest.approx(1e3, rel=1e-6)
    assert composite.inverse_source(torch.zeros(2, 3)).shape == (2, 3)


def test_bad_loss_is_refused():
    with pytest.raises(ValueError, match="expected a ProperLoss, got str"):
        CompositeLoss("log", bumpy)
