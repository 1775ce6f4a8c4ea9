"""Means of k functions under one interface: from a problem to inputs and coefficients.

`FIXED` keep the support that the problem comes with, training points that were chosen without
regard to the test distribution, as LHG have it. `PLACED` choose their inputs. `ORACLES` know what
no method may: the exact posterior mean, and the test distribution itself.
"""

from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from torch import Tensor

from bayesloss.optimise import differentiated, minimise
from bayesloss_book.beyond.sparse_means.problems import Problem
from bayesloss_book.models import sparse_means as means
from bayesloss_book.models.gp_regression import GPRegression

OURS = "targeted"
FIXED = ("least KL", "FITC", "importance weights", "fitted to FITC at the targets", "exact fit")
PLACED = (
    "least KL, inputs by its bound",
    "least KL at the targets",
    "FITC at the targets",
    "training points for the targets",
    "targeted, not moved",
    OURS,
    "targeted, 4 k",
)
ORACLES = ("least possible", "least possible at the targets")

TARGETED: dict[str, Any] = {
    "targeted, not moved": {"n_moves": 0},
    OURS: {},
    "targeted, 4 k": {"oversampling": 4.0},
}

_KL_SHARE = 0.1  # of sigma^2 / m: the weight of the KL where samples stand for p(x)


def fit(name: str, problem: Problem, k: int) -> tuple[Tensor, Tensor]:
    """Inputs of k functions, and their coefficients, by one of `FIXED`, `PLACED` or `ORACLES`."""
    model = problem.model
    points = problem.points
    support = model.x[problem.support]
    little = _KL_SHARE * model.noise_variance / len(points)
    if name in ("least KL", "FITC"):
        return support, means.sparse_mean_kl(model, support, fitc=name == "FITC")
    if name == "importance weights":
        return support, means.sparse_mean_kl(model, support, weights=density_ratio(model.x, points))
    if name == "exact fit":
        return support, means.sparse_mean_calibrated(model, support, points, kl_weight=little)
    if name == "least KL, inputs by its bound":
        inputs = inputs_by_the_bound(model, support)
        return inputs, means.sparse_mean_kl(model, inputs)
    if name in TARGETED:
        return means.sparse_mean_targeted(model, points, k=k, **TARGETED[name])
    spread = points[means.spread_support(model, points, min(2 * k, len(points)))]
    if name in ("least KL at the targets", "FITC at the targets"):
        return spread[:k], means.sparse_mean_kl(model, spread[:k], fitc=name.startswith("FITC"))
    if name == "least possible at the targets":
        support = spread[:k]
    if name in ORACLES:
        best = means.sparse_mean_calibrated(model, support, problem.fresh, problem.weights)
        return support, best
    target = model.action(points, means.sparse_mean_kl(model, spread, fitc=True), spread)
    if name == "training points for the targets":
        support = model.x[means.choose_support(model, model.x, points, target=target, k=k)]
    elif name != "fitted to FITC at the targets":
        raise ValueError(f"expected a method of {FIXED + PLACED + ORACLES}, got {name!r}")
    fitted = means.sparse_mean_calibrated(model, support, points, target=target, kl_weight=little)
    return support, fitted


def density_ratio(x: Tensor, points: Tensor) -> Tensor:
    """The test inputs' density over the training inputs', with mean 1, by logistic regression."""
    both = torch.cat([x, points]).reshape(len(x) + len(points), -1).numpy()
    asked = np.arange(len(both)) >= len(x)
    steps = StandardScaler(), PolynomialFeatures(2, include_bias=False), StandardScaler()
    model = make_pipeline(*steps, LogisticRegression(max_iter=10_000))
    odds = model.fit(both, asked).decision_function(both[~asked])
    ratio = torch.from_numpy(np.exp(odds - odds.max()))
    return ratio / ratio.mean()


def inputs_by_the_bound(model: GPRegression, start: Tensor, *, max_iter: int = 100) -> Tensor:
    """Inputs that raise Titsias' bound on the evidence, by quasi-Newton steps from a start."""
    x = model.x
    y = model.y
    noise = model.noise_variance

    def negative_bound(flat: Tensor) -> Tensor:
        Z = flat.reshape(start.shape)
        K = model.kernel(Z, Z) + 1e-8 * model.kernel.b * torch.eye(len(Z), dtype=torch.float64)
        root = torch.linalg.cholesky(K)
        rows = torch.linalg.solve_triangular(root, model.kernel(Z, x), upper=False)
        B = torch.eye(len(Z), dtype=torch.float64) + rows @ rows.T / noise
        factor = torch.linalg.cholesky(B)
        c = torch.linalg.solve_triangular(factor, (rows @ y)[:, None], upper=False) / noise
        value = factor.diagonal().log().sum() + 0.5 * (y @ y / noise - (c**2).sum())
        return value + 0.5 * (len(y) * model.kernel.b - (rows**2).sum()) / noise

    steps = {"maxiter": max_iter}
    found = minimise(differentiated(negative_bound), start.flatten(), options=steps)
    return torch.from_numpy(found.x.reshape(start.shape))
