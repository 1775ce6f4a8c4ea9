"""Regression problems whose test inputs lie elsewhere than most training inputs.

Methods know the test distribution by `n_points` inputs and are judged by others. "line" is the page
on GP regression's, "plane" and "four inputs" are drawn from (nearly) the prior; "cars" and
"diabetes" are tables, with kernels by scikit-learn's marginal likelihood.
"""

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from scipy.special import expit
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from torch import Tensor

from bayesloss.kernels import SquaredExponential
from bayesloss_book import Array
from bayesloss_book.data.data_sets import load_auto_mpg
from bayesloss_book.models.gp_regression import GPRegression
from bayesloss_book.problems.shifted_regression import DEVIATION, NOISE, covariate_shift, truth

KINDS = ("line", "plane", "four inputs", "cars", "diabetes")

_SIMULATED = {"plane": (2, 1.0), "four inputs": (4, 0.5)}  # inputs, a of the kernel
_N = 2_000  # training rows of those
_FRESH = 2_000
_SPREAD = 1.2  # of their training inputs
_FEATURES = 500  # cosines of a draw from the prior


@dataclass(frozen=True)
class Problem:
    """Data, what is known of the test inputs, and what a mean is judged by."""

    model: GPRegression
    support: list[int]  # k training points drawn at random: of "line", at equal ranks
    points: Tensor  # (m,) or (m, D), test inputs without labels
    fresh: Tensor  # (l,) or (l, D), others
    weights: Tensor | None  # (l,), their masses
    outcomes: Tensor  # (l,), the true function there, or the labels of a table


def draw(kind: str, shift: float, k: int, seed: int, *, n_points: int = 200) -> Problem:
    """One of `KINDS`, whose test inputs lie ``shift`` away; of tables half are known."""
    rng = np.random.default_rng([seed, 11])
    if kind == "line":
        page = covariate_shift(seed, shift=shift, k=k)
        points = torch.tensor(rng.normal(shift, DEVIATION, n_points))
        outcomes = torch.from_numpy(truth(page.points.numpy()))
        return Problem(page.model, page.support, points, page.points, page.weights, outcomes)
    if kind not in _SIMULATED:
        return _of_table(kind, shift, k, seed)
    d, a = _SIMULATED[kind]
    centre = np.eye(1, d)[0] * shift
    spread = DEVIATION if shift else _SPREAD
    x = _SPREAD * rng.normal(size=(_N, d))
    points, fresh = (centre + spread * rng.normal(size=(n, d)) for n in (n_points, _FRESH))
    waves = math.sqrt(a) * rng.normal(size=(d, _FEATURES))
    phases = rng.uniform(0, 7, _FEATURES)
    size = math.sqrt(2 / _FEATURES) * rng.normal(size=_FEATURES)

    def f(z: Array) -> Array:
        return np.asarray(np.cos(z @ waves + phases) @ size)

    y = f(x) + math.sqrt(NOISE) * rng.normal(size=_N)
    given = SquaredExponential(a=a), torch.tensor(x), torch.tensor(y)
    model = GPRegression(*given, noise_variance=NOISE)
    support = rng.choice(_N, k, replace=False).tolist()
    parts = torch.tensor(points), torch.tensor(fresh), None, torch.tensor(f(fresh))
    return Problem(model, support, *parts)


def _of_table(kind: str, shift: float, k: int, seed: int) -> Problem:
    X, y, column = _table(kind)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    asked = order[rng.random(len(y)) < expit(shift * X[order, column])]
    train = np.setdiff1d(order, asked)
    half = len(asked) // 2
    centre = y[train].mean()
    scales, b, noise = _hyperparameters(X[train], y[train] - centre)
    Z = torch.tensor(X / scales)
    given = SquaredExponential(a=1.0, b=b), Z[train], torch.tensor(y[train] - centre)
    model = GPRegression(*given, noise_variance=noise)
    support = rng.choice(len(train), k, replace=False).tolist()
    fresh = asked[half:]
    return Problem(model, support, Z[asked[:half]], Z[fresh], None, torch.tensor(y[fresh] - centre))


@lru_cache(maxsize=2)
def _table(kind: str) -> tuple[Array, Array, int]:
    """Standardised inputs and output, and the column that sorts: the larger, the more asked for."""
    if kind == "cars":
        cars = load_auto_mpg().dropna()
        X = cars.drop(columns="mpg").to_numpy()
        y = cars["mpg"].to_numpy()
        column = 3
        X[:, column] *= -1  # weight: light cars
    else:
        X, y = load_diabetes(return_X_y=True)
        column = 2  # body-mass index
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std(), column


def _hyperparameters(X: Array, y: Array) -> tuple[Array, float, float]:
    """Length scales, prior and noise variance by the marginal likelihood."""
    start = ConstantKernel(1.0) * RBF(np.ones(X.shape[1]), (0.1, 1e3))
    start += WhiteKernel(0.2, (1e-3, 10))
    # A length scale at its bound is meant.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        kernel = GaussianProcessRegressor(start, alpha=0.0).fit(X, y).kernel_
    signal = kernel.k1
    noise = kernel.k2
    return signal.k2.length_scale, signal.k1.constant_value, noise.noise_level
