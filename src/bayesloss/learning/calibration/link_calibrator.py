r"""Calibration of a classifier's scores by a monotone curve that is learned, with its doubt.

W&N's model with one input. x are the log odds that a sigmoid gives to the score
(:mod:`bayesloss.learning.calibration.score_transform`), and

    y | x ~ Bernoulli(sigmoid(nu(x))),   nu ~ CentredISGP,   E nu(x) = x:

the sigmoid is the first guess, and the data may bend it. How far and how sharply is averaged over,
by the evidence bound (:mod:`bayesloss.learning.inference.mixtures`). Data are spread on a grid:
beyond one pass over them the cost does not grow with their number.

Every path of nu is strictly increasing, and so is the mean of sigmoid(nu(x)) over paths. Beyond one
half period on either side of the data paths go on as straight lines, each with its own mean slope:
back to the sigmoid, with a band that widens. Not for ever: beyond three half periods x goes on by
the logarithm of the distance, unless x is less than ``log(1 + n)`` away from 0, for n cases speak
of log odds up to there. So no score, however far out, makes anything certain.
"""

import math
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from scipy.stats import norm, qmc
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)
from torch import Tensor

from bayesloss.learning.calibration.composite_power import composite_power
from bayesloss.learning.calibration.score_transform import ScoreMap
from bayesloss.learning.data.dask_inputs import is_dask
from bayesloss.learning.data.estimator_base import all_or_nothing, by_blocks
from bayesloss.learning.data.rows import Rows, extremes, largest
from bayesloss.learning.inference.mixtures import (
    NormalBernoulli,
    PosteriorMixture,
    average_priors,
)
from bayesloss.learning.links.em import grid_size
from bayesloss.learning.links.tables import HermiteTable
from bayesloss.learning.sources.priors import CentredISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.warnings import warn_caller

__all__ = ["LinkCalibrator"]

Array = NDArray[np.float64]

_N_BASIS = 32
_FILLED = 0.8  # the part of [-1/c, 1/c] that the scores fill
_WIDER = 1.2  # what the band's half widths are multiplied by, see `predict_interval`
_LEVEL_SPREAD = 0.5  # tau: a priori the slope of a path lies in 0 to 4 or so
_GAMMA = 0.25  # the prior precision of nu in the middle of the scores
# The family that is averaged over: the variance s^2 of f about its level, and the smoothness a.
_VARIANCES = (0.03, 0.15, 0.5)
_SMOOTHNESS = (1.3, 2.0, 5.0)
_DRAWS = 256  # a power of two, as Sobol's points are balanced for
_NODES = 200  # of tables, for each half period: twelve for a wave of f^2's highest harmonic
_PERIODS = 3  # that tables cover
_MANY = 100  # kinds of labels that are told apart before they are refused
_FEW = 0.25  # twice the part of the fitted scores in [0, 1] at which all of them there are odd


