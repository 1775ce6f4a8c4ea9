"""Likelihoods of data given the values of nu (W&N appendix D.1).

A likelihood first condenses its data: whatever it needs of the features and the targets, in as few
rows as possible. It then gives the log density of the data and its derivatives at the values
nu = features @ coefficients of those rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bayesloss.learning.trigonometric_kernel import as_number, as_scalar

__all__ = ["Bernoulli", "Gaussian", "Likelihood", "Observations"]

_ROWS = 4096  # data folded in at a time


@dataclass(frozen=True)
class Observations:
    """Data as a likelihood sees them.

    Attributes
    ----------
    features : Tensor of shape (rows, F)
    targets : Tensor of shape (rows,)
    total_weight : float
        The number of data, or the sum of their weights.
    residual : float
        For the Gaussian likelihood: the squared error that no coefficients can lower.
    weights : Tensor of shape (rows,)
        How many times each row counts; condensed rows count once.
    """

    features: Tensor
    targets: Tensor
    total_weight: float
    residual: float
    weights: Tensor


class Likelihood(Protocol):
    """What inference asks of a likelihood."""

    def condense(
        self,
        features: Callable[[Tensor], Tensor],
        x: Tensor,
        y: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Observations:
        """The data in as few rows as the likelihood needs."""

    def log_density(self, nu: Tensor, data: Observations) -> Tensor:
        """The log density of all data, constants included, as a scalar."""

    def derivatives(self, nu: Tensor, data: Observations) -> tuple[Tensor, Tensor]:
        """First and second derivative of the log density with respect to each nu."""

    def expected_log_density(self, mean: Tensor, variance: Tensor, data: Observations) -> Tensor:
        """The mean of the log density given mean and variance of each nu, or a lower bound."""


class Gaussian:
    """Targets with independent Gaussian noise of precision alpha, eqs. (17) and (18).

    Parameters
    ----------
    alpha : float or scalar Tensor
        Noise precision, positive, in inverse squared units of the target.

    Raises
    ------
    ValueError
        If alpha is not positive and finite.
    """

    def __init__(self, alpha: float | Tensor = 1.0) -> None:
        if not 0 < as_number(alpha) < math.inf:
            raise ValueError(f"expected a finite alpha > 0, got alpha={as_number(alpha)}")
        self.alpha = as_scalar(alpha)

    def __repr__(self) -> str:
        """Show the noise precision."""
        return f"Gaussian(alpha={as_number(self.alpha):.4g})"

    def condense(
        self,
        features: Callable[[Tensor], Tensor],
        x: Tensor,
        y: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Observations:
        """Rotate n rows into at most F: the squared error needs no more of the data.

        Parameters
        ----------
        features : callable
            Takes x of shape (n,) to features of shape (n, F).
        x, y : Tensor of shape (n,)
        sample_weight : Tensor of shape (n,), optional
            How many times each datum counts; positive.

        Notes
        -----
        The triangular factor R of a QR decomposition of (features, y) keeps the inner products of
        its columns, so ``|features u - y|^2 = |R_features u - R_y|^2`` for every u. Unlike the
        normal equations it does not square the condition number. The rows are folded in block by
        block: memory does not grow with n, and what follows costs the same however many data
        there are.
        """
        weight = torch.ones_like(y) if sample_weight is None else sample_weight
        size = features(x[:1]).shape[1]
        triangle = x.new_zeros((0, size + 1))
        blocks = (part.split(_ROWS) for part in (x, y, weight))
        for x_part, y_part, weight_part in zip(*blocks, strict=True):
            rows = torch.cat([features(x_part), y_part[:, None]], dim=1)
            rows = rows * weight_part.sqrt()[:, None]
            triangle = torch.linalg.qr(torch.cat([triangle, rows]), mode="r").R
        # Directions that the data do not move, to rounding error, are of no use to anyone: on half
        # a period more than a third of them. What is left of the target there is residual.
        left, values, right = torch.linalg.svd(triangle[:, :size], full_matrices=False)
        kept = values > torch.finfo(x.dtype).eps * values[0]
        left, values, right = left[:, kept], values[kept], right[kept]
        targets = left.T @ triangle[:, size]
        return Observations(
            features=values[:, None] * right,
            targets=targets,
            total_weight=float(weight.sum()),
            residual=float(((triangle[:, size] - left @ targets) ** 2).sum()),
            weights=torch.ones_like(targets),
        )

    def log_density(self, nu: Tensor, data: Observations) -> Tensor:
        """The log density of all data, constants included, as a scalar."""
        squares = ((nu - data.targets) ** 2).sum() + data.residual
        constant = 0.5 * data.total_weight * (torch.log(self.alpha) - math.log(2 * math.pi))
        return constant - 0.5 * self.alpha * squares

    def derivatives(self, nu: Tensor, data: Observations) -> tuple[Tensor, Tensor]:
        """First and second derivative of the log density with respect to each nu: (rows,) twice."""
        return self.alpha * (data.targets - nu), -self.alpha.expand(nu.shape)

    def expected_log_density(self, mean: Tensor, variance: Tensor, data: Observations) -> Tensor:
        """The mean of the log density when each nu has the given mean and variance, exactly."""
        return self.log_density(mean, data) - 0.5 * self.alpha * variance.sum()


class Bernoulli:
    """Labels 0 and 1 with probability sigma(nu) of a 1, eq. (19) with the log loss's link.

    sigma(nu) = 1 / (1 + exp(-nu)). Values and derivatives stay accurate however large nu is.
    """

    def __repr__(self) -> str:
        """Show the name."""
        return "Bernoulli()"

    def condense(
        self,
        features: Callable[[Tensor], Tensor],
        x: Tensor,
        y: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Observations:
        """All rows: no fewer would do.

        Raises
        ------
        ValueError
            If a label is neither 0 nor 1.
        """
        odd = (y != 0) & (y != 1)
        if odd.any():
            raise ValueError(f"expected labels 0 and 1, got {float(y[odd][0])} among {len(y)}")
        weight = torch.ones_like(y) if sample_weight is None else sample_weight
        return Observations(
            features=features(x),
            targets=y,
            total_weight=float(weight.sum()),
            residual=0.0,
            weights=weight,
        )

    def log_density(self, nu: Tensor, data: Observations) -> Tensor:
        """The log probability of all labels, y log sigma(nu) + (1 - y) log sigma(-nu), summed."""
        margin = (2 * data.targets - 1) * nu
        return (data.weights * torch.nn.functional.logsigmoid(margin)).sum()

    def derivatives(self, nu: Tensor, data: Observations) -> tuple[Tensor, Tensor]:
        """First and second derivative of the log probability with respect to each nu."""
        # sigma(-nu) rather than 1 - sigma(nu), which is 0 in floating point from nu = 37 on.
        up, down = torch.sigmoid(nu), torch.sigmoid(-nu)
        return data.weights * torch.where(data.targets == 1, down, -up), -data.weights * up * down

    def expected_log_density(self, mean: Tensor, variance: Tensor, data: Observations) -> Tensor:
        """A lower bound on the mean of the log probability, given mean and variance of each nu.

        Mean and variance do not determine the mean itself. But with xi^2 = E nu^2

            E log sigma(+-nu) >= log sigma(xi) + (+-E nu - xi) / 2

        whatever the distribution of nu: Jaakkola and Jordan's (2000) quadratic bound on log sigma,
        averaged, at the xi that makes it highest.
        """
        sign = 2 * data.targets - 1
        xi = torch.sqrt(mean**2 + variance)
        bound = torch.nn.functional.logsigmoid(xi) + (sign * mean - xi) / 2
        return (data.weights * bound).sum()
