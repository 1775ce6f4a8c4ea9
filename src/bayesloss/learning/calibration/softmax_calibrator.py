r"""Calibration of many classes at once: a matrix that lets them speak for each other, then sources.

Log probabilities are tempered, with half the least probability seen in place of zeros, and then one
case more is spread over the classes,

    l = log(softmax(t log p) + 1 / (n K)).

With a matrix W and an intercept b, and a monotone source nu_k a class,

    u = l + W l + b,      p(k | l) = exp nu_k(u_k) / sum_j exp nu_j(u_j).

W and b are kept near zero by the penalty of structured matrix scaling (Berta, Holzmueller, Jordan
and Bach 2026), which is a Gaussian prior: variances 1 / (2 K) of diagonal and intercept, and
1 / (2 K (K - 1)) off the diagonal. Every nu_k has a :class:`CentredISGP` for its prior, the mean of
which is nu_k(u) = u. The three parts are fitted one after the other, each at its mode.

Bands are Laplace's around that fit. With z_k = nu_k(u_k), the derivatives of z_k in the parameters
of class k are g_k = (nu_k'(u_k) (l, 1), d nu_k / d Gamma_k), and the precision of all of them is

    prior precision + sum_n w_n G_n^T (diag p_n - p_n p_n^T) G_n,   G_n = blockdiag(g_n1, ...).

The temperature's own weak prior widens that of W along I + W. The log odds of class k against the
rest have the derivatives (e_k - p) / (1 - p_k) in z.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import softmax
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)
from torch import Tensor

from bayesloss.learning.calibration.composite_power import composite_power
from bayesloss.learning.sources.priors import CentredISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel

__all__ = ["SoftmaxCalibrator"]

Array = NDArray[np.float64]

_TEMPERATURES = (1e-4, 1e4)
_N_BASIS, _SMOOTHNESS, _VARIANCE, _LEVEL_SPREAD, _GAMMA = 16, 2.5, 0.03, 0.05, 20.0
_FILLED = 0.5  # the part of a kernel's period that a class's u fill
_STEPS = 500
_WIDER = 1.2  # what the band's half widths are multiplied by
_TINY = float(np.finfo(np.float64).tiny)
_ROWS = 1_000  # that bands are computed for at a time


class SoftmaxCalibrator(ClassifierMixin, BaseEstimator):
    """Scores of K classes to probabilities: temperature, structured matrix, monotone sources.

    Fit it to scores of cases that the classifier was *not* trained on;
    :class:`~bayesloss.CalibratedClassifier` arranges that.

    Parameters
    ----------
    scale : {"auto", "probability", "real"}, default="auto"
        What the scores are: probabilities, whose rows sum to 1, or log probabilities up to a
        constant a row, or margins. "auto" looks whether every row is a distribution.
    sources : bool, default=True
        Whether sources follow the matrix.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
    scale_ : str
    temperature_ : float
        The factor t.
    matrix_ : ndarray of shape (K, K)
        The identity plus W.
    intercept_ : ndarray of shape (K,)
    power_ : float
        The part that a case counts for, below 1 where cases of a group resemble each other.
    converged_ : bool

    Notes
    -----
    No probability that is predicted is 0: as if one case more were spread over the classes. A score
    of 0, if there were none in the fit, counts as the last number that its format, of 32 or 64
    bits, tells from 0.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from bayesloss import SoftmaxCalibrator
    >>> X, y = load_digits(return_X_y=True)
    >>> forest = RandomForestClassifier(random_state=0).fit(X[:900], y[:900])
    >>> calibrator = SoftmaxCalibrator().fit(forest.predict_proba(X[900:]), y[900:])
    >>> calibrator.predict_proba(forest.predict_proba(X[:2])).shape
    (2, 10)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "scale": [StrOptions({"auto", "probability", "real"})],
        "sources": ["boolean"],
    }

    def __init__(self, *, scale: str = "auto", sources: bool = True) -> None:
        self.scale = scale
        self.sources = sources

    def fit(
        self,
        scores: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit temperature, matrix and sources.

        Parameters
        ----------
        scores : array-like of shape (n, K)
            A column a class, in the order of the sorted labels.
        y : array-like of shape (n,)
            Labels of K kinds, each of them present.
        sample_weight : array-like of shape (n,), optional
        groups : array-like of shape (n,), optional
            Which cases belong together. By as much as their errors resemble each other they count
            for less: the likelihood is raised to a power
            (:mod:`bayesloss.learning.calibration.composite_power`).

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there are not as many classes as columns, a score is NaN or infinite, or rows are no
            distributions where they should be.

        Warns
        -----
        ConvergenceWarning
            If a search did not converge.
        """
        self._validate_params()
        values: Array = check_array(scores, dtype=np.float64)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(values, labels)
        weight = _check_sample_weight(
            sample_weight, values, dtype=np.float64, ensure_non_negative=True
        )
        counted = weight > 0
        values, labels, weight = values[counted], labels[counted], weight[counted]
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) != values.shape[1] or len(self.classes_) < 2:
            raise ValueError(
                f"expected a column of scores a class, got {values.shape[1]} columns and labels of "
                f"{len(self.classes_)} classes"
            )
        self.scale_ = self.scale
        if self.scale == "auto":
            self.scale_ = "probability" if _distributions(values) else "real"
        loss = _Loss(torch.from_numpy(codes), torch.from_numpy(weight))
        tempered = self._fit_temperature(values, loss)
        self.power_ = 1.0
        if groups is not None:
            check_consistent_length(counted, groups)
            group = np.asarray(groups)[counted]
            self.power_ = composite_power(tempered.numpy(), codes, weight, group)
            loss = _Loss(torch.from_numpy(codes), torch.from_numpy(self.power_ * weight))
            tempered = self._fit_temperature(values, loss)
        matrix, self.converged_ = _fit_matrix(tempered, loss)
        self._cases = tempered, loss.weight
        self.matrix_, self.intercept_ = matrix[:, :-1].numpy(), matrix[:, -1].numpy()
        self._sources: list[tuple[CentredISGP, Tensor]] = []
        if self.sources:
            self._fit_sources(tempered @ matrix[:, :-1].T + matrix[:, -1], loss)
        if not self.converged_:
            warnings.warn(
                f"a search did not converge in {_STEPS} steps; more cases a class would help",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def predict_proba(self, scores: ArrayLike) -> Array:
        """The probabilities of the classes, of shape (n, K)."""
        check_is_fitted(self)
        u = self._mix(torch.from_numpy(self._tempered(self._as_scores(scores))))
        columns = [
            _continued_features(prior, u[:, k]) @ prior.coefficients(Gamma)
            for k, (prior, Gamma) in enumerate(self._sources)
        ]
        return torch.softmax(torch.stack(columns, dim=1) if columns else u, dim=1).numpy()

    def predict(self, scores: ArrayLike) -> NDArray:
        """The most probable class, of shape (n,)."""
        most = self.predict_proba(scores).argmax(axis=1)
        return self.classes_[most]

    def predict_interval(self, scores: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """Central intervals of the probability of each class, by itself.

        Parameters
        ----------
        scores : array-like of shape (n, K)
        level : float, default=0.95
            In (0, 1).

        Returns
        -------
        low, high : ndarray of shape (n, K)

        Notes
        -----
        Laplace's approximation on the scale of log odds, each class against the rest, widened by a
        fifth as in :class:`LinkCalibrator`. It knows of too few cases. Where the truth is no
        function of the kind that is fitted, as where a class's log odds bend by what another class
        says, it holds less than it promises.
        """
        if not 0 < level < 1:
            raise ValueError(f"expected a level in (0, 1), got {level}")
        check_is_fitted(self)
        values = self._as_scores(scores)
        root = self._root()
        half = _WIDER * float(norm.ppf((1 + level) / 2))
        ends = []
        for part in np.array_split(values, math.ceil(len(values) / _ROWS)):
            p, rows = self._derivatives(torch.from_numpy(self._tempered(part)))
            moved = torch.einsum("nkd,kde->nke", rows, root)
            away = (moved - torch.einsum("nk,nke->ne", p, moved)[:, None]).norm(dim=2)
            rest = (1 - p).clamp(min=torch.finfo(p.dtype).tiny)
            odds, spread = torch.log(p) - torch.log(rest), half * away / rest
            ends.append(torch.sigmoid(torch.stack([odds - spread, odds + spread])))
        low, high = torch.cat(ends, dim=1).numpy()
        return low, high

    def _root(self) -> Tensor:
        """A square root of the posterior covariance, a block of rows a class: (K, d, K d)."""
        logits, weight = self._cases
        p, rows = self._derivatives(logits)
        K, d = rows.shape[1:]
        precision = torch.zeros((K, K + 1), dtype=torch.float64)
        precision[:] = 2 * _penalty(K)
        if self._sources:
            own = torch.stack([prior.precision for prior, _ in self._sources])
            precision = torch.cat([precision, own], dim=1)
        H = torch.diag(precision.flatten())
        # The temperature: covariance 4 m m^T is added to the prior's, m = (I + W, b).
        m = torch.zeros((K, d), dtype=torch.float64)
        m[:, :K], m[:, K] = torch.from_numpy(self.matrix_), torch.from_numpy(self.intercept_)
        scaled = precision * m
        H -= torch.outer(scaled.flatten(), scaled.flatten()) / (0.25 + (scaled * m).sum())
        for k in range(K):
            own_rows = rows[:, k]
            part = slice(k * d, (k + 1) * d)
            H[part, part] += own_rows.T @ ((weight * p[:, k])[:, None] * own_rows)
        mean = (weight.sqrt()[:, None, None] * p[:, :, None] * rows).flatten(1)
        H -= mean.T @ mean
        factor = torch.linalg.cholesky(H)
        identity = torch.eye(K * d, dtype=torch.float64)
        return torch.linalg.solve_triangular(factor.T, identity, upper=True).reshape(K, d, K * d)

    def _derivatives(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (n, K), and the derivatives g of each class's z in its parameters."""
        u = self._mix(logits)
        line = torch.cat([logits, logits.new_ones((len(logits), 1))], dim=1)
        if not self._sources:
            return torch.softmax(u, dim=1), line[:, None].expand(-1, u.shape[1], -1)
        z, rows = [], []
        for k, (prior, Gamma) in enumerate(self._sources):
            features = _continued_features(prior, u[:, k])
            z.append(features @ prior.coefficients(Gamma))
            edge = 1 / prior.kernel.c
            t = u[:, k] - prior.mu
            steep = prior.derivative(t.clamp(-edge, edge), Gamma)
            ends = prior.source(t.new_tensor([-edge, edge]), Gamma)
            slope = torch.where(t.abs() <= edge, steep, (ends[1] - ends[0]) / (2 * edge))
            own = features @ prior.jacobian(Gamma)
            rows.append(torch.cat([slope[:, None] * line, own], dim=1))
        return torch.softmax(torch.stack(z, dim=1), dim=1), torch.stack(rows, dim=1)

    def _fit_temperature(self, scores: Array, loss: "_Loss") -> Tensor:
        """The temperature; the log probabilities l."""
        self._floor = 0.0
        if self.scale_ == "probability" and (scores == 0).any():
            self._floor = max(0.5 * float(scores[scores > 0].min()), _TINY)
        self._vote = 1 / (float(loss.weight.sum()) * scores.shape[1])
        logits = torch.from_numpy(self._logits(scores))
        found = minimize_scalar(
            # A weak prior keeps the temperature finite where classes can be separated.
            lambda log_t: float(loss(math.exp(log_t) * logits)) + log_t**2 / 8,
            bounds=np.log(_TEMPERATURES),
            method="bounded",
        )
        self.temperature_ = math.exp(found.x)
        return torch.from_numpy(self._tempered(scores))

    def _fit_sources(self, u: Tensor, loss: "_Loss") -> None:
        """All sources together, in units of their priors' standard deviations."""
        priors, features = [], []
        self._centres = (u.min(dim=0).values + u.max(dim=0).values) / 2
        for k in range(u.shape[1]):
            t = u[:, k] - self._centres[k]
            reach = float(t.abs().max())
            kernel = TrigonometricKernel(
                a=_SMOOTHNESS, c=_FILLED / reach if reach > 0 else 1.0, n_basis=_N_BASIS
            )
            prior = CentredISGP(
                kernel.scaled(_VARIANCE),
                tau=_LEVEL_SPREAD,
                mu=float(self._centres[k]),
                gamma=_GAMMA,
            )
            priors.append(prior)
            features.append(prior.features(t))
        size = len(priors[0].location)

        def parameters(theta: Tensor) -> list[Tensor]:
            steps = theta.reshape(-1, size)
            return [
                p.location + step * p.precision.rsqrt()
                for p, step in zip(priors, steps, strict=True)
            ]

        def objective(theta: Tensor) -> Tensor:
            columns = [
                h @ prior.coefficients(Gamma)
                for h, prior, Gamma in zip(features, priors, parameters(theta), strict=True)
            ]
            return loss(torch.stack(columns, dim=1)) + (theta**2).sum() / 2

        start = torch.zeros(size * len(priors), dtype=torch.float64)
        theta, converged = _minimise(objective, start)
        self.converged_ = self.converged_ and converged
        self._sources = list(zip(priors, parameters(theta), strict=True))

    def _logits(self, scores: Array) -> Array:
        """Log probabilities, or scores as they are."""
        # A 0 stands for what its format rounds to 0, or for the least normal number of 64 bits.
        least = max(float(np.finfo(scores.dtype).smallest_subnormal) / 2, _TINY)
        scores = scores.astype(np.float64, copy=False)
        if self.scale_ == "real":
            return scores
        if not _distributions(scores):
            raise ValueError("expected rows that are distributions: at least 0, of sum 1")
        return np.log(np.maximum(scores, least) + self._floor)

    def _tempered(self, scores: Array) -> Array:
        """Log probabilities l after the temperature and the vote, of zero sum in each row."""
        probabilities = softmax(self.temperature_ * self._logits(scores), axis=1)
        logits = np.log(probabilities + self._vote)
        return logits - logits.mean(axis=1, keepdims=True)

    def _mix(self, logits: Tensor) -> Tensor:
        """The logits u."""
        return logits @ torch.from_numpy(self.matrix_).T + torch.from_numpy(self.intercept_)

    def _as_scores(self, scores: ArrayLike) -> Array:
        values: Array = check_array(scores, dtype=[np.float64, np.float32])
        if values.shape[1] != len(self.classes_):
            raise ValueError(
                f"expected a column a class, {len(self.classes_)} of them, got {values.shape[1]}"
            )
        return values


@dataclass(frozen=True)
class _Loss:
    """The weighted log loss of logits, in nats."""

    target: Tensor
    weight: Tensor

    def __call__(self, logits: Tensor) -> Tensor:
        losses = torch.nn.functional.cross_entropy(logits, self.target, reduction="none")
        return self.weight @ losses


def _fit_matrix(logits: Tensor, loss: _Loss) -> tuple[Tensor, bool]:
    """The matrix with the intercept beside it, and whether the search converged."""
    K = logits.shape[1]
    penalty = _penalty(K)

    def objective(theta: Tensor) -> Tensor:
        W = theta.reshape(K, K + 1)
        return loss(logits + logits @ W[:, :K].T + W[:, K]) + (penalty * W**2).sum()

    theta, converged = _minimise(objective, torch.zeros(K * (K + 1), dtype=torch.float64))
    return torch.eye(K, K + 1, dtype=torch.float64) + theta.reshape(K, K + 1), converged


def _penalty(K: int) -> Tensor:
    """Of the squares of W and, in the last column, b: half the prior precisions."""
    penalty = torch.full((K, K + 1), float(K * (K - 1)), dtype=torch.float64)
    penalty[:, K] = K
    penalty[range(K), range(K)] = K
    return penalty


def _minimise(objective: Callable[[Tensor], Tensor], start: Tensor) -> tuple[Tensor, bool]:
    def with_gradient(vector: Array) -> tuple[float, Array]:
        theta = torch.from_numpy(vector.copy()).requires_grad_()
        value = objective(theta)
        (gradient,) = torch.autograd.grad(value, theta)
        return float(value.detach()), gradient.numpy()

    found = minimize(
        with_gradient, start.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS}
    )
    return torch.from_numpy(found.x), bool(found.success)


def _distributions(scores: Array) -> bool:
    sums = scores.sum(axis=1)
    return bool((scores >= 0).all() and np.allclose(sums, 1, rtol=0, atol=1e-4))


def _continued_features(prior: CentredISGP, u: Tensor) -> Tensor:
    """The functions that a source combines; beyond the kernel's half periods straight lines."""
    edge = 1 / prior.kernel.c
    t = u - prior.mu
    inside = t.clamp(-edge, edge)
    ends = prior.features(t.new_tensor([-edge, edge]))
    rise = (ends[1] - ends[0]) / (2 * edge)
    return prior.features(inside) + rise * (t - inside)[:, None]
