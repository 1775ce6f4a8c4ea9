"""The model a second time, in the textbook's form, for several files of tests."""

import numpy as np
import torch
from torch.distributions import Normal

from bayesloss import GP, TrigonometricKernel


def prior_of(kind, *, a=1.6, b=0.9, c=0.5, n_basis=6, mu=0.4, gamma=2.5):
    return kind(TrigonometricKernel(a=a, c=c, n_basis=n_basis, b=b), mu=mu, gamma=gamma)


def simulate(n=40, noise=0.2, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, n)
    y = np.tanh(2 * x) + noise * generator.normal(size=n)
    return torch.from_numpy(x), torch.from_numpy(y)


def nu_of(prior, x, Gamma):
    """Eqs. (8) and (9) for one Gamma, or many: (S, M + 1) to (S, n)."""
    w = Gamma[..., :-1]
    nu_0 = Gamma[..., -1:]
    if isinstance(prior, GP):
        return nu_0 + w @ prior.kernel.basis(x).T
    return nu_0 + torch.einsum("...i,nij,...j->...n", w, prior.kernel.psi(x), w)


def log_joint(prior, alpha, x, y, Gamma):
    """log p(D | nu) + log p(Gamma), datum by datum, all constants included."""
    kernel = prior.kernel
    fit = Normal(nu_of(prior, x, Gamma), alpha**-0.5).log_prob(y).sum(dim=-1)
    w = Normal(0.0, kernel.eigenvalues.sqrt()).log_prob(Gamma[..., :-1]).sum(dim=-1)
    return fit + w + Normal(prior.mu, prior.gamma**-0.5).log_prob(Gamma[..., -1])
