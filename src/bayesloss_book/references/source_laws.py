"""The exact law of nu(x) under the library's posteriors, and Pr[nu(x) <= v] by Imhof (1961)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.evidence.mixtures import PosteriorMixture
from bayesloss.learning.evidence.source_law import SourceLaw, functionals
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.quadrature import gauss_legendre

_END = 40.0  # of the integral, in units of 1 / sd(nu)
_NODES = 200


def law_at(posterior: Posterior, x: Float[Tensor, " n"]) -> SourceLaw:
    """The law of nu(x) under a Gaussian posterior."""
    prior = posterior.prior
    root = posterior.root
    V = posterior.prior.quadratic_form()[0]
    joint = LogJoint.of(prior, posterior.likelihood, x, torch.ones_like(x))
    turned = root.T @ functionals(V, joint.squares, prior.precision)
    g = joint.slopes(posterior.mode) @ root
    return SourceLaw.of(posterior.moments(x), g, joint.squares, V @ root, turned)


def below(law: SourceLaw, v: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Pr[nu <= v] = 1/2 - (1 / pi) int_0^inf Im(e^(-i t v) phi(t)) / t dt."""
    sd = law.variance.sqrt()[:, None]
    half = math.asinh(_END) / 2
    nodes, shares = gauss_legendre(_NODES)
    u = (nodes + 1) * half
    s = 1j * torch.sinh(u) / sd
    lam = law.eigenvalues[:, None]
    g = law.slopes[:, None]
    at = s[..., None]
    rest = (law.variance - (law.slopes**2 + 2 * law.eigenvalues**2).sum(dim=1)).clamp_min(0)
    left = 1 - 2 * at * lam
    terms = -0.5 * left.log() - at * lam + 0.5 * (at * g) ** 2 / left
    log_phi = terms.sum(dim=-1) + rest[:, None] * s**2 / 2 + s * (law.mean - v)[:, None]
    # dt / t, with t = sinh(u) / sd.
    return 0.5 - log_phi.exp().imag @ (shares * half / torch.tanh(u)) / math.pi


class MixtureLaw:
    """The law of nu(x) under an average of posteriors, within the period of their kernel."""

    def __init__(self, mixture: PosteriorMixture, x: Float[Tensor, " n"]) -> None:
        self.weights = mixture.weights
        self.laws = [law_at(part, x) for part in mixture.components]

    def mean_probability(self) -> Float[Tensor, " n"]:
        """E sigma(nu(x)), as (log sigma)' = 1 - sigma."""
        parts = [1 - law.expected_log_sigmoid().by_mean for law in self.laws]
        return self.weights @ torch.stack(parts)

    def below(self, v: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Pr[nu(x) <= v]."""
        return self.weights @ torch.stack([below(law, v) for law in self.laws])
