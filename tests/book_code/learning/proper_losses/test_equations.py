"""Tests of equations (1) and (2) as they are written: closed forms and brute force."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from bayesloss_book.learning.proper_losses.equations import bregman, margin_representation

X = torch.linspace(-4, 4, 17, dtype=torch.float64)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(x=st.floats(-5, 5), x0=st.floats(-5, 5))
def test_bregman_is_the_remainder_of_taylor(x, x0):
    """For G = exp: the integral of (x - t) exp(t) from x0 to x, in closed form."""
    expected = math.exp(x) - math.exp(x0) * (1 + x - x0)
    found = float(bregman(torch.exp, x, x0))
    assert found == pytest.approx(expected, abs=1e-11)
    assert found >= -1e-11


@pytest.mark.parametrize(
    ("margin", "inverse_link"),
    [
        (lambda z: torch.nn.functional.softplus(-z), expit),
        (lambda z: torch.exp(-z), lambda x: expit(2 * x)),
        (lambda z: torch.sigmoid(-z) ** 2, expit),  # Savage's: not convex
        (
            lambda z: (torch.hypot(z, torch.tensor(2.0)) - z) / 2,
            lambda x: (1 + x / np.hypot(x, 2)) / 2,
        ),
    ],
    ids=["logistic", "exponential", "Savage", "Matsushita"],
)
def test_known_pairs_of_margin_loss_and_link(margin, inverse_link):
    found, slope = margin_representation(margin, X)
    assert found.numpy() == pytest.approx(inverse_link(X.numpy()), rel=1e-9)
    assert (slope < 0).all()
    for pi in (0.2, 0.7):  # brute force: the risk is least where the link says
        x = torch.linspace(-6, 6, 120001, dtype=torch.float64)
        best = x[(pi * margin(x) + (1 - pi) * margin(-x)).argmin()]
        assert inverse_link(float(best)) == pytest.approx(pi, abs=1e-4)


def test_flat_margin_has_no_link():
    inverse_link, slope = margin_representation(lambda z: torch.relu(1 - z) ** 2 * 0, X)
    assert torch.isnan(inverse_link).all()
    assert (slope == 0).all()
