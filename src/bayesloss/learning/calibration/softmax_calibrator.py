r"""Calibration of many classes at once: a matrix that lets them speak for each other, then sources.

Log probabilities, with half the least one seen in place of 0, are scaled by a temperature, and one
further case is spread over the classes,

    l = log(softmax(t log p) + 1 / (n K)).

With a matrix W and an intercept b, and a monotone source nu_k for each class,

    u = l + W l + b,      p(k | l) = exp nu_k(u_k) / sum_j exp nu_j(u_j).

The penalty on W and b is that of structured matrix scaling (Berta, Holzmueller, Jordan and Bach
2026): Gaussian variances 1 / (2 K) of diagonal and intercept, 1 / (2 K (K - 1)) off the diagonal.
The prior of nu_k is an ISGP around the line u, straight beyond the scores. Temperature, matrix and
sources are fitted one after the other, each at its mode.

Bands are Laplace's. With z_k = nu_k(u_k), the derivatives of z_k in the parameters of class k are
g_k = (nu_k'(u_k) (l, 1), d nu_k / d Gamma_k), and the posterior precision of all parameters is

    prior precision + sum_n w_n G_n^T (diag p_n - p_n p_n^T) G_n,   G_n = blockdiag(g_n1, ...).

The temperature's own prior widens that of W along I + W. The log odds of class k against the rest
have the derivatives (e_k - p) / (1 - p_k) in z.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.calibration.calibrator_base import WIDER, composite_power
from bayesloss.learning.data.estimator_base import check_level
from bayesloss.learning.data.rows import Rows
from bayesloss.learning.sources.priors import CentredISGP, StraightEnds
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.optimise import differentiated, minimise
from bayesloss.warnings import warn_unconverged

_TEMPERATURES = (1e-4, 1e4)
_N_BASIS, _SMOOTHNESS, _VARIANCE, _LEVEL_SPREAD, _GAMMA = 16, 2.5, 0.03, 0.05, 20.0
_FILLED = 0.5  # the part of a kernel's period that a class's u fill
_SEARCH = {"maxiter": 500}
_TINY = float(np.finfo(np.float64).tiny)
_ROWS = 1_000  # that bands are computed for at a time


class SoftmaxCalibrator(ClassifierMixin, BaseEstimator):
    """Scores of K classes to probabilities: temperature, structured matrix, monotone sources.

    Fit it to scores of cases that the classifier was *not* trained on, as
    :class:`~bayesloss.CalibratedClassifier` does. No predicted probability is 0, as if one more
    case were spread over the classes; an unseen score of 0 is about its format's least number.

    Parameters
    ----------
    scale : {"auto", "probability", "real"}, default="auto"
        Whether scores are probabilities, whose rows sum to 1, or margins or unnormalised log
        probabilities. "auto" looks whether every row is a distribution.
    sources : bool, default=True
        Whether sources follow the matrix.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
    temperature_, matrix_, intercept_ : float, ndarray of shape (K, K), ndarray of shape (K,)
        The factor t, the identity plus W, and b.
    scale_, power_, converged_ : as for :class:`LinkCalibrator`

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
        """Fit temperature, matrix and sources; return self. Warns if a search did not converge.

        Parameters
        ----------
        scores, y, sample_weight, groups : array-like of shape (n, K), (n,), (n,), (n,)
            As for :meth:`LinkCalibrator.fit`, but with a column of scores for each sorted label.

        Raises
        ------
        ValueError
            If columns and classes differ in number, or rows are not finite or no distributions.
        """
        self._validate_params()
        values = check_array(scores, dtype=np.float64)
        rows = Rows.of(values, y, sample_weight, groups)
        self.classes_, codes = np.unique(rows.y, return_inverse=True)
        if len(self.classes_) != rows.x.shape[1] or len(self.classes_) < 2:
            weighted = " with a weight above zero" if len(rows.y) < len(values) else ""
            raise ValueError(
                f"expected a column of scores a class, got {rows.x.shape[1]} columns and labels of "
                f"{len(self.classes_)} classes{weighted}"
            )
        self.scale_ = self.scale
        if self.scale == "auto":
            self.scale_ = "probability" if _distributions(rows.x) else "real"
        self.power_, weight = 1.0, torch.from_numpy(rows.weight)
        logits, loss = self._fit_temperature(rows.x, codes, weight)
        if rows.groups is not None:
            self.power_ = composite_power(logits.numpy(), codes, rows.weight, rows.groups)
            weight = self.power_ * weight
            logits, loss = self._fit_temperature(rows.x, codes, weight)
        self._cases = logits, weight
        self.converged_ = self._fit_matrix(logits, loss)
        self._sources: list[tuple[StraightEnds, Tensor]] = []
        if self.sources:
            self.converged_ &= self._fit_sources(self._mixed(logits), loss)
        if not self.converged_:
            warn_unconverged(
                f"a search did not converge in {_SEARCH['maxiter']} steps; "
                "more cases a class would help"
            )
        return self

    def predict_proba(self, scores: ArrayLike) -> Array:
        """The probabilities of the classes, of shape (n, K)."""
        logits = self._tempered(self._as_scores(scores))
        return torch.softmax(self._sourced(self._mixed(logits)), dim=1).numpy()

    def predict(self, scores: ArrayLike) -> NDArray:
        """The most probable class, of shape (n,)."""
        best = self.predict_proba(scores).argmax(axis=1)
        return self.classes_[best]

    def predict_interval(self, scores: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper ends of an interval for each class by itself, both of shape (n, K).

        Laplace's approximation to the log odds of each class against the rest, widened by a fifth
        as in :class:`LinkCalibrator`. It covers the sampling error only: if the truth is not of the
        fitted kind, intervals contain it less often than ``level`` says.
        """
        check_level(level)
        values = self._as_scores(scores)
        root = self._root()
        half = WIDER * float(norm.ppf((1 + level) / 2))
        ends = []
        for part in np.array_split(values, math.ceil(len(values) / _ROWS)):
            p, g = self._derivatives(self._tempered(part))
            moved = torch.einsum("nkd,kde->nke", g, root)
            away = (moved - torch.einsum("nk,nke->ne", p, moved)[:, None]).norm(dim=2)
            rest = (1 - p).clamp(min=_TINY)
            odds, spread = torch.log(p) - torch.log(rest), half * away / rest
            ends.append(torch.sigmoid(torch.stack([odds - spread, odds + spread])))
        low, high = torch.cat(ends, dim=1).numpy()
        return low, high

    def _fit_temperature(
        self, scores: Array, codes: NDArray, weight: Tensor
    ) -> tuple[Tensor, "_Loss"]:
        """The temperature; the log probabilities l, and the loss of logits, in nats."""
        target, cross_entropy = torch.from_numpy(codes), torch.nn.functional.cross_entropy

        def loss(logits: Tensor) -> Tensor:
            return weight @ cross_entropy(logits, target, reduction="none")

        self._floor = 0.0
        if self.scale_ == "probability" and (scores == 0).any():
            self._floor = max(0.5 * float(scores[scores > 0].min()), _TINY)
        self._vote = 1 / (float(weight.sum()) * scores.shape[1])
        logits = torch.from_numpy(self._logits(scores))
        found = minimize_scalar(
            # A weak prior keeps the temperature finite where classes can be separated.
            lambda log_t: float(loss(math.exp(log_t) * logits)) + log_t**2 / 8,
            bounds=np.log(_TEMPERATURES),
            method="bounded",
        )
        self.temperature_ = math.exp(found.x)
        return self._tempered(scores), loss

    def _fit_matrix(self, logits: Tensor, loss: "_Loss") -> bool:
        """Matrix and intercept, and whether the search for them converged."""
        K = logits.shape[1]
        penalty = _prior_precision(K) / 2

        def objective(theta: Tensor) -> Tensor:
            W = theta.reshape(K, K + 1)
            return loss(logits + logits @ W[:, :K].T + W[:, K]) + (penalty * W**2).sum()

        found = minimise(differentiated(objective), logits.new_zeros(K * (K + 1)), options=_SEARCH)
        mode = np.eye(K, K + 1) + found.x.reshape(K, K + 1)
        self.matrix_, self.intercept_ = mode[:, :K].copy(), mode[:, K].copy()
        return bool(found.success)

    def _fit_sources(self, u: Tensor, loss: "_Loss") -> bool:
        """All sources together, in units of their priors' standard deviations."""
        priors, features = [], []
        for column in u.T:
            centre = (column.min() + column.max()) / 2
            reach = float((column - centre).abs().max())
            kernel = TrigonometricKernel(
                a=_SMOOTHNESS, c=_FILLED / reach if reach > 0 else 1.0, n_basis=_N_BASIS
            )
            kernel = kernel.scaled(_VARIANCE)
            line = CentredISGP(kernel, tau=_LEVEL_SPREAD, mu=float(centre), gamma=_GAMMA)
            prior = StraightEnds(line, kernel.edge, 2 * kernel.edge)
            priors.append(prior)
            features.append(prior.features(column - centre))
        location = torch.stack([prior.location for prior in priors])
        spread = priors[0].precision.rsqrt()  # the same for all

        def objective(theta: Tensor) -> Tensor:
            Gamma = location + theta.reshape(location.shape) * spread
            columns = [
                h @ prior.coefficients(each)
                for h, prior, each in zip(features, priors, Gamma, strict=True)
            ]
            return loss(torch.stack(columns, dim=1)) + (theta**2).sum() / 2

        found = minimise(differentiated(objective), u.new_zeros(location.numel()), options=_SEARCH)
        Gamma = location + torch.from_numpy(found.x).reshape(location.shape) * spread
        self._sources = list(zip(priors, Gamma, strict=True))
        return bool(found.success)

    def _as_scores(self, scores: ArrayLike) -> NDArray:
        check_is_fitted(self)
        values: NDArray = check_array(scores, dtype=[np.float64, np.float32])
        if values.shape[1] != len(self.classes_):
            K = len(self.classes_)
            raise ValueError(f"expected a column a class, {K} of them, got {values.shape[1]}")
        return values

    def _logits(self, scores: NDArray) -> Array:
        """Log probabilities, or scores as they are."""
        # A 0 stands for what its format rounds to 0, or for the least normal number of 64 bits.
        least = max(float(np.finfo(scores.dtype).smallest_subnormal) / 2, _TINY)
        scores = scores.astype(np.float64, copy=False)
        if self.scale_ == "real":
            return scores
        if not _distributions(scores):
            raise ValueError("expected rows that are distributions: at least 0, of sum 1")
        return np.log(np.maximum(scores, least) + self._floor)

    def _tempered(self, scores: NDArray) -> Tensor:
        """Log probabilities l after temperature and spread case, of zero sum in each row."""
        probabilities = softmax(self.temperature_ * self._logits(scores), axis=1)
        logits = np.log(probabilities + self._vote)
        return torch.from_numpy(logits - logits.mean(axis=1, keepdims=True))

    def _mixed(self, logits: Tensor) -> Tensor:
        """The logits u = l + W l + b."""
        return logits @ torch.from_numpy(self.matrix_).T + torch.from_numpy(self.intercept_)

    def _sourced(self, u: Tensor) -> Tensor:
        """The logits z = nu(u)."""
        columns = [
            prior.source(column - prior.mu, Gamma)
            for column, (prior, Gamma) in zip(u.T, self._sources, strict=False)
        ]
        return torch.stack(columns, dim=1) if columns else u

    def _derivatives(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (n, K), and the derivatives g of each class's z in its parameters."""
        u = self._mixed(logits)
        line = torch.nn.functional.pad(logits, (0, 1), value=1.0)
        rows = [line] * u.shape[1]
        for k, (prior, Gamma) in enumerate(self._sources):
            t = u[:, k] - prior.mu
            own = prior.features(t) @ prior.jacobian(Gamma)
            rows[k] = torch.cat([prior.derivative(t, Gamma)[:, None] * line, own], dim=1)
        return torch.softmax(self._sourced(u), dim=1), torch.stack(rows, dim=1)

    def _root(self) -> Tensor:
        """A square root of the posterior covariance, with a block of rows for each class."""
        logits, weight = self._cases
        p, g = self._derivatives(logits)
        K, d = g.shape[1:]
        precision = _prior_precision(K)
        # The temperature: covariance 4 m m^T is added to the prior's, m = (I + W, b).
        m = torch.from_numpy(np.column_stack([self.matrix_, self.intercept_]))
        if self._sources:
            own = torch.stack([prior.precision for prior, _ in self._sources])
            precision = torch.cat([precision, own], dim=1)
            m = torch.nn.functional.pad(m, (0, own.shape[1]))
        scaled = precision * m
        H = torch.diag(precision.flatten())
        H -= torch.outer(scaled.flatten(), scaled.flatten()) / (0.25 + (scaled * m).sum())
        H += torch.block_diag(*torch.einsum("nk,nkd,nke->kde", weight[:, None] * p, g, g))
        mean = (weight.sqrt()[:, None, None] * p[:, :, None] * g).flatten(1)
        H -= mean.T @ mean
        factor = torch.linalg.cholesky(H)
        identity = torch.eye(K * d, dtype=torch.float64)
        return torch.linalg.solve_triangular(factor.T, identity, upper=True).reshape(K, d, K * d)


_Loss = Callable[[Tensor], Tensor]


def _prior_precision(K: int) -> Tensor:
    """Prior precisions of W and, in the last column, b."""
    precision = torch.full((K, K + 1), 2.0 * K * (K - 1), dtype=torch.float64)
    precision[:, K] = 2 * K
    precision[range(K), range(K)] = 2 * K
    return precision


def _distributions(scores: Array) -> bool:
    sums = scores.sum(axis=1)
    return bool((scores >= 0).all() and np.allclose(sums, 1, rtol=0, atol=1e-4))
