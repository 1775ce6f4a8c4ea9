r"""Scores that are linear in the inputs, and the weights that maximise a likelihood of them.

x_nk = beta_k . (z_n - centre) + offset_k is the score of datum n for problem k: one-vs-rest
problems share their inputs, so that all their scores are one matrix product. What is maximised is

    mean_n log p(y_nk | x_nk) - |beta_k|^2 / (2 C n),

by L-BFGS for all k together. The curvature is close to a multiple of the inputs' covariance.
A sample of the inputs gives its eigenvectors; in coordinates in which that matrix is the identity,
a few steps suffice where the plain method takes many.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor

__all__ = ["LinearScores", "WeightFit", "maximise_weights"]

_SAMPLE = 2048  # data from which the covariance is estimated

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
        rows = torch.linspace(0, len(Z) - 1, min(len(Z), _SAMPLE), device=Z.device).long()
        share = weight[rows] / weight[rows].sum()
        sample = (Z[rows] - self.centre) * share.sqrt()[:, None]
        variances, vectors = _principal(sample)
        kept = variances > 1e-12 * variances.max()
        self.vectors = vectors[:, kept]
        curvature = self.level[:, None] * variances[kept]
        # Directions that the sample does not know have little variance, or the ridge alone.
        rest = self.ridge + (1e-6 * curvature.amax(1) if bool(kept.any()) else self.level)
        self.rest = rest.rsqrt()  # (K,)
        self.stretch = (curvature + rest[:, None]).rsqrt() - self.rest[:, None]  # (K, r)

    def scores(self, beta: Tensor, offset: Tensor) -> Tensor:
        """The scores, of shape (K, n), for weights of shape (K, d) and offsets of shape (K,)."""
        return ((self.Z @ beta.T) + (offset - beta @ self.centre)).T.contiguous()

    def pull_back(self, slopes: Tensor) -> Tensor:
        """The gradient with respect to beta, (K, d), from slopes with respect to the scores."""
        return slopes @ self.Z - slopes.sum(1, keepdim=True) * self.centre

    def precondition(self, coordinates: Tensor) -> Tensor:
        """Weights from coordinates, or gradients back: a symmetric map, (K, d) to (K, d)."""
        along = (coordinates @ self.vectors) * self.stretch
        return self.rest[:, None] * coordinates + along @ self.vectors.T


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
        The largest derivative of that, in absolute value: zero at a maximum.
    scores : Tensor of shape (K, n)
    start : Tensor of shape (K,)
        The objective where the search began.
    n_iter : int
    """

    beta: Tensor
    offset: Tensor
    objective: Tensor
    slope: Tensor
    scores: Tensor
    start: Tensor
    n_iter: int


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
    """Raise the penalised likelihood of every problem until no slope exceeds tol.

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
        The largest derivative of the objective at which the search ends.
    max_iter : int
        The largest number of L-BFGS iterations; with 0 the start is evaluated.

    Returns
    -------
    WeightFit
    """
    shape = beta.shape
    fit = _evaluate(data, log_probability, beta, offset, free_offset)[0]
    best, begun, n_iter = fit, fit.objective, 0
    start_beta, start_offset = beta, offset
    unit = data.level.rsqrt()

    def negative(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        nonlocal fit
        moved = torch.from_numpy(vector.copy()).to(beta.device).reshape(shape[0], shape[1] + 1)
        fit, gradient = _evaluate(
            data,
            log_probability,
            start_beta + data.precondition(moved[:, :-1]),
            start_offset + unit * moved[:, -1],
            free_offset,
        )
        back = torch.cat(
            [data.precondition(gradient[:, :-1]), (unit * gradient[:, -1])[:, None]], dim=1
        )
        return -float(fit.objective.sum()), -back.flatten().cpu().numpy()

    def settled(intermediate_result: OptimizeResult) -> None:
        nonlocal best, n_iter
        best, n_iter = fit, n_iter + 1
        if float(best.slope.max()) <= tol:
            raise StopIteration

    if max_iter > 0 and float(best.slope.max()) > tol:
        minimize(
            negative,
            np.zeros(shape[0] * (shape[1] + 1)),
            jac=True,
            method="L-BFGS-B",
            callback=settled,
            options={"maxiter": max_iter, "ftol": 0.0, "gtol": 0.0, "maxls": 30},
        )
    return replace(best, start=begun, n_iter=n_iter)


def _principal(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues of ``rows^T rows`` and their eigenvectors, (d, r), from the smaller Gram."""
    if rows.shape[0] >= rows.shape[1]:
        values, vectors = torch.linalg.eigh(rows.T @ rows)
        return values, vectors
    values, vectors = torch.linalg.eigh(rows @ rows.T)
    values = values.clamp_min(0)
    return values, (rows.T @ vectors) / values.sqrt().clamp_min(1e-150)


def _evaluate(
    data: LinearScores,
    log_probability: LogProbability,
    beta: Tensor,
    offset: Tensor,
    free_offset: bool,
) -> tuple[WeightFit, Tensor]:
    """The objective at these weights, and its gradient, of shape (K, d + 1)."""
    scores = data.scores(beta, offset)
    values, slopes = log_probability(scores)
    share = data.weight / data.total
    slopes = slopes * share
    gradient = data.pull_back(slopes) - data.ridge * beta
    shift = slopes.sum(1) if free_offset else torch.zeros_like(offset)
    objective = values @ share - 0.5 * data.ridge * (beta**2).sum(1)
    gradient = torch.cat([gradient, shift[:, None]], dim=1)
    slope = gradient.abs().amax(1)
    return WeightFit(beta, offset, objective, slope, scores, start=objective, n_iter=0), gradient
