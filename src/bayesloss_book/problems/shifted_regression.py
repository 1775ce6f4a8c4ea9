"""Regression under covariate shift: the problem of one input that two pages share.

Training inputs are spread around zero, test inputs are Gaussian around a place of their own, and
the support is a fixed set of training points at equal ranks, chosen without regard to the test
distribution. LHG give no example; this one is ours.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bayesloss.kernels import SquaredExponential
from bayesloss_book.models.gp_regression import GPRegression, normal_nodes
from bayesloss_book.models.sparse_means import on_all, sparse_mean_calibrated

NOISE = 0.04  # variance
SMOOTHNESS = 2.0  # a of the kernel: a length scale of 0.7
DEVIATION = 0.5  # of the test inputs


@dataclass(frozen=True)
class ShiftedProblem:
    """Data, a support, and where predictions will be asked for."""

    model: GPRegression
    support: list[int]
    shift: float  # the mean of the test inputs
    points: Tensor  # (m,), quadrature nodes of the test distribution
    weights: Tensor  # (m,)

    def divergence(self, sparse: Tensor) -> float:
        """d_L of a mean on the support."""
        whole = on_all(self.model, self.support, sparse)
        return float(self.model.divergence(whole, self.points, self.weights))

    def fitted(self, target: Tensor | None = None) -> Tensor:
        """The mean on the support of the least d_L, or nearest to a target at the points, (m,)."""
        where = self.support, self.points, self.weights
        return sparse_mean_calibrated(self.model, *where, target=target)

    @cached_property
    def least(self) -> float:
        """The least d_L on the support."""
        return self.divergence(self.fitted())


def truth(x: np.ndarray) -> np.ndarray:
    """The function that the data come from."""
    return np.sin(1.7 * x) + 0.4 * np.cos(4 * x)


def covariate_shift(seed: int, *, shift: float = 2.0, n: int = 80, k: int = 7) -> ShiftedProblem:
    """A draw of data: inputs of standard deviation 1.2, and `k` of them as the support."""
    rng = np.random.default_rng(seed)
    x = np.sort(1.2 * rng.normal(size=n))
    y = truth(x) + math.sqrt(NOISE) * rng.normal(size=n)
    model = GPRegression(
        SquaredExponential(a=SMOOTHNESS), torch.tensor(x), torch.tensor(y), noise_variance=NOISE
    )
    return ShiftedProblem(model, equal_ranks(n, k), shift, *normal_nodes(shift, DEVIATION))


def equal_ranks(n: int, k: int) -> list[int]:
    """The indices of `k` sorted points at equal ranks, the first and the last among them."""
    return np.linspace(0, n - 1, k).round().astype(int).tolist()
