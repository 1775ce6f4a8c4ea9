"""Small posteriors summed over a grid of all their parameters, for several files of tests."""

import math

import torch

from bayesloss import Gaussian


def on_a_grid(prior, likelihood, x, y, half=30, reach=6.0):
    """Log evidence and posterior mean of nu(x) over two weights and an intercept."""
    axis = torch.linspace(-reach, reach, 2 * half + 1, dtype=torch.float64)
    z = torch.cartesian_prod(axis, axis, axis)
    nu = prior.coefficients(prior.location + z / prior.precision.sqrt()) @ prior.features(x).T
    if isinstance(likelihood, Gaussian):
        misfit = (nu - y).square_().sum(dim=1)  # few arrays as large as nu: they take the time
        scale = math.log(likelihood.alpha / (2 * math.pi))
        fit = 0.5 * (len(y) * scale - likelihood.alpha * misfit)
    else:
        fit = torch.nn.functional.logsigmoid((2 * y - 1) * nu).sum(dim=1)
    log_mass = fit - 0.5 * (z**2 + math.log(2 * math.pi)).sum(dim=1)
    log_mass = log_mass + 3 * math.log(float(axis[1] - axis[0]))
    return float(torch.logsumexp(log_mass, 0)), torch.softmax(log_mass, 0) @ nu
