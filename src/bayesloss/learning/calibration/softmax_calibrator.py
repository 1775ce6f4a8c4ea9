r"""Calibration of many classes at once: a matrix that lets them speak for each other, then sources.

Log probabilities, with half the least one seen in place of 0 or of -inf, are scaled by a
temperature, and one further case is spread over the classes,

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
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag, solve_triangular
from scipy.special import expit, softmax
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import gen_batches
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_array, check_is_fitted

from bayesloss.arrays import (
    Array,
    near_distributions,
    one_label_a_row,
    read_distributions,
    untensored,
)
from bayesloss.learning.calibration.calibrator_base import (
    LOG_TEMPERATURE_VARIANCE,
    WIDER,
    Scale,
    composite_power,
    matrix_precision,
)
from bayesloss.learning.calibration.monotone_curves import MonotoneCurve
from bayesloss.learning.calibration.softmax_tails import fit_tails
from bayesloss.learning.data.estimator_base import check_level
from bayesloss.learning.data.rows import Rows
from bayesloss.threads import on_one_thread, threads_for
from bayesloss.warnings import warn_unconverged

_TINY = float(np.finfo(np.float64).tiny)  # the least normal number of 64 bits
_LARGEST = 1e100  # of scores, in size: their products with a temperature stay numbers
_MOSTLY = 0.5  # the part of rows that are distributions where scores are probabilities
_ROWS = 1_000  # that sources and bands are computed for at a time


@on_one_thread
class SoftmaxCalibrator(ClassifierMixin, BaseEstimator):
    """Scores of K classes to probabilities: temperature, structured matrix, monotone sources.

    Fit it to scores of cases that the classifier was *not* trained on, as
    :class:`~bayesloss.CalibratedClassifier` does. No predicted probability is 0, as if one more
    case were spread over the classes; an unseen score of 0 is about its format's least number.

    Parameters
    ----------
    scale : {"auto", "probability", "real"}, default="auto"
        Whether scores are probabilities, whose rows sum to 1, or margins or unnormalised log
        probabilities, -inf for classes that are ruled out. "auto" takes them for probabilities if
        half of the rows at least are distributions up to rounding, and then refuses what is none.
    sources : bool, default=True
        Whether sources follow the matrix.
    classes : array-like of shape (K,), default=None
        The labels of the columns; None for those of the cases, sorted. Cases may lack some.

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
        "scale": [StrOptions(set(get_args(Scale)))],
        "sources": ["boolean"],
        "classes": ["array-like", None],
    }

    def __init__(
        self,
        *,
        scale: Scale = "auto",
        sources: bool = True,
        classes: ArrayLike | None = None,
    ) -> None:
        self.scale = scale
        self.sources = sources
        self.classes = classes

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
            As for :meth:`LinkCalibrator.fit`, but with a column of scores for each class.

        Raises
        ------
        ValueError
            If columns and classes differ in number, or rows are NaN, infinite or no distributions;
            labels, weights and groups as for :meth:`LinkCalibrator.fit`.
        """
        from bayesloss.learning.calibration import calibrator_fit as fit

        self._validate_params()
        values = _checked_rows(scores).astype(np.float64)
        rows = Rows.of(values, y, sample_weight, groups)
        codes = self._read_classes(rows.y)
        if len(self.classes_) != rows.x.shape[1] or len(self.classes_) < 2:
            counted = ""
            if len(rows.y) < len(values):
                counted = " with a weight above zero"
            hint = "" if self.classes is not None else ": name them by classes= if cases lack some"
            raise ValueError(
                f"expected a column of scores a class, got {rows.x.shape[1]} columns and labels of "
                f"{len(self.classes_)} classes{counted}{hint}"
            )
        self.scale_ = self.scale
        if self.scale == "auto":
            mostly = near_distributions(rows.x).mean() >= _MOSTLY
            self.scale_ = "probability" if mostly else "real"
        values = self._in_scale(rows.x)
        self.power_ = 1.0
        loss = fit.CrossEntropy(codes, rows.weight)
        logits = self._fit_temperature(values, loss)
        if rows.groups is not None:
            self.power_ = composite_power(logits, codes, rows.weight, rows.groups)
            loss = fit.CrossEntropy(codes, self.power_ * rows.weight)
            logits = self._fit_temperature(values, loss)
        self._cases = (logits, loss.weight)
        affine = fit.fit_matrix(logits, loss)
        self.matrix_ = affine.matrix
        self.intercept_ = affine.intercept
        self.converged_ = affine.converged
        self._sources: list[MonotoneCurve] = []
        if self.sources:
            self._sources, converged = fit.fit_sources(self._mixed(logits), loss)
            self.converged_ &= converged
        if not self.converged_:
            warn_unconverged(
                f"a search did not converge in {fit.MAX_ITER} steps; more cases a class would help"
            )
        return self

    def predict_proba(self, scores: ArrayLike) -> Array:
        """The probabilities of the classes, of shape (n, K)."""
        logits = self._tempered(self._as_scores(scores))
        return softmax(self._sourced(self._mixed(logits)), axis=1)

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
        for block in np.array_split(values, math.ceil(len(values) / _ROWS)):
            p, g = self._derivatives(self._tempered(block))
            with threads_for(len(block), *root.shape[1:]):
                moved = g @ root
            deviation = np.linalg.norm(moved - np.einsum("nk,kne->ne", p, moved), axis=2).T
            rest = (1 - p).clip(min=_TINY)
            odds = np.log(p) - np.log(rest)
            spread = half * deviation / rest
            ends.append(expit([odds - spread, odds + spread]))
        low, high = np.concatenate(ends, axis=1)
        return low, high

    def _read_classes(self, labels: NDArray) -> NDArray:
        """Set the classes; return the number of each label among them."""
        kinds, codes = np.unique(labels, return_inverse=True)
        self.classes_ = kinds
        if self.classes is None:
            return codes
        self.classes_ = one_label_a_row(self.classes)
        place = {name: k for k, name in enumerate(self.classes_.tolist())}
        if len(place) < len(self.classes_):
            raise ValueError(f"expected different classes, got {self.classes_.tolist()}")
        unknown = [kind for kind in kinds.tolist() if kind not in place]
        if unknown:
            raise ValueError(f"expected labels among the classes, got {unknown[0]!r}")
        return np.array([place[kind] for kind in kinds.tolist()])[codes]

    def _fit_temperature(self, scores: Array, loss: Any) -> Array:
        """Temperature and map of tails; returns the log probabilities l."""
        self._floor = 0.0
        if self.scale_ == "probability" and (scores == 0).any():
            self._floor = max(0.5 * float(scores[scores > 0].min()), _TINY)
        self._ruled_out = math.log(_TINY)
        if self.scale_ == "real" and (scores == -np.inf).any():
            behind = scores - scores.max(axis=1, keepdims=True)
            self._ruled_out = float(behind[np.isfinite(behind)].min()) - math.log(2)
        self._vote = 1 / (float(loss.weight.sum()) * scores.shape[1])
        self.tails_ = fit_tails(self._logits(scores), loss.codes, loss.weight)
        self.temperature_ = self.tails_.t
        return self._tempered(scores)

    def _as_scores(self, scores: ArrayLike) -> NDArray:
        check_is_fitted(self)
        values = _checked_rows(scores)
        if values.shape[1] != len(self.classes_):
            K = len(self.classes_)
            raise ValueError(f"expected a column a class, {K} of them, got {values.shape[1]}")
        return self._in_scale(values)

    def _in_scale(self, scores: NDArray) -> NDArray:
        """Rows that, as probabilities, have the sum 1 and not only within rounding."""
        if self.scale_ == "probability":
            hint = "" if self.scale == "probability" else ": mend it, or fit with scale='real'"
            return read_distributions(scores, hint)
        ruled_out = scores == -np.inf
        bad = (np.abs(scores.astype(np.float64, copy=False)) > _LARGEST) & ~ruled_out
        bad |= ruled_out.all(axis=1, keepdims=True)
        if bad.any():
            row = int(bad.any(axis=1).argmax())
            raise ValueError(
                f"expected rows of scores of at most {_LARGEST:g}, or -inf for some classes, got "
                f"{scores[bad][0]:.3g} in row {row}"
            )
        return scores

    def _logits(self, scores: NDArray) -> Array:
        """Log probabilities, or scores as they are."""
        # A 0 stands for what its format rounds to 0, or for the least normal number of 64 bits.
        least = max(float(np.finfo(scores.dtype).smallest_subnormal) / 2, _TINY)
        scores = scores.astype(np.float64, copy=False)
        if self.scale_ == "probability":
            return np.log(np.maximum(scores, least) + self._floor)
        ruled_out = scores == -np.inf
        if not ruled_out.any():
            return scores
        return np.where(ruled_out, scores.max(axis=1, keepdims=True) + self._ruled_out, scores)

    def _tempered(self, scores: NDArray) -> Array:
        """Log probabilities l after temperature and spread case, of zero sum in each row."""
        probabilities = softmax(self.tails_(self._logits(scores)), axis=1)
        logits = np.log(probabilities + self._vote)
        return logits - logits.mean(axis=1, keepdims=True)

    def _mixed(self, logits: Array) -> Array:
        """The logits u = l + W l + b."""
        return logits @ self.matrix_.T + self.intercept_

    def _sourced(self, u: Array) -> Array:
        """The logits z = nu(u)."""
        if not self._sources:
            return u
        blocks = [
            [source(column) for source, column in zip(self._sources, u[rows].T, strict=True)]
            for rows in gen_batches(len(u), _ROWS)
        ]
        return np.concatenate(blocks, axis=1).T

    def _derivatives(self, logits: Array) -> tuple[Array, Array]:
        """Probabilities (n, K), and the derivatives g (K, n, d) of each z in its parameters."""
        u = self._mixed(logits)
        by_line = np.column_stack([logits, np.ones(len(u))])  # of u_k, in row k of W and in b_k
        g = [by_line] * u.shape[1]
        for k, source in enumerate(self._sources):
            slope, by_Gamma = source.derivatives(u[:, k])
            g[k] = np.column_stack([slope[:, None] * by_line, by_Gamma])
        return softmax(self._sourced(u), axis=1), np.stack(g)

    def _root(self) -> Array:
        """A square root of the posterior covariance, with a block of rows for each class."""
        logits, weight = self._cases
        p, g = self._derivatives(logits)
        K, _, d = g.shape
        precision = matrix_precision(K)
        # The temperature's variance times m m^T is added to the prior's covariance, m = (I + W, b).
        m = np.column_stack([self.matrix_, self.intercept_])
        if self._sources:
            of_sources = np.stack([source.precision for source in self._sources])
            precision = np.concatenate([precision, of_sources], axis=1)
            m = np.pad(m, ((0, 0), (0, of_sources.shape[1])))
        scaled = precision * m
        H = np.diag(precision.ravel())
        H -= np.outer(scaled, scaled) / (1 / LOG_TEMPERATURE_VARIANCE + (scaled * m).sum())
        H += block_diag(*(g.swapaxes(1, 2) @ ((weight[:, None] * p).T[:, :, None] * g)))
        mean = (np.sqrt(weight)[:, None] * p)[:, :, None] * g.swapaxes(0, 1)
        mean = mean.reshape(-1, K * d)
        with threads_for(K * d, *mean.shape):
            factor = np.linalg.cholesky(H - mean.T @ mean)
            return solve_triangular(factor.T, np.eye(K * d)).reshape(K, d, K * d)


def _checked_rows(scores: ArrayLike) -> NDArray:
    """Scores of shape (n, K) as floats of their own precision, infinite or not; never NaN."""
    kinds = [np.float64, np.float32, np.float16]
    rows: NDArray = check_array(untensored(scores), dtype=kinds, ensure_all_finite=False)
    if np.isnan(rows).any():
        row = int(np.isnan(rows).any(axis=1).argmax())
        raise ValueError(f"expected scores, got NaN in row {row}")
    return rows
