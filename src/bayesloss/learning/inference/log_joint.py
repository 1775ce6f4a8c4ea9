"""The log joint density of data and the parameters Gamma of a source (W&N section 4.1).

    log p(D, Gamma) = log p(D | nu) + log N(Gamma; location, 1/precision).

nu is linear in features of x, so every step works on condensed data: O(M^3) with Gaussian noise.
Laplace's covariance and evidence at a mode are here, too (appendix D).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.inference.likelihoods import Likelihood, Observations, normal_average
from bayesloss.learning.sources.priors import SourcePrior

Scalar = Float[Tensor, ""]
Rows = Float[Tensor, " n"]
Vector = Float[Tensor, " D"]  # of the parameters
Matrix = Float[Tensor, "D D"]

_NODES = 20  # of Gauss and Hermite's rule for each normal nu


class LogDensity(ABC):
    """A log joint density log p(D, Gamma) of Gamma, with its derivatives."""

    prior: Any  # independent normal parameters, with location, precision and n_twins

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

    def root(self, curvature: Matrix) -> Matrix:
        """A triangular R with R R^T = H^-1, from the curvature: H may be ill-conditioned."""
        factor = torch.linalg.cholesky(curvature)
        unit = torch.eye(len(curvature)).to(curvature)
        inverse = torch.linalg.solve_triangular(factor, unit, upper=False)
        return self.prior.precision.rsqrt()[:, None] * inverse.T

    def divergence(self, m: Vector, root: Matrix) -> Scalar:
        """KL(q || prior) of q = N(m, root root^T), the root triangular."""
        precision = self.prior.precision
        second_moments = precision * ((m - self.prior.location) ** 2 + (root**2).sum(dim=1))
        return 0.5 * (second_moments - 1).sum() - (precision.sqrt() * root.diagonal()).log().sum()

    def log_evidence(self, Gamma: Vector, curvature: Matrix | None = None) -> Scalar:
        """Laplace's log p(D) with the mode at Gamma, as derived in book/learning/laplace.

        It is appendix D's with (D / 2) log 2 pi and the twin, which the print lacks.
        """
        if curvature is None:
            curvature = self.curvature(Gamma)
        log_det = torch.logdet(curvature) + torch.log(self.prior.precision / (2 * math.pi)).sum()
        return self(Gamma) - 0.5 * log_det + self.twin_bound(Gamma, curvature)  # appendix D

    def twin_bound(self, Gamma: Vector, curvature: Matrix) -> Scalar:
        """A lower bound on what the mode at -w adds to the entropy of q, at most log 2.

        The entropy of an equal mixture of N(w, S_ww) and N(-w, S_ww) exceeds that of one by at
        least log 2 - log(1 + exp(-d)), with d = w^T S_ww^-1 w / 2 the Bhattacharyya distance of the
        two: Kolchinsky and Tracey (2017), *Estimating mixture entropy with pairwise distances*.
        T(delta) of ``gaussian_bound``, delta = 2 d, is nearer, but needs quadrature.
        """
        if self.prior.n_twins == 1:
            return Gamma.new_zeros(())
        # S_ww^-1 is the Schur complement of nu_0 in S^-1.
        w = Gamma[:-1] * self.prior.precision[:-1].sqrt()
        cross = curvature[:-1, -1]
        corner = curvature[-1, -1]
        distance = 0.5 * (w @ curvature[:-1, :-1] @ w - (w @ cross) ** 2 / corner)
        return math.log(2) - torch.nn.functional.softplus(-distance)


@dataclass(frozen=True)
class LogJoint(LogDensity):
    """The log joint density of data that a source and a likelihood explain."""

    prior: SourcePrior
    likelihood: Likelihood
    data: Observations

    @classmethod
    def of(
        cls,
        prior: SourcePrior,
        likelihood: Likelihood,
        x: Tensor,
        y: Tensor,
        sample_weight: Tensor | None = None,
    ) -> "LogJoint":
        """That of a user's data, checked and condensed."""
        if sample_weight is None:
            sample_weight = torch.ones_like(x)
        x, y, sample_weight = check_data(x, y, sample_weight)
        return cls(prior, likelihood, likelihood.condense(prior.features, x, y, sample_weight))

    @cached_property
    def squares(self) -> Float[Tensor, "n T"]:
        """The G of nu = G (V Gamma)^2 + features A Gamma."""
        return self.data.features @ self.prior.quadratic_form()[1]

    def slopes(self, Gamma: Vector) -> Float[Tensor, "n D"]:
        """The derivative of nu at each row of the data."""
        return self.data.features @ self.prior.jacobian(Gamma)

    def moments(self, m: Vector, root: Matrix, slopes: Float[Tensor, "n D"]) -> tuple[Rows, Rows]:
        """Mean and variance of nu at each row, for Gamma ~ N(m, root root^T) and slopes at m."""
        V, _, _ = self.prior.quadratic_form()
        deviations = V @ root
        K = deviations @ deviations.T
        G = self.squares
        quadratic = ((G @ K**2) * G).sum(dim=1)
        mean = self.data.features @ self.prior.mean_coefficients(m, root)
        # Rounding may fall below zero. [MP92, section 3.2b]
        variance = ((slopes @ root) ** 2).sum(dim=1) + 2 * quadratic.clamp_min(0)
        return mean, variance

    def log_likelihood(self, Gamma: Vector) -> Scalar:
        nu = self.data.features @ self.prior.coefficients(Gamma)
        return self.likelihood.log_density(nu, self.data)

    def derivatives(self, Gamma: Vector) -> tuple[Vector, Matrix]:
        nu = self.data.features @ self.prior.coefficients(Gamma)
        first, second = self.likelihood.derivatives(nu, self.data)
        slopes = self.slopes(Gamma)
        bend = self.prior.curvature(self.data.features.T @ first)
        precision = self.prior.precision
        gradient = slopes.T @ first - precision * (Gamma - self.prior.location)
        # W&N eq. (11)
        hessian = torch.diag(precision) - slopes.T @ (second[:, None] * slopes) - bend
        return gradient, hessian

    def expected_log_likelihood(self, mean: Rows, variance: Rows) -> Scalar:
        """Its mean in nats by nu's moments: exact, or else as if nu were normal."""
        if self.likelihood.exact_expectation:
            return self.likelihood.expected_log_density(mean, variance, self.data)
        return normal_average(self.likelihood, mean, variance, self.data, _NODES)

    def evidence_bound(self, Gamma: Vector) -> Scalar:
        """The evidence lower bound in nats of Laplace's Gaussian with its twin; NaN if unknown."""
        curvature = self.curvature(Gamma)
        root = self.root(curvature)
        moments = self.moments(Gamma, root, self.slopes(Gamma))
        fit = self.likelihood.expected_log_density(*moments, self.data)
        if fit is None:
            return Gamma.new_tensor(math.nan)
        return fit - self.divergence(Gamma, root) + self.twin_bound(Gamma, curvature)


def check_data(x: Tensor, y: Tensor, sample_weight: Tensor) -> tuple[Rows, Rows, Rows]:
    """All as float64; a ValueError unless finite and of one shape (n,), with positive weights."""
    for name, values in (("y", y), ("sample_weight", sample_weight)):
        if x.ndim != 1 or values.shape != x.shape or len(x) == 0:
            shapes = f"{tuple(x.shape)} and {tuple(values.shape)}"
            raise ValueError(f"expected x and {name} of one shape (n,) with n > 0, got {shapes}")
    _check_all(torch.isfinite(x), "finite x")
    _check_all(torch.isfinite(y), "finite y")
    positive = torch.isfinite(sample_weight) & (sample_weight > 0)
    _check_all(positive, "positive finite sample_weight")
    given = (x, y, sample_weight)
    # Gradients may not use what was made in inference mode, but copies of it.
    x, y, sample_weight = (v.to(torch.float64, copy=v.is_inference()) for v in given)
    return x, y, sample_weight


def _check_all(good: Tensor, expected: str) -> None:
    if not good.all():
        n_bad = int((~good).sum())
        raise ValueError(f"expected {expected}, got {n_bad} of {len(good)} that are not")
