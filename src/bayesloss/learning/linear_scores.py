r"""Scores that are linear in the inputs, and the weights that maximise a likelihood of them.

x_nk = beta_k . (z_n - centre) + offset_k is the score of datum n for problem k: one-vs-rest
problems share their inputs, so that all their scores are one matrix product. What is maximised is

    mean_n log p(y_nk given x_nk) - (beta_k . beta_k) / (2 C n),

by L-BFGS for all k together. The curvature is close to a multiple of the inputs' covariance, plus
the penalty's. In coordinates in which that matrix, estimated from a sample, is the identity, a few
steps suffice where the plain method takes many, whatever the units of the columns.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor

__all__ = ["LinearScores", "WeightFit", "maximise_weights", "product"]

_SAMPLE = 2048  # data from which the covariance is estimated
_WIDE = 2048  # columns beyond which their scales have to do: the covariance would cost d^3
_ROWS = 4096  # data in a block
_HELD_BACK = 0.1  # without a penalty, the part of a column's mean curvature that is added to all

# Takes scores of shape (K, n) to the log probabilities of the labels and their slopes.
LogProbability = Callable[[Tensor], tuple[Tensor, Tensor]]


class LinearScores:
    """The inputs of K problems, and coordinates in which all weights matter alike.

    Parameters
    ----------
    Z : Tensor of shape (n, d)
    labels : Tensor of int64 of shape (K, n)
        0 or 1.
    weight : Tensor of shape (n,)
        How many times each datum counts; positive.
    C : float
        Inverse strength of the L2 penalty, as in scikit-learn; infinite for none.
    """

    def __init__(self, Z: Tensor, labels: Tensor, weight: Tensor, C: float) -> None:
        self.Z, self.labels, self.weight = Z, labels, weight
        self.total = float(weight.sum())
        self.centre = (weight @ Z) / self.total
        self.ridge = 1 / (C * self.total)
        ones = (labels.to(weight.dtype) @ weight) / self.total
        # sigma'(x) is p (1 - p) before anything is learned, and falls as the labels are told apart.
        self.level = (ones * (1 - ones) / 4).clamp_min(1e-6)
        self.scale, self.vectors = self._coordinates(float(self.level.mean()))
        self.stretch = (self.level.mean() / self.level).sqrt()[:, None]

    def _coordinates(self, level: float) -> tuple[Tensor, Tensor | None]:
        """Scales of the columns, (d,), and what rotates and stretches scaled columns, (d, d)."""
        variance = torch.zeros_like(self.centre)
        for part, share in zip(self.Z.split(_ROWS), self.weight.split(_ROWS), strict=True):
            variance += (share / self.total) @ (part - self.centre) ** 2
        constant = variance.sqrt() <= 1e-12 * self.centre.abs()
        # Without a penalty the optimum may lie at infinity. A search that is stopped on its way
        # there had better not run ahead in directions of which the data say little.
        damping = self.ridge or _HELD_BACK * level * float(variance.mean())
        scale = torch.where(constant, 0.0, (level * variance + damping).rsqrt())
        if len(scale) > _WIDE:
            return scale, None
        rows = torch.linspace(0, len(self.Z) - 1, min(len(self.Z), _SAMPLE)).long()
        share = self.weight[rows] / self.weight[rows].sum()
        sample = (self.Z[rows] - self.centre) * (level * share).sqrt()[:, None] * scale
        curvature = sample.T @ sample + torch.diag(damping * scale**2)
        # Columns that vary, but not in the sample: on their own scale, which is 1.
        curvature.diagonal()[curvature.diagonal() < 0.1] += 1
        values, vectors = torch.linalg.eigh(curvature)
        return scale, vectors * values.clamp_min(1e-12 * float(values[-1])).rsqrt()

    def of(self, problems: list[int]) -> "LinearScores":
        """The same inputs for some of the problems."""
        some = copy.copy(self)
        some.labels, some.level = self.labels[problems], self.level[problems]
        some.stretch = self.stretch[problems]
        return some

    def centred_on(self, rows: Tensor) -> "LinearScores":
        """The same problems in coordinates made for some of the rows, a mask of shape (n,)."""
        C = math.inf if self.ridge == 0 else 1 / (self.ridge * self.total)
        some = LinearScores(self.Z[rows], self.labels[:, rows], self.weight[rows], C)
        other = copy.copy(self)
        other.centre, other.scale, other.vectors = some.centre, some.scale, some.vectors
        return other

    def scores(self, beta: Tensor, offset: Tensor) -> Tensor:
        """The scores, of shape (K, n), for weights of shape (K, d) and offsets of shape (K,)."""
        return product(beta, self.Z.T) + (offset - beta @ self.centre)[:, None]

    def pull_back(self, slopes: Tensor) -> Tensor:
        """The gradient with respect to beta, (K, d), from slopes with respect to the scores."""
        return product(slopes, self.Z) - slopes.sum(1, keepdim=True) * self.centre

    def weights(self, coordinates: Tensor) -> Tensor:
        """Weights from coordinates, both of shape (K, d)."""
        turned = coordinates if self.vectors is None else coordinates @ self.vectors.T
        return self.stretch * self.scale * turned

    def slopes(self, gradient: Tensor) -> Tensor:
        """Slopes along the coordinates from a gradient with respect to the weights: the adjoint."""
        scaled = self.stretch * self.scale * gradient
        return scaled if self.vectors is None else scaled @ self.vectors


@dataclass(frozen=True)
class WeightFit:
    """Where a search for weights ended.

    Attributes
    ----------
    beta : Tensor of shape (K, d)
    offset : Tensor of shape (K,)
    objective : Tensor of shape (K,)
        Mean log probability less the penalty, in nats a datum.
    slope : Tensor of shape (K,)
        The largest derivative of that with respect to a weight, in absolute value.
    gain : Tensor of shape (K,)
        How much the objective would rise if it were quadratic with the curvature expected.
    scores : Tensor of shape (K, n)
    start : Tensor of shape (K,)
        The objective where the search began.
    n_iter : int
    """

    beta: Tensor
    offset: Tensor
    objective: Tensor
    slope: Tensor
    gain: Tensor
    scores: Tensor
    start: Tensor
    n_iter: int

    def settled(self, tol: float) -> bool:
        """Whether neither slope nor gain, which does not depend on units, exceeds tol."""
        return max(float(self.slope.max()), float(self.gain.max())) <= tol


def maximise_weights(
    data: LinearScores,
    log_probability: LogProbability,
    beta: Tensor,
    offset: Tensor,
    *,
    free_offset: bool,
    tol: float,
    max_iter: int,
) -> WeightFit:
    """Raise the penalised likelihood of every problem until all have settled.

    Parameters
    ----------
    data : LinearScores
    log_probability : callable
        Takes scores (K, n) to the log probabilities of the labels and their derivatives, (K, n).
    beta : Tensor of shape (K, d)
    offset : Tensor of shape (K,)
        Where the search begins.
    free_offset : bool
        Whether the offset is fitted, too.
    tol : float
        The largest derivative of the objective, and the largest gain in sight, at which the search
        ends.
    max_iter : int
        The largest number of L-BFGS iterations; with 0 the start is evaluated.

    Returns
    -------
    WeightFit
    """
    shape = beta.shape
    fit, _ = _evaluate(data, log_probability, beta, offset, free_offset)
    best, begun, n_iter = fit, fit.objective, 0
    start_beta, start_offset = beta, offset

    def negative(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        nonlocal fit
        moved = torch.from_numpy(vector.copy()).to(beta.device).reshape(shape[0], shape[1] + 1)
        fit, slopes = _evaluate(
            data,
            log_probability,
            start_beta + data.weights(moved[:, :-1]),
            start_offset + data.level.rsqrt() * moved[:, -1],
            free_offset,
        )
        return -float(fit.objective.sum()), -slopes.flatten().cpu().numpy()

    def stop(intermediate_result: OptimizeResult) -> None:
        nonlocal best, n_iter
        best, n_iter = fit, n_iter + 1
        if best.settled(tol):
            raise StopIteration

    if max_iter > 0 and not best.settled(tol):
        minimize(
            negative,
            np.zeros(shape[0] * (shape[1] + 1)),
            jac=True,
            method="L-BFGS-B",
            callback=stop,
            options={"maxiter": max_iter, "ftol": 0.0, "gtol": 0.0, "maxls": 30},
        )
    return replace(best, start=begun, n_iter=n_iter)


def product(left: Tensor, right: Tensor) -> Tensor:
    """A product of two matrices; on a processor NumPy's is faster where one of them is thin."""
    if left.device.type != "cpu":
        return left @ right
    return torch.from_numpy(left.numpy() @ right.numpy())


def _evaluate(
    data: LinearScores,
    log_probability: LogProbability,
    beta: Tensor,
    offset: Tensor,
    free_offset: bool,
) -> tuple[WeightFit, Tensor]:
    """The objective at these weights, and its slopes along the coordinates, (K, d + 1)."""
    scores = data.scores(beta, offset)
    values, slopes = log_probability(scores)
    share = data.weight / data.total
    slopes = slopes * share
    gradient = data.pull_back(slopes) - data.ridge * beta
    shift = slopes.sum(1) if free_offset else torch.zeros_like(offset)
    along = torch.cat([data.slopes(gradient), (data.level.rsqrt() * shift)[:, None]], dim=1)
    fit = WeightFit(
        beta=beta,
        offset=offset,
        objective=values @ share - 0.5 * data.ridge * (beta**2).sum(1),
        slope=torch.maximum(gradient.abs().amax(1), shift.abs()),
        gain=0.5 * (along**2).sum(1),
        scores=scores,
        start=torch.full_like(offset, torch.nan),
        n_iter=0,
    )
    return fit, along
