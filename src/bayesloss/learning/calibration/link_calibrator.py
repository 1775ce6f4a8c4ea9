r"""Calibration of a classifier's scores by a monotone curve that is learned, with its uncertainty.

W&N's model with one input: x are the log odds of Platt's sigmoid
(:mod:`bayesloss.learning.calibration.score_transform`), and

    y | x ~ Bernoulli(sigmoid(nu(x))),   nu ~ CentredISGP,   E nu(x) = x:

the sigmoid is the prior guess, and the data may bend it; how far and how sharply is averaged over
by the evidence bound (:mod:`bayesloss.learning.evidence.mixtures`). Data are spread on a grid.

Paths of nu increase strictly, hence so does the mean of sigmoid(nu(x)). Beyond half a period from
the centre they go on straight (:mod:`bayesloss.learning.sources.priors`). Beyond three
half periods, or ``log(1 + n)`` if that is farther, as n cases tell of log odds up to there, x grows
only as the logarithm of the distance: no score makes anything certain.
"""

import math
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bayesloss.arrays import (
    Array,
    as_scores,
    in_unit_interval,
    may_be_probabilities,
    read_probabilities,
)
from bayesloss.learning.calibration.base_rates import at_prior
from bayesloss.learning.calibration.calibrator_base import WIDER, Scale, composite_power
from bayesloss.learning.calibration.monotone_curves import CurveTable
from bayesloss.learning.calibration.score_transform import LogTails, ScoreTransform
from bayesloss.learning.data.checks import check_total
from bayesloss.learning.data.estimator_base import all_or_nothing, by_blocks, check_level
from bayesloss.learning.data.rows import Rows, is_dask, read_scores
from bayesloss.learning.data.survey import Survey
from bayesloss.threads import on_one_thread
from bayesloss.warnings import warn_caller, warn_unconverged

# Where less than an eighth of the fitted scores was in [0, 1], four or more that all are there look
# like probabilities: chance would put them there once in 8^4 times.
_RARELY_INSIDE = 0.125
_SUSPECTED = 4
_STRAYED = 0.01  # the part of probabilities that slips may have put outside [0, 1]


