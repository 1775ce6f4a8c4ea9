r"""Calibration of many classes at once: a matrix that lets them speak for each other, then sources.

Log probabilities, with half the least one seen in place of 0 or of -inf, are scaled by a
temperature t, their tails brought nearer (:mod:`bayesloss.learning.calibration.softmax_tails`), and
one further case is spread over the classes,

    l = log(softmax(t tails(log p)) + 1 / (n K)).

With a matrix W and an intercept b, and a monotone source nu_k for each class,

    u = l + W l + b,      z_k = l_k + s (u_k - l_k + r (nu_k(u_k) - u_k)),      p(k | l) ~ exp z_k.

The penalty on W and b is that of structured matrix scaling (Berta, Holzmueller, Jordan and Bach
2026): Gaussian variances 1 / (2 K) of diagonal and intercept, 1 / (2 K (K - 1)) off the diagonal.
The prior of nu_k is an ISGP around the line u, straight beyond the scores. Temperature and tails,
matrix and sources are fitted one after the other, each at its mode. The shares s and r, in [0, 1],
are those under which cases that matrix and sources were not fitted to lose least, in five folds.

Bands are Laplace's (:mod:`bayesloss.learning.calibration.softmax_posterior`).
"""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_array, check_is_fitted

from bayesloss.arrays import (
    Array,
    near_distributions,
    one_label_a_row,
    read_distributions,
    untensored,
)
from bayesloss.learning.calibration.base_rates import at_prior
from bayesloss.learning.calibration.calibrator_base import WIDER, Scale, composite_power
from bayesloss.learning.calibration.monotone_curves import MonotoneCurve
from bayesloss.learning.calibration.softmax_posterior import Slopes, SoftmaxPosterior
from bayesloss.learning.calibration.softmax_tails import fit_tails
from bayesloss.learning.data.estimator_base import check_level
from bayesloss.learning.data.rows import Rows
from bayesloss.threads import on_one_thread
from bayesloss.warnings import warn_unconverged

_TINY = float(np.finfo(np.float64).tiny)  # the least normal number of 64 bits
_LARGEST = 1e100  # of scores, in size: their products with a temperature stay numbers
_MOSTLY = 0.5  # the part of rows that are distributions where scores are probabilities
_MANY = 200  # classes: of more, sources take longer than all else, and were never worth it
_DRAWS = 256  # of probabilities, as many as LinkCalibrator has


