"""The log joint density of data and the parameters Gamma of a source (W&N section 4.1).

    log p(D, Gamma) = log p(D | nu) + log N(Gamma; location, 1/precision).

nu is linear in fixed features of x, so every step works on condensed data: O(M^3) with a Gaussian
likelihood, however many data there are. Laplace's covariance and evidence at a mode are here, too
(appendix D).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.inference.likelihoods import Likelihood, Observations
from bayesloss.learning.sources.priors import SourcePrior

Scalar = Float[Tensor, ""]
Vector = Float[Tensor, " D"]  # of the parameters
Matrix = Float[Tensor, "D D"]


class NormalPrior(Protocol):
    """What a density asks of a prior: independent normal parameters."""

    @property
    def n_twins(self) -> int:
        """How many values of w give the same source: 2 where w and -w do."""

    @property
    def location(self) -> Vector:
        """The means."""

    @property
    def precision(self) -> Vector:
        """The inverse variances."""


class LogDensity(ABC):
    """A log joint density log p(D, Gamma) as a function of Gamma, with its derivatives."""

    prior: NormalPrior

    @abstractmethod
    def log_likelihood(self, Gamma: Vector) -> Scalar:
        """The log density log p(D | Gamma)."""

    @abstractmethod
    def derivatives(self, Gamma: Vector) -> tuple[Vector, Matrix]:
        """The gradient, and the matrix H of eq. (11): minus the second derivative."""

    def __call__(self, Gamma: Vector) -> Scalar:
        """The log density, all constants included."""
        precision = self.prior.precision
        log_prior = torch.log(precision / (2 * math.pi))
        log_prior = log_prior - precision * (Gamma - self.prior.location) ** 2  # definition 2
        return self.log_likelihood(Gamma) + 0.5 * log_prior.sum()

    def hessian(self, Gamma: Vector) -> Matrix:
        """The matrix H of eq. (11): minus the second derivative."""
        return self.derivatives(Gamma)[1]

    def curvature(self, Gamma: Vector) -> Matrix:
        """The Hessian in units of the prior's standard deviations; the prior alone gives 1."""
        scale = self.prior.precision.rsqrt()
        return scale[:, None] * self.hessian(Gamma) * scale

    def root(self, Gamma: Vector, curvature: Matrix | None = None) -> Matrix:
        """A matrix R with R R^T = H^-1, from the curvature: H may be ill-conditioned."""
        factor = torch.linalg.cholesky(self.curvature(Gamma) if curvature is None else curvature)
        identity = torch.eye(len(Gamma), dtype=Gamma.dtype, device=Gamma.device)
        inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
        return self.prior.precision.rsqrt()[:, None] * inverse.T

    def log_evidence(self, Gamma: Vector, curvature: Matrix | None = None) -> Scalar:
        """Laplace's log p(D) with the mode at Gamma (appendix D), all constants included."""
        curvature = self.curvature(Gamma) if curvature is None else curvature
        log_det = torch.logdet(curvature) + torch.log(self.prior.precision / (2 * math.pi)).sum()
        return self(Gamma) - 0.5 * log_det + self.twin_share(Gamma, curvature)  # appendix D

    def twin_share(self, Gamma: Vector, curvature: Matrix) -> Scalar:
        """What the mode at -w adds to the entropy of q: log 2, less where the two overlap.

        By a bound of Kolchinsky and Tracey (2017); S^-1 of w is the Schur complement of nu_0.
        """
        if self.prior.n_twins == 1:
            return Gamma.new_zeros(())
        w = Gamma[:-1] * self.prior.precision[:-1].sqrt()
        cross, corner = curvature[:-1, -1], curvature[-1, -1]
        distance = 0.5 * (w @ curvature[:-1, :-1] @ w - (w @ cross) ** 2 / corner)
        return math.log(2) - torch.nn.functional.softplus(-distance)  # Kolchinsky and Tracey (2017)


@dataclass(frozen=True)
class LogJoint(LogDensity):
    """The log joint density of data that a source and a likelihood explain."""

    prior: SourcePrior
    likelihood: Likelihood
    data: Observations

    def log_likelihood(self, Gamma: Vector) -> Scalar:
        """The log density log p(D | Gamma)."""
        nu = self.data.features @ self.prior.coefficients(Gamma)
        return self.likelihood.log_density(nu, self.data)

    def derivatives(self, Gamma: Vector) -> tuple[Vector, Matrix]:
        """The gradient and H, eq. (11), by the chain rule through nu = features u(Gamma)."""
        nu = self.data.features @ self.prior.coefficients(Gamma)
        first, second = self.likelihood.derivatives(nu, self.data)
        jacobian, pull = self.prior.jacobian(Gamma), self.data.features.T @ first
        slopes, bend = self.data.features @ jacobian, self.prior.curvature(pull)
        precision = self.prior.precision
        gradient = jacobian.T @ pull - precision * (Gamma - self.prior.location)
        # eq. (11)
        return gradient, torch.diag(precision) - slopes.T @ (second[:, None] * slopes) - bend

    def evidence_bound(self, Gamma: Vector) -> Scalar:
        """The evidence lower bound in nats of Laplace's Gaussian with its twin; NaN if unknown."""
        prior, curvature = self.prior, self.curvature(Gamma)
        root = self.root(Gamma, curvature)
        mean = self.data.features @ prior.mean_coefficients(Gamma, root)
        variance = prior.variances(Gamma, root, self.data.features)
        fit = self.likelihood.expected_log_density(mean, variance, self.data)
        if fit is None:
            return Gamma.new_tensor(math.nan)
        # The divergence of q from the prior, in units of the prior's standard deviations.
        spread = prior.precision * ((Gamma - prior.location) ** 2 + (root**2).sum(dim=1))
        divergence = 0.5 * ((spread - 1).sum() + torch.logdet(curvature))
        return fit - divergence + self.twin_share(Gamma, curvature)