@on_one_thread
class LinkCalibrator(ClassifierMixin, BaseEstimator):
    """Scores to probabilities by a smooth, strictly increasing curve with a posterior band.

    Fit it to scores of cases that the classifier was *not* trained on, as
    :class:`~bayesloss.CalibratedClassifier` does. The curve keeps the order of the scores, hence
    the ROC curve. Scores may be tied, or infinite log odds; unseen probabilities of 0 or 1 count as
    the numbers that their float format rounds to these. Far beyond the fitted scores log odds grow
    logarithmically: n cases make nothing certain. The fit is deterministic; it averages over 256
    curves, which are not those of mirrored scores and labels: probabilities differ by 0.0005 or so,
    with 100 cases by up to 0.004.

    Few cases may do harm. Of 199 stored sets of scores with 200 cases each, the log loss was higher
    than that of Platt's sigmoid on 33 % (by 3.0 millinats on average, at most 26.7) and higher than
    without calibration on 29 % (8.2, at most 45.1); with 1,000 cases on 25 % (0.7, at most 4.8) and
    on 14 % (3.2, at most 24.1).

    Boosting that was stopped early needs no calibration by few cases: on 12 simulated sets
    (``benchmarks/already_good.py``) the loss of this calibrator was higher than without by 29 ± 12
    millinats with 50 cases, not distinguishable from it with 200 (0.8 ± 2.9), and lower by 3.6 ±
    1.4 with 1,000.

    On 40 sets from other tables and 12 classifiers, drawn before any was looked at
    (``benchmarks/two_classes.py``), the loss was the lowest of 11 methods on average, and that of
    Venn-Abers higher by 5.4 ± 3.3, 2.8 ± 1.2, 0.4 ± 0.6 and 0.2 ± 0.3 millinats with 50, 200, 1,000
    and all cases. With 200 it was higher around logistic regression than without calibration (by
    7.1 ± 0.7, three sets), and beyond error than that of Venn-Abers around five nearest neighbours,
    whose scores are six numbers (tables ``fakeAPI`` by 15 ± 4, ``close_elections_lmb`` by 16 ± 4),
    and AdaBoost (``Cracker``, 8 ± 4); with 1,000 also around boosting that overfits a small table
    (``headInjury``, 6 ± 2).

    Parameters
    ----------
    scale : {"auto", "probability", "real"}, default="auto"
        Whether scores are probabilities of ``classes_[1]``, calibrated on their log odds, or real
        numbers in any units. "auto" takes fitted scores for probabilities if all are in [0, 1], up
        to rounding, and warns where that is in doubt.

    Attributes
    ----------
    classes_, class_prior_ : ndarray of shape (2,)
        The labels, and the weighted frequencies of the cases that it was fitted to.
    scale_, converged_ : str, bool
        "probability" or "real"; whether all modes were found.
    centre_, transform_ : float, ScoreTransform
        The middle of the sigmoid's log odds, and the transform from scores to these.
    power_ : float
        How much a case counts: below 1 if cases of a group resemble each other.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import LinkCalibrator
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=2000)
    >>> y = rng.random(2000) < 1 / (1 + np.exp(-np.where(scores > 0, 4 * scores, scores)))
    >>> calibrator = LinkCalibrator().fit(scores, y)
    >>> calibrator.predict_proba([-1.0, 1.0])[:, 1].round(1)
    array([0.3, 1. ])
    >>> low, high = calibrator.predict_interval([-1.0, 1.0])
    >>> bool(((high - low) < 0.12).all())
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "scale": [StrOptions(set(get_args(Scale)))]
    }

    def __init__(self, *, scale: Scale = "auto") -> None:
        self.scale = scale

    def fit(
        self,
        scores: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Learn the curve; return self.

        Warns if scores are all equal, run the wrong way or are hardly probabilities, or weights are
        hardly counts (UserWarning), or if a search for a mode did not converge
        (ConvergenceWarning).

        Parameters
        ----------
        scores, y, sample_weight : array-like or Dask collection of shape (n,)
            Dask collections are read block by block. Larger scores should speak for the label of y
            that sorts last of the two. Weights, optional, say how many times each case counts.
        groups : array-like of shape (n,), optional
            Which cases belong together, such as a patient's. The more their errors correlate, the
            less they count (:mod:`bayesloss.learning.calibration.calibrator_base`).

        Raises
        ------
        ValueError, RuntimeError
            If there are not two classes, a label or a group is missing or there is one group only,
            a score is NaN or, as a probability, outside [0, 1], weights are negative or their total
            is no number of cases, or a Dask collection comes with groups or blocks of unknown sizes
            or that do not match those of y. If Dask's workers died or ran out of memory.
        """
        self._validate_params()
        with all_or_nothing(self):
            rows = read_scores(scores, y, sample_weight, groups)
            survey = rows.fold(Survey.of, merge=Survey.merged)
            if is_dask(scores):
                check_total(survey.weight, survey.n, whole=survey.whole)
            ends = self._read(survey)
            positive = self.classes_[1]
            rows = rows.map(y=lambda labels: (labels == positive).astype(np.float64))
            positives = rows.fold(_weight_of_positives)
            self.class_prior_ = np.array([survey.weight - positives, positives]) / survey.weight
            if ends.tolist() != [survey.low, survey.high]:
                rows = rows.map(lambda x: x.clip(0, 1))
            self.transform_ = ScoreTransform.fit(rows, self.scale_ == "probability")
            self._warn_of_direction()
            ends = self.transform_(ends)
            self._fit_curve(rows.map(self.transform_), survey.weight, ends)
        return self

    @property
    def average_(self) -> Any:
        """The PosteriorMixture of nu, a function of the sigmoid's log odds less ``centre_``."""
        from bayesloss.learning.calibration.calibrator_fit import mixture

        check_is_fitted(self)
        return mixture(self._posterior, self.centre_)

    @by_blocks
    def predict_proba(self, scores: ArrayLike, prior: ArrayLike | None = None) -> Array:
        """The probabilities of both classes, averaged over the posterior: of shape (n, 2).

        Parameters
        ----------
        scores : array-like of shape (n,)
        prior : array-like of shape (2,) or float, default=None
            The frequencies of the classes, or of ``classes_[1]``, among the cases to predict, where
            these are not ``class_prior_`` but scores of each class are spread as before
            (:mod:`bayesloss.learning.calibration.base_rates`).
        """
        return self._both(self.log_odds(scores), prior)

    def log_odds(self, scores: ArrayLike) -> Array:
        """The log odds of the mean probability of ``classes_[1]``, of shape (n,)."""
        x = self._position(scores)
        return self._table.mean_at(x)

    def mean_curve(self, scores: ArrayLike) -> Array:
        """The posterior mean of nu, the log odds of a curve: of shape (n,)."""
        x = self._position(scores)
        return self._table.between_nodes(self._table.curves.mean(axis=0), x)

    @by_blocks
    def predict(self, scores: ArrayLike) -> NDArray:
        """The more probable class, of shape (n,)."""
        best = self.predict_proba(scores).argmax(axis=1)
        return self.classes_[best]

    @by_blocks
    def predict_interval(
        self, scores: ArrayLike, level: float = 0.95, prior: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends of a central interval of the probability of ``classes_[1]``.

        Posterior quantiles are moved a fifth away from the median, in log odds, since priors are
        smoother than truths with steps and corners. How often that is enough depends on the truth.
        Bands of level 0.95 contained it at so many per cent of the scores, on average over 40
        draws (``benchmarks/bands.py``; standard errors are 1.4 at most):

        ==============================  ==========  ============
        true curve                      200 scores  1,000 scores
        ==============================  ==========  ============
        straight, in log odds                  100           100
        bent                                    97            98
        with a corner                           94            97
        with a plateau between slopes           89            91
        one step                                77            77
        three steps                             85            61
        ==============================  ==========  ============

        So do not rely on the band where probabilities may jump. Quantiles as far again from the
        median would bring one step to 91 % at 1,000 scores and three to 85 %, with bands that are
        much too wide for all others.

        Parameters
        ----------
        scores : array-like of shape (n,)
        level : float, default=0.95
            In (0, 1): the probability that the true curve at one score is within.
        prior : array-like of shape (2,) or float, default=None
            As for :meth:`predict_proba`; taken for exact.
        """
        low, high = self.log_odds_interval(scores, level)
        return self._both(low, prior)[:, 1], self._both(high, prior)[:, 1]

    def log_odds_interval(self, scores: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """The ends of the same interval as log odds."""
        check_level(level)
        x = self._position(scores)
        levels = [(1 - level) / 2, 0.5, (1 + level) / 2]
        lowest, median, highest = np.quantile(self._table.curves, levels, axis=0)
        low = self._table.between_nodes(median + WIDER * (lowest - median), x)
        high = self._table.between_nodes(median + WIDER * (highest - median), x)
        return low, high

    def sample_proba(self, scores: ArrayLike) -> Array:
        """Probabilities of ``classes_[1]`` under 256 posterior curves, of shape (256, n)."""
        x = self._position(scores)
        return np.stack(
            [expit(self._table.between_nodes(curve, x)) for curve in self._table.curves]
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.classifier_tags.multi_class = False
        return tags

    def _both(self, odds: Array, prior: ArrayLike | None) -> Array:
        """The probabilities (n, 2) of both classes, by their log odds and perhaps another prior."""
        p = np.stack([expit(-odds), expit(odds)], axis=1)
        if prior is None:
            return p
        return at_prior(p, prior, self.class_prior_, self.classes_)

    def _read(self, survey: Survey) -> Array:
        """Take classes and scale from what is known of the cases; return the scores' ends."""
        self.classes_ = survey.labels
        if len(self.classes_) == 1:
            raise ValueError(f"expected cases of two classes, got only {self.classes_[0]}")
        if len(self.classes_) != 2:
            raise ValueError(f"expected cases of two classes, got {len(self.classes_)}")
        check_classification_targets(self.classes_)
        ends = np.array([survey.low, survey.high])
        if np.isnan(ends).any():
            raise ValueError("expected scores, got NaN")
        self._in_unit_interval = survey.inside / survey.n
        self.scale_ = self.scale
        if self.scale == "auto":
            probabilities = may_be_probabilities(survey.low, survey.high)
            self.scale_ = "probability" if probabilities else "real"
            strayed = survey.n - survey.inside
            if not probabilities and 0 < strayed <= _STRAYED * survey.n:
                warn_caller(
                    f"scores are read as real numbers, since {strayed} of {survey.n} lie outside "
                    f"[0, 1], which they span from {survey.low:.6g} to {survey.high:.6g}: say "
                    "scale='real', or mend these if scores are probabilities"
                )
        return self._in_scale(ends)

    def _in_scale(self, values: NDArray) -> NDArray:
        """Scores that, as probabilities, are in [0, 1] and not only within rounding of it."""
        if self.scale_ == "real":
            return values
        hint = ""
        if self.scale == "auto":
            hint = (
                ": the scores that the calibrator was fitted to all lay there; if they were no "
                "probabilities, fit it with scale='real'"
            )
        return read_probabilities(values, hint)

    def _warn_of_direction(self) -> None:
        if math.isinf(self.transform_.sigmoid.error):
            warn_caller("all scores are equal: every case gets the same probability")
        elif self.transform_.sigmoid.slope < -2 * self.transform_.sigmoid.error:
            warn_caller(
                f"scores run the wrong way: the larger, the rarer is {self.classes_[1]}. The "
                "curve increases all the same and will be nearly flat; give the negative scores"
            )

    def _fit_curve(self, rows: Rows, total: float, ends: Array) -> None:
        """The posterior of nu, given log odds and their ends."""
        from bayesloss.learning.calibration.calibrator_fit import fit_curve

        self.power_ = 1.0
        if rows.groups is not None:
            logits = np.stack([np.zeros_like(rows.x), rows.x], axis=1)
            self.power_ = composite_power(logits, rows.y.astype(int), rows.weight, rows.groups)
        self.centre_ = float(ends.sum() / 2)
        half = float(ends[1] - ends[0]) / 2
        self._posterior = fit_curve(rows, self.centre_, half, total, self.power_)
        self.converged_ = self._posterior.converged
        if not self.converged_:
            warn_unconverged(
                "Newton's method found no mode of the posterior to full precision; look at "
                "average_.components before you rely on the band"
            )
        self._table = CurveTable.of(self._posterior)
        doubt = math.log1p(self.power_ * total)
        self._trusted = LogTails(
            low=min(self._table.nodes[0], -doubt - self.centre_),
            high=max(self._table.nodes[-1], doubt - self.centre_),
            width=1.0,
        )

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: 50 kB, without the table of 2.5 MB that follows from the rest."""
        return {name: value for name, value in vars(self).items() if name != "_table"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a state, and make the table of a fit anew."""
        if "_packed" in state:
            raise ValueError(
                "expected a LinkCalibrator that this version of bayesloss has saved, got one of "
                "an earlier version, whose posterior is stored otherwise: fit it again, or load "
                "it with the version that saved it"
            )
        self.__dict__.update(state)
        if "_posterior" in state:
            self._table = CurveTable.of(self._posterior)

    def _position(self, scores: ArrayLike) -> Array:
        """Log odds less their centre, of scores that are in the scale of the fitted ones."""
        check_is_fitted(self)
        values = self._in_scale(as_scores(scores))
        if (
            self.scale_ == "real"
            and self._in_unit_interval < _RARELY_INSIDE
            and len(values) >= _SUSPECTED
            and in_unit_interval(values).all()
        ):
            warn_caller(
                f"{len(values)} scores look like probabilities: all of them lie in [0, 1], and of "
                f"those that the calibrator was fitted to {self._in_unit_interval:.0%}"
            )
        return self._trusted(self.transform_(values) - self.centre_)


def _weight_of_positives(x: Array, y: Array, weight: Array) -> float:
    return float(y @ weight)
