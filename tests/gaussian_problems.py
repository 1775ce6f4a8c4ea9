"""Small priors of each kind, data for them, and a Gaussian of no particular form."""

import numpy as np
import torch

from bayesloss import GP, ISGP, NystromBasis, SquaredExponential, TrigonometricKernel
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.sources.priors import CentredISGP

KERNEL = TrigonometricKernel(a=1.5, c=0.25, n_basis=6)
PRIORS = {
    "isgp": ISGP(KERNEL, mu=0.2, gamma=0.7),
    "centred": CentredISGP(KERNEL.scaled(0.4), tau=0.5),
    "gp": GP(KERNEL, gamma=0.7),
    "nystrom": ISGP(NystromBasis(SquaredExponential(a=0.7), torch.linspace(-1, 1, 5).double())),
}


def simulate(n=30, seed=0, noise=0.4):
    generator = np.random.default_rng(seed)
    x = torch.from_numpy(generator.uniform(-1, 1, n))
    return x, torch.tanh(2 * x) + noise * torch.from_numpy(generator.normal(size=n))


def labels(n=30, seed=0):
    generator = np.random.default_rng(seed)
    x = torch.from_numpy(generator.uniform(-1, 1, n))
    up = generator.uniform(size=n) < 1 / (1 + np.exp(-3 * x.numpy()))
    return x, torch.from_numpy(up.astype(float))


def joint_of(prior, likelihood, x, y):
    return LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))


def any_gaussian(prior, seed=0):
    """A mean, and S^-1 in units of the prior's precision, of no particular form."""
    generator = torch.Generator().manual_seed(seed)
    size = len(prior.location)
    noise = torch.randn((size, size), dtype=torch.float64, generator=generator)
    precision = torch.eye(size, dtype=torch.float64) + 0.4 * noise @ noise.T
    return prior.sample(1, generator)[0], precision
