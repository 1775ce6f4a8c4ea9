"""The toys of the page on GP classification: the truth that others are compared with."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad
from scipy.special import ndtr

from bayesloss_book.calibrating import gp_classification as toys


def test_brute_force_is_an_integral():
    """Against SciPy's adaptive quadrature over f, with the kernel matrix written out."""
    prior, y = toys.small_problem("+ - far apart", 1.0)
    K = (prior.features[0] @ prior.features[0].mT).numpy()
    inverse = np.linalg.inv(K)
    norm = 2 * math.pi * np.linalg.det(K) ** 0.5
    labels = y[0].numpy()

    def joint(b, a, power=0):
        f = np.array([a, b])
        return a**power * math.exp(-0.5 * f @ inverse @ f) / norm * ndtr(labels * f).prod()

    evidence = dblquad(joint, -7, 7, -7, 7, epsabs=1e-9)[0]
    first = dblquad(lambda b, a: joint(b, a, 1), -7, 7, -7, 7, epsabs=1e-9)[0] / evidence
    mean, covariance, log_evidence = toys.brute_force(prior.features[0], y[0])
    assert log_evidence == pytest.approx(math.log(evidence), abs=1e-6)
    assert float(prior.features[0, 0] @ mean) == pytest.approx(first, abs=1e-6)
    assert (torch.linalg.eigvalsh(covariance) > 0).all()


def test_divergences_know_their_minimisers():
    """Nobody is below the minimisers, and no divergence is negative."""
    table = toys.divergences(amplitude=2.0)
    assert (table > 0).all().all()
    # BFGS stops at 1e-5 in its parameters, which is 1e-8 in the divergence.
    assert table["KL(p||q)"].idxmin() == "least KL(p||q)"
    assert (table["KL(q||p)"] >= table.loc["least KL(q||p)", "KL(q||p)"] - 1e-7).all()
