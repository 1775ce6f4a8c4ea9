"""Gaussian process regression as a decision (LHG section 4.1, appendices 7.1 and 7.2).

After N data a decision needs no more of the process than N numbers, theta = K^{-1} f, where K is
the kernel at the training inputs and f the values there. With them the loss divergence of the
quadratic cost is a quadratic form in the mean of q, and so is the KL divergence; the two forms
differ, and so do their minimisers among means with few non-zero entries.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from bayesloss.calibrating.decision_theory import checked_masses
from bayesloss.kernels import SquaredExponential
from bayesloss.quadrature import gauss_hermite

# An inverse of K loses as many digits as its condition number has; six are kept.
_CONDITION = 1e10


class GPRegression:
    r"""Data, a kernel and a noise variance: the posterior of theta, and decisions under it.

    A Gaussian q has a mean and a covariance of theta; its optimal decision under the quadratic cost
    is :math:`h_q(x) = K_{xD} \mu_q`, LHG section 4.1. A sparse mean has non-zero entries on a
    support S of k training points only. Wherever a support is asked for it may be such indices, or
    k inputs from elsewhere as a floating-point tensor, of which a decision is K_xS m as well. Where
    two training inputs agree, K has no inverse: decisions still exist, theta's covariance does not.
    """

    def __init__(
        self, kernel: SquaredExponential, x: Tensor, y: Tensor, *, noise_variance: float
    ) -> None:
        self.kernel = kernel
        self.x = _finite("training inputs", x)
        self.y = _finite("targets", y)
        self.noise_variance = float(noise_variance)

    # ------------------------------------------------------------------- the exact posterior

    @cached_property
    def K(self) -> Tensor:
        """The kernel at the training inputs, of shape (N, N)."""
        return self.kernel(self.x, self.x)

    @cached_property
    def mean(self) -> Tensor:
        """The posterior mean of theta, in O(N^3): LHG appendix 7.2. It needs no inverse of K."""
        noisy = self.K + self.noise_variance * torch.eye(len(self.y), dtype=torch.float64)
        root = torch.linalg.cholesky(noisy)
        return torch.cholesky_solve(self.y[:, None], root)[:, 0]  # LHG appendix 7.2

    @property
    def precision(self) -> Tensor:
        """The posterior precision of theta, of shape (N, N): LHG appendix 7.2."""
        return self.K + self.K @ self.K / self.noise_variance  # LHG appendix 7.2

    @property
    def covariance(self) -> Tensor:
        """The posterior covariance of theta, of shape (N, N): LHG appendix 7.2."""
        values, vectors = self._spectrum
        # K^{-1} - (K + sigma^2 I)^{-1} in the eigenvectors of K, without a difference.
        spread = self.noise_variance / (values * (values + self.noise_variance))
        return (vectors * spread) @ vectors.T

    # --------------------------------------------------------------- the model, the decision

    def observation(self, x: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (..., m) and variance (m,) of y given theta (..., N): LHG eqs. (17) and (18)."""
        values, vectors = self._spectrum
        cross = self.kernel(x, self.x)
        explained = ((cross @ vectors) ** 2 / values).sum(dim=1)
        return theta @ cross.T, self.noise_variance + self.kernel.b - explained  # LHG eq. (18)

    def predictive(self, x: Tensor, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of y under a Gaussian q, each of shape (m,): LHG eq. (14)."""
        centre, spread = self.observation(x, mean)
        cross = self.kernel(x, self.x)
        return centre, spread + ((cross @ covariance) * cross).sum(dim=1)  # LHG eq. (14)

    def action(
        self, x: Tensor, mean: Tensor, support: Sequence[int] | Tensor | None = None
    ) -> Tensor:
        """The q-optimal decision at x, of shape (m,): LHG section 4.1; or on a support."""
        inputs = self.x if support is None else self.inputs_of(support)
        if mean.shape != inputs.shape[:1]:
            raise ValueError(
                f"expected a mean of shape ({len(inputs)},), got {tuple(mean.shape)}; "
                "a sparse mean comes with its support"
            )
        return self.kernel(_finite("test inputs", x), inputs) @ mean  # LHG section 4.1

    # -------------------------------------------------------------------- the two divergences

    def loss_matrix(self, points: Tensor, weights: Tensor | None = None) -> Tensor:
        """The matrix Lambda of LHG eq. (21), of shape (N, N).

        The test distribution is nodes of a quadrature rule and their masses, which sum to one, or
        samples from it, equally weighted.
        """
        root = self._root(points, weights)
        return root.T @ root  # LHG eq. (21)

    def divergence(
        self,
        mean: Tensor,
        points: Tensor,
        weights: Tensor | None = None,
        support: Sequence[int] | Tensor | None = None,
    ) -> Tensor:
        """d_L(p || q), a number: LHG eq. (20), in O(mN), after the exact posterior mean."""
        if support is None:
            return ((self._root(points, weights) @ self._gap(mean)) ** 2).sum()  # LHG eq. (20)
        gap = self.action(points, mean, support) - self.action(points, self.mean)
        return checked_points(points, weights) @ gap**2  # LHG eq. (20), as a mean over x

    def kl(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """KL(q || p) in nats: LHG eq. (22), with its constant."""
        values, _ = self._spectrum
        root, failed = torch.linalg.cholesky_ex(covariance)
        if failed:
            raise ValueError("expected a positive definite covariance of q")
        gap = self._gap(mean)
        log_det = (
            2 * root.diagonal().log().sum()
            + (values.log() + (1 + values / self.noise_variance).log()).sum()
        )
        trace = (self.precision * covariance).sum()
        return 0.5 * (trace - len(gap) - log_det + gap @ self.precision @ gap)  # LHG eq. (22)

    def indices_of(self, support: Sequence[int]) -> list[int]:
        """The support as a list, or a ValueError that says what is wrong with it."""
        indices = [int(i) for i in support]
        n = len(self.y)
        if not indices or len(set(indices)) < len(indices) or not all(0 <= i < n for i in indices):
            raise ValueError(f"expected distinct indices of {n} training points, got {indices}")
        return indices

    def inputs_of(self, support: Sequence[int] | Tensor) -> Tensor:
        """The inputs of a support, of shape (k,) or (k, D); ValueError where they do not fit."""
        if not isinstance(support, Tensor) or not support.is_floating_point():
            return self.x[self.indices_of(support)]
        return _finite("inputs of a support", support)

    # -------------------------------------------------------------------------------- parts

    @cached_property
    def _spectrum(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues and eigenvectors of K, if it can be inverted."""
        values, vectors = torch.linalg.eigh(self.K)
        if values[0] * _CONDITION < values[-1]:
            raise ValueError(
                "expected training inputs so far apart that K has an inverse, got a K of condition "
                f"number {float(values[-1] / values[0].clamp(min=1e-300)):.1e}: equal or close "
                "inputs; decisions (mean, action, divergence, sparse means) need no inverse"
            )
        return values, vectors

    def _gap(self, mean: Tensor) -> Tensor:
        """How far a mean of theta is from the posterior's."""
        if mean.shape != self.y.shape:
            raise ValueError(
                f"expected a mean of shape ({len(self.y)},), got {tuple(mean.shape)}; a sparse "
                "mean is to be given with its zeros"
            )
        return mean - self.mean

    def _root(self, points: Tensor, weights: Tensor | None) -> Tensor:
        """A matrix whose product with its transpose is Lambda."""
        return checked_points(points, weights).sqrt()[:, None] * self.kernel(points, self.x)


def normal_nodes(mean: float, deviation: float, n: int = 40) -> tuple[Tensor, Tensor]:
    """Points and weights of Gauss-Hermite quadrature for a Gaussian test distribution.

    Exact for polynomials of degree 2n - 1.
    """
    nodes, weights = gauss_hermite(n)
    return mean + deviation * nodes, weights


def checked_points(points: Tensor, weights: Tensor | None) -> Tensor:
    """The masses of test inputs, or a ValueError that says what is wrong with them."""
    _finite("test inputs", points)
    if weights is None:
        return torch.full((len(points),), 1 / len(points), dtype=torch.float64)
    return checked_masses(weights)


def _finite(name: str, values: Tensor) -> Tensor:
    values = torch.as_tensor(values).to(torch.float64)
    if not bool(torch.isfinite(values).all()):
        bad = values[~torch.isfinite(values)].flatten()
        raise ValueError(f"expected finite {name}, got {float(bad[0])}")
    return values