class LinkCalibrator(ClassifierMixin, BaseEstimator):
    """Scores to probabilities by a smooth, strictly increasing curve with a posterior band.

    Fit it to scores of cases that the classifier was *not* trained on;
    :class:`~bayesloss.CalibratedClassifier` arranges that.

    Parameters
    ----------
    scale : {"auto", "probability", "real"}, default="auto"
        What the scores are. Probabilities, of ``classes_[1]``, are calibrated on their log odds.
        "real" is everything else: log odds, margins, distances, in any units. "auto" takes scores
        for probabilities if all of those that it is fitted to lie in [0, 1]. Where other scores do
        so by chance, little is lost.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    scale_ : str
        "probability" or "real".
    average_ : PosteriorMixture
        The posterior of nu, as a function of the sigmoid's log odds less ``centre_``.
    centre_ : float
    map_ : ScoreMap
        The sigmoid with what precedes it.
    power_ : float
        The part that a case counts for, below 1 where cases of a group resemble each other.
    converged_ : bool

    Notes
    -----
    The curve keeps the order of the scores, hence the ROC curve. Scores may be tied, and infinite
    where they are log odds of 0 and 1. The answer is deterministic.

    A probability of exactly 0 or 1 gets the place that cases with it had in the fit. If there were
    none it is read as the last number that its own format, of 16, 32 or 64 bits, tells from 0 or 1.
    Far beyond all that was seen log odds grow by logarithms only: what is learned from n cases
    makes nothing certain.

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
        "scale": [StrOptions({"auto", "probability", "real"})],
    }

    def __init__(self, *, scale: str = "auto") -> None:
        self.scale = scale

    def fit(
        self,
        scores: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Learn the curve.

        Parameters
        ----------
        scores : array-like or Dask collection of shape (n,) or (n, 1)
            A Dask array or DataFrame stays where it is, see
            :mod:`bayesloss.learning.data.rows`.
        y : array-like or Dask collection of shape (n,)
            Labels of two kinds; a larger score should speak for the one that sorts last.
        sample_weight : array-like or Dask collection of shape (n,), optional
            How many times each case counts.
        groups : array-like of shape (n,), optional
            Which cases belong together, such as several of one patient. By as much as their errors
            resemble each other they count for less: the likelihood is raised to a power
            (:mod:`bayesloss.learning.calibration.composite_power`).

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is one class only, or more than two, a score is NaN, or lies outside [0, 1]
            where it should be a probability, or a Dask collection has blocks of unknown sizes or
            others than those of y, or comes with groups.
        RuntimeError
            If Dask's workers died or ran out of memory.

        Warns
        -----
        UserWarning
            If all scores are equal, or they run the wrong way.
        ConvergenceWarning
            If a search for a mode did not converge.
        """
        self._validate_params()
        with all_or_nothing(self):
            self._fit(*self._read(scores, y, sample_weight, groups))
        return self

    def _fit(self, rows: Rows, groups: NDArray | None) -> None:
        self.classes_ = rows.fold(_kinds, merge=_union)
        if len(self.classes_) != 2:
            raise ValueError(
                "expected cases of two classes, got "
                + (
                    f"only {self.classes_[0]}"
                    if len(self.classes_) == 1
                    else f"{len(self.classes_)}"
                )
            )
        check_classification_targets(self.classes_)
        rows = rows.map(_coded, self.classes_[1])
        n, total, inside = rows.fold(_survey).tolist()
        low, high = rows.fold(extremes, merge=largest)[:2] * [-1, 1]
        if math.isnan(low):
            raise ValueError("expected scores, got NaN")
        self.scale_ = self.scale
        if self.scale == "auto":
            self.scale_ = "probability" if inside == n else "real"
        self._check_scale(np.array([low, high]))
        self._in_unit_interval = inside / n
        self.map_ = ScoreMap.of(rows, n, self.scale_ == "probability")
        self._warn_of_direction()
        self.power_ = 1.0
        if groups is not None:
            x = self.map_(rows.x)
            logits, codes = np.stack([np.zeros_like(x), x], axis=1), rows.y.astype(np.int64)
            self.power_ = composite_power(logits, codes, rows.weight, groups)
        self._fit_curve(rows, total, *self.map_(np.array([low, high])).tolist())

    def _read(
        self, scores: Any, y: Any, sample_weight: Any, groups: Any
    ) -> tuple[Rows, NDArray | None]:
        """The cases that count, and their groups."""
        if is_dask(scores):
            from bayesloss.learning.data.rows import DaskRows

            if groups is not None:
                raise ValueError(
                    "expected no groups where scores are a Dask collection, got some: compute the "
                    "scores, and give them as an array"
                )
            return DaskRows.of(scores, y, sample_weight, "scores"), None
        values = _as_scores(scores)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(values, labels, groups)
        check_classification_targets(labels)
        weight = _check_sample_weight(
            sample_weight, values, dtype=np.float64, ensure_non_negative=True
        )
        counted = weight > 0
        return (
            Rows(values[counted].astype(np.float64, copy=False), labels[counted], weight[counted]),
            None if groups is None else np.asarray(groups)[counted],
        )

    @by_blocks
    def predict_proba(self, scores: ArrayLike) -> Array:
        """The probabilities of both classes, averaged over the posterior: of shape (n, 2)."""
        odds = self._table(self._position(scores))[0].numpy()
        return np.stack([expit(-odds), expit(odds)], axis=1)

    @by_blocks
    def predict(self, scores: ArrayLike) -> NDArray:
        """The more probable class, of shape (n,)."""
        return self.classes_[self.predict_proba(scores).argmax(axis=1)]

    @by_blocks
    def predict_interval(self, scores: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """A central interval of the probability of ``classes_[1]``, a little wider than posterior.

        Parameters
        ----------
        scores : array-like of shape (n,) or (n, 1)
        level : float, default=0.95
            In (0, 1): the probability, given the data, that the true curve at one score is within.

        Returns
        -------
        low, high : ndarray of shape (n,)

        Notes
        -----
        On the scale of log odds the posterior's quantiles are moved away from its median by a
        fifth. Where the truth has steps and corners the posterior is off by more than it knows:
        the priors are smooth. The fifth was chosen on simulated truths, so that bands of level
        0.95 hold the truth at 93 to 97 % of the scores on average; at a line they hold more.
        """
        if not 0 < level < 1:
            raise ValueError(f"expected a level in (0, 1), got {level}")
        x = self._position(scores).numpy()
        at = [(1 - level) / 2, 0.5, (1 + level) / 2]
        lowest, median, highest = np.quantile(self._paths, at, axis=0)
        ends = (median + _WIDER * (end - median) for end in (lowest, highest))
        low, high = (expit(_interpolated(x, self._nodes, end)) for end in ends)
        return low, high

    def sample_proba(self, scores: ArrayLike) -> Array:
        """Probabilities of ``classes_[1]`` under 256 curves of the posterior: of shape (256, n)."""
        x = self._position(scores).numpy()
        return expit(np.stack([_interpolated(x, self._nodes, path) for path in self._paths]))

    def _fit_curve(self, rows: Rows, total: float, low: float, high: float) -> None:
        self.centre_ = (low + high) / 2
        half = (high - low) / 2
        c = _FILLED / half if half > 0 else 1.0
        priors = [
            CentredISGP(
                TrigonometricKernel(a=a, c=c, n_basis=_N_BASIS).scaled(variance),
                tau=_LEVEL_SPREAD,
                mu=self.centre_,
                gamma=_GAMMA,
            )
            for variance in reversed(_VARIANCES)
            for a in _SMOOTHNESS
        ]
        likelihood = NormalBernoulli()
        edge = half or 1.0
        size = grid_size(priors[0], 2 * edge, total)
        nodes = torch.linspace(-edge, edge, size, dtype=torch.float64)
        shares = self.power_ * rows.fold(_shares, self.map_, self.centre_, nodes)
        data = likelihood.on_grid(priors[0].features, nodes, shares)
        self.average_: PosteriorMixture = average_priors(
            priors, likelihood, data, start=priors[-1].location
        )
        self.converged_ = self.average_.converged
        if not self.converged_:
            warn_caller(
                "Newton's method found no mode of the posterior to full precision; look at "
                "average_.components before you rely on the band",
                ConvergenceWarning,
            )
        self._tabulate(priors[0], 1 / c)
        doubt = math.log1p(self.power_ * total)
        self._trusted = (
            min(self._nodes[0], -doubt - self.centre_),
            max(self._nodes[-1], doubt - self.centre_),
        )

    def _tabulate(self, prior: CentredISGP, edge: float) -> None:
        """The paths of nu and the log odds of their mean probability, at equally spaced nodes."""
        Gamma = self.average_.draws(_noise(len(prior.location)))
        inner = torch.linspace(-edge, edge, 2 * _NODES + 1, dtype=torch.float64)
        nu, slope = prior.source(inner, Gamma), prior.derivative(inner, Gamma)
        rise = (nu[:, -1:] - nu[:, :1]) / (2 * edge)
        away = inner[1:] + edge  # from 0 to a whole period
        away = torch.cat([away + 2 * edge * k for k in range(_PERIODS // 2)])
        nodes = torch.cat([-edge - away.flip(0), inner, edge + away])
        nu = torch.cat([nu[:, :1] - rise * away.flip(0), nu, nu[:, -1:] + rise * away], dim=1)
        steady = rise.expand(-1, len(away))
        slope = torch.cat([steady, slope, steady], dim=1)
        log_p = torch.nn.functional.logsigmoid(nu)
        log_q = log_p - nu
        odds = log_p.logsumexp(dim=0) - log_q.logsumexp(dim=0)
        # d log mean(p) = mean of d log p = q d nu, weighted by p; for q likewise.
        slopes = (torch.softmax(log_p, dim=0) * log_q.exp() * slope).sum(dim=0)
        slopes += (torch.softmax(log_q, dim=0) * log_p.exp() * slope).sum(dim=0)
        # Cubics between nodes increase if no slope exceeds three secants (Fritsch, Carlson 1980).
        secants = odds.diff() / nodes.diff()
        slopes[1:-1] = torch.minimum(slopes[1:-1], 3 * torch.minimum(secants[1:], secants[:-1]))
        slopes[0], slopes[-1] = secants[0], secants[-1]
        self._nodes, self._paths = nodes.numpy(), nu.numpy()
        self._table = HermiteTable(nodes, odds[None], slopes[None])

    def _position(self, scores: ArrayLike) -> Tensor:
        check_is_fitted(self)
        values = _as_scores(scores)
        self._check_scale(values)
        inside = (values >= 0) & (values <= 1)
        if (
            self.scale_ == "real"
            and self._in_unit_interval < _FEW / 2
            and len(values) >= 1 / _FEW
            and inside.all()
        ):
            warn_caller(
                f"{len(values)} scores look like probabilities: all of them lie in [0, 1], and of "
                f"those that the calibrator was fitted to {self._in_unit_interval:.0%}"
            )
        x = self.map_(values) - self.centre_
        inside = x.clip(*self._trusted)
        return torch.from_numpy(inside + np.sign(x - inside) * np.log1p(np.abs(x - inside)))

    def _check_scale(self, values: Array) -> None:
        inside = (values >= 0) & (values <= 1)
        if self.scale_ == "probability" and not inside.all():
            raise ValueError(
                f"expected probabilities in [0, 1], got {values[~inside][0]:.6g}"
                + (
                    ""
                    if self.scale == "probability"
                    else ": the scores that the calibrator was fitted to all lay there; if they "
                    "were no probabilities, fit it with scale='real'"
                )
            )

    def _warn_of_direction(self) -> None:
        if math.isinf(self.map_.sigmoid.error):
            warn_caller("all scores are equal: every case gets the same probability")
        elif self.map_.sigmoid.slope < -2 * self.map_.sigmoid.error:
            warn_caller(
                f"scores run the wrong way: the larger, the rarer is {self.classes_[1]}. The "
                "curve increases all the same and will be nearly flat; give the negative scores"
            )


def _kinds(x: Array, y: NDArray, weight: Array) -> NDArray:
    """The labels; of more than a hundred kinds not all."""
    return np.unique(y)[:_MANY]


def _union(parts: list[NDArray]) -> NDArray:
    return np.unique(np.concatenate(parts))[:_MANY]


def _coded(x: Array, y: NDArray, one: Any) -> tuple[Array, Array]:
    return x, (y == one).astype(np.float64)


def _survey(x: Array, y: Array, weight: Array) -> Array:
    """The number of cases, their weight, and how many scores are within [0, 1]."""
    return np.array([len(x), weight.sum(), ((x >= 0) & (x <= 1)).sum()])


def _shares(
    scores: Array, y: Array, weight: Array, to_log_odds: ScoreMap, centre: float, nodes: Tensor
) -> Tensor:
    x = torch.from_numpy(to_log_odds(scores) - centre)
    return NormalBernoulli.shares(x, torch.from_numpy(y), torch.from_numpy(weight), nodes)


def _interpolated(x: Array, nodes: Array, values: Array) -> Array:
    """Straight lines between nodes, and beyond them."""
    beyond = x - x.clip(nodes[0], nodes[-1])
    slopes = np.diff(values)[[0, -1]] / np.diff(nodes)[[0, -1]]
    return np.interp(x, nodes, values) + beyond * np.where(beyond < 0, *slopes)


@lru_cache(maxsize=4)
def _noise(size: int) -> Tensor:
    """Normal numbers of low discrepancy, of shape (draws, size), the same ones each time."""
    uniform = qmc.Sobol(size, scramble=True, rng=np.random.default_rng(0)).random(_DRAWS)
    return torch.from_numpy(norm.ppf(uniform))


def _as_scores(scores: ArrayLike) -> Array:
    """Scores as floats of shape (n,), of 64 bits if they came with no fewer.

    Raises
    ------
    ValueError
        If they have another shape, or some are NaN.
    """
    values = np.asarray(scores)
    if np.iscomplexobj(values):
        raise ValueError("expected real scores, got complex ones")
    if values.dtype not in (np.float16, np.float32):
        values = values.astype(np.float64)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or len(values) == 0:
        hint = ": of probabilities of two classes give the second column"
        raise ValueError(
            f"expected scores of shape (n,), got {values.shape}"
            + (hint if values.ndim == 2 and values.shape[1] == 2 else "")
        )
    if np.isnan(values).any():
        raise ValueError(f"expected scores, got {int(np.isnan(values).sum())} NaN of {len(values)}")
    return values