@on_one_thread
class SoftmaxCalibrator(ClassifierMixin, BaseEstimator):
    """Scores of K classes to probabilities: temperature, structured matrix, monotone sources.

    Fit it to scores of cases that the classifier was *not* trained on, as
    :class:`~bayesloss.CalibratedClassifier` does. No predicted probability is 0, as if one more
    case were spread over the classes; an unseen score of 0 is about its format's least number.

    On 40 sets of 20 tables, drawn before looking, the default was behind the temperature alone by
    more than its error on 5 % with 200 cases, at most by 20 millinats, and on none with 1,000. Its
    loss was higher than structured matrix scaling's on 20 % with 200 cases and on 12 % with 1,000.
    With a thousand classes it was level with the latter (``benchmarks/many_classes.py``).

    Parameters
    ----------
    scale : {"auto", "probability", "real"}, default="auto"
        Whether scores are probabilities, whose rows sum to 1, or margins or unnormalised log
        probabilities, -inf for classes that are ruled out. "auto" takes them for probabilities if
        half of the rows at least are distributions up to rounding, and then refuses what is none.
    sources : {"auto"} or bool, default="auto"
        Whether sources follow the matrix. "auto" has held-out cases decide how much of matrix and
        sources is used, and tries no sources with more than 200 classes; otherwise all is used.
    classes : array-like of shape (K,), default=None
        The labels of the columns; None for those of the cases, sorted. Cases may lack some.

    Attributes
    ----------
    classes_, class_prior_ : ndarray of shape (K,)
        The labels, and the weighted frequencies of the cases that it was fitted to.
    temperature_, matrix_, intercept_ : float, ndarray of shape (K, K), ndarray of shape (K,)
        The factor t, the identity plus W, and b.
    tails_ : Tails
        The temperature and the map of tails, which is the identity where ``tails_.g`` is 1.
    matrix_share_, source_share_ : float
        The shares s and r.
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
        "sources": ["boolean", StrOptions({"auto"})],
        "classes": ["array-like", None],
    }

    def __init__(
        self,
        *,
        scale: Scale = "auto",
        sources: bool | Literal["auto"] = "auto",
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
        counts = np.bincount(codes, rows.weight, minlength=len(self.classes_))
        self.class_prior_ = counts / counts.sum()
        self.scale_ = self.scale
        if self.scale == "auto":
            mostly = near_distributions(rows.x).mean() >= _MOSTLY
            self.scale_ = "probability" if mostly else "real"
        values = self._in_scale(rows.x)
        self.power_ = 1.0
        loss = fit.CrossEntropy(codes, rows.weight)
        logits = self._fit_tails(values, loss)
        if rows.groups is not None:
            self.power_ = composite_power(logits, codes, rows.weight, rows.groups)
            loss = fit.CrossEntropy(codes, self.power_ * rows.weight)
            logits = self._fit_tails(values, loss)
        self._fit_parts(logits, loss, rows.groups)
        slopes = self._slopes(logits)
        of_sources = self._sources[0].precision if self._sources else np.empty(0)
        self._posterior = SoftmaxPosterior.fit(
            slopes, loss.weight, self.matrix_, self.intercept_, of_sources
        )
        if not self.converged_:
            warn_unconverged(
                f"a search did not converge in {fit.MAX_ITER} steps; more cases a class would help"
            )
        return self

    def predict_proba(self, scores: ArrayLike, prior: ArrayLike | None = None) -> Array:
        """The probabilities of the classes, of shape (n, K).

        Parameters
        ----------
        scores : array-like of shape (n, K)
        prior : array-like of shape (K,), default=None
            The frequencies of the classes among the cases to predict, as for
            :meth:`LinkCalibrator.predict_proba`; refused if calibration cases lack a class.
        """
        logits = self._tempered(self._as_scores(scores))
        p = softmax(self._calibrated(logits), axis=1)
        if prior is None:
            return p
        return at_prior(p, prior, self.class_prior_, self.classes_)

    def predict(self, scores: ArrayLike) -> NDArray:
        """The most probable class, of shape (n,)."""
        best = self.predict_proba(scores).argmax(axis=1)
        return self.classes_[best]

    def predict_interval(
        self, scores: ArrayLike, level: float = 0.95, prior: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends of an interval for each class by itself, both of shape (n, K).

        Laplace's approximation to the log odds of each class against the rest, widened by a fifth
        as in :class:`LinkCalibrator`. It covers the sampling error of temperature, matrix and
        sources, not of tails and shares; and if the truth is not of the fitted kind, intervals
        contain it less often than ``level`` says. Up to 50 classes, or 40 with sources, the whole
        covariance counts; of more its largest part
        (:mod:`bayesloss.learning.calibration.softmax_posterior`).

        Of simulated probabilities that n cases can tell, from 1/n to 1 - 1/n, 95 % intervals
        contained 97, 99 and 99 in a hundred with 3, 10 and 100 classes, and 89 with a thousand; of
        those nearer to 0 or 1, 9 to 40 (``benchmarks/many_classes.py``).
        """
        check_level(level)
        slopes = self._slopes(self._tempered(self._as_scores(scores)))
        half = WIDER * float(norm.ppf((1 + level) / 2))
        p = slopes.p
        if prior is not None:  # which adds constants to z: its derivatives are the same
            p = at_prior(p, prior, self.class_prior_, self.classes_)
            slopes = replace(slopes, p=p)
        spread = half * self._posterior.log_odds_deviations(slopes)
        with np.errstate(divide="ignore"):  # of a class that the prior rules out
            odds = np.log(p) - np.log((1 - p).clip(min=_TINY))
        return expit(odds - spread), expit(odds + spread)

    def sample_proba(self, scores: ArrayLike) -> Array:
        """Probabilities under 256 draws from the posterior, of shape (256, n, K).

        The same each time. Laplace's approximation to the logits, as of the intervals, which are
        wider by a fifth.
        """
        slopes = self._slopes(self._tempered(self._as_scores(scores)))
        z = self._calibrated(slopes.logits)
        draws = [
            softmax(z + self._posterior.draw(slopes, np.random.default_rng(number)), axis=1)
            for number in range(_DRAWS)
        ]
        return np.stack(draws)

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

    def _fit_parts(self, logits: Array, loss: Any, groups: NDArray | None) -> None:
        """Matrix and sources, and how much of them is used."""
        from bayesloss.learning.calibration import calibrator_fit as fit

        K = logits.shape[1]
        affine = fit.fit_matrix(logits, loss, fit.no_matrix(K))
        sources = None
        if self.sources is True or (self.sources == "auto" and K <= _MANY):
            sources = fit.fit_sources(affine(logits), loss)
        self.converged_ = affine.converged and (sources is None or sources.converged)
        self.matrix_share_ = 1.0
        self.source_share_ = 0.0 if sources is None else 1.0
        if self.sources == "auto":
            shares = fit.fit_shares(logits, loss, groups, affine, sources)
            self.matrix_share_ = shares.matrix
            self.source_share_ = shares.sources
        self.matrix_ = affine.matrix
        self.intercept_ = affine.intercept
        self._sources: list[MonotoneCurve] = []
        if sources is not None and self.source_share_ > 0:
            self._sources = sources.curves

    def _fit_tails(self, scores: Array, loss: Any) -> Array:
        """Temperature and map of tails; returns the log probabilities l."""
        self._floor = 0.0
        if self.scale_ == "probability" and (scores == 0).any():
            self._floor = max(0.5 * float(scores[scores > 0].min()), _TINY)
        self._ruled_out = math.log(_TINY)
        if self.scale_ == "real" and (scores == -np.inf).any():
            behind = scores - scores.max(axis=1, keepdims=True)
            self._ruled_out = float(behind[np.isfinite(behind)].min()) - math.log(2)
        self._vote = 1 / (float(loss.weight.sum()) * scores.shape[1])
        self.tails_ = fit_tails(self._logits(scores), loss.codes, loss.weight, self._vote)
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
        """Log probabilities l after tails, temperature and spread case."""
        probabilities = softmax(self.tails_(self._logits(scores)), axis=1)
        return np.log(probabilities + self._vote)

    def _mixed(self, logits: Array) -> Array:
        """The logits u = l + W l + b."""
        return logits @ self.matrix_.T + self.intercept_

    def _calibrated(self, logits: Array) -> Array:
        """The logits z."""
        return self._shared(logits, self._mixed(logits))

    def _shared(self, logits: Array, u: Array) -> Array:
        """The logits z, from l and u."""
        z = u.copy()
        for k, source in enumerate(self._sources):
            z[:, k] += self.source_share_ * (source(u[:, k]) - u[:, k])
        return logits + self.matrix_share_ * (z - logits)

    def _slopes(self, logits: Array) -> Slopes:
        """What the posterior has to know of cases.

        The derivatives are of logits with all of the matrix: that less of it is used does not make
        what it should be any surer.
        """
        u = self._mixed(logits)
        by_u = np.ones_like(u)
        by_Gamma = []
        for k, source in enumerate(self._sources):
            slope, by_Gamma_k = source.derivatives(u[:, k])
            by_u[:, k] += self.source_share_ * (slope - 1)
            by_Gamma.append(self.source_share_ * by_Gamma_k)
        return Slopes(
            logits=logits,
            p=softmax(self._shared(logits, u), axis=1),
            by_u=by_u,
            by_Gamma=np.stack(by_Gamma) if by_Gamma else np.empty((*u.T.shape, 0)),
        )

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: I + W as W, in the single precision that it has."""
        state = dict(vars(self))
        if "matrix_" in state:
            state["matrix_"] = (self.matrix_ - np.eye(len(self.matrix_))).astype(np.float32)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a state."""
        self.__dict__.update(state)
        if "matrix_" in state:
            self.matrix_ = np.eye(len(self.matrix_)) + self.matrix_


def _checked_rows(scores: ArrayLike) -> NDArray:
    """Scores of shape (n, K) as floats of their own precision, infinite or not; never NaN."""
    kinds = [np.float64, np.float32, np.float16]
    rows: NDArray = check_array(untensored(scores), dtype=kinds, ensure_all_finite=False)
    if np.isnan(rows).any():
        row = int(np.isnan(rows).any(axis=1).argmax())
        raise ValueError(f"expected scores, got NaN in row {row}")
    return rows
