"""The log joint density of the labels of many classes and the parameters of their sources.

    p(k | z) = exp nu_k(x_k) / sum_j exp nu_j(x_j),

with independent priors of the sources, centred on nu(x) = x. Given the scores, and with
r_nk = w_n (y_nk - p_nk), J_k and nu_k'' the first two derivatives of nu_k(x_nk) in Gamma_k, it has

    gradient_k = J_k^T r_k - precision (Gamma_k - location),
    H_kl = J_k^T diag(w p_k (delta_kl - p_l)) J_l + delta_kl (precision - r_k . nu_k'').
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bayesloss.learning.inference.log_joint import LogDensity
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.learning.weights.coordinates import gram

_ROWS = 2048  # data in a block of the Hessian: a cache holds what it makes


class _Product(NamedTuple):
    location: Tensor
    precision: Tensor
    n_twins: int = 1


@dataclass(frozen=True)
class SoftmaxJoint(LogDensity):
    """The log joint density of labels (K, n) and the parameters of K sources, given the scores."""

    prior: _Product
    source: SourcePrior  # the prior of each
    features: tuple[Tensor, ...]
    labels: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls, prior: SourcePrior, level: Tensor, features: list, labels: Tensor, weight: Tensor
    ) -> "SoftmaxJoint":
        """From the prior of a source, the means of nu_0, the features of scores, and the labels."""
        K = len(labels)
        location = prior.location.repeat(K, 1)
        location[:, -1] = level
        return cls(
            prior=_Product(location.flatten(), prior.precision.repeat(K)),
            source=prior,
            features=tuple(features),
            labels=labels.to(weight.dtype),
            weight=weight,
        )

    def _log_p(self, Gamma: Tensor) -> Tensor:
        pairs = zip(self.features, Gamma.reshape(len(self.features), -1), strict=True)
        nu = torch.stack([Phi @ self.source.coefficients(G) for Phi, G in pairs])
        return nu - nu.logsumexp(0)

    def log_likelihood(self, Gamma: Tensor) -> Tensor:
        return ((self.labels * self._log_p(Gamma)).sum(0) * self.weight).sum()

    def derivatives(self, Gamma: Tensor) -> tuple[Tensor, Tensor]:
        p = self._log_p(Gamma).exp()
        residual = self.weight * (self.labels - p)
        parts = Gamma.reshape(len(self.features), -1)
        jacobians = [self.source.jacobian(G) for G in parts]
        pulls = [Phi.T @ r for Phi, r in zip(self.features, residual, strict=True)]
        bends = [self.source.curvature(pull) for pull in pulls]
        H = torch.diag(self.prior.precision) - torch.block_diag(*bends)
        for begin in range(0, len(self.weight), _ROWS):
            rows = slice(begin, begin + _ROWS)
            within = []  # classes, the delta_kl of H,
            across = []  # and over all pairs of them
            for Phi, J, chance in zip(self.features, jacobians, p[:, rows], strict=True):
                root = (self.weight[rows] * chance).sqrt()
                slopes = root[:, None] * (Phi[rows] @ J)
                within.append(slopes)
                across.append(chance.sqrt()[:, None] * slopes)
            H += torch.block_diag(*map(gram, within)) - gram(torch.cat(across, dim=1))
        pull = torch.cat([J.T @ s for J, s in zip(jacobians, pulls, strict=True)])
        return pull - self.prior.precision * (Gamma - self.prior.location), H
