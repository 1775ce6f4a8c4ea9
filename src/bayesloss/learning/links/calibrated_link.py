r"""A learned link that is a calibrator's curve of held-out scores: one class against the rest.

The curve is an average over priors (:mod:`bayesloss.learning.evidence.mixtures`); the evidence that
the alternation watches (:mod:`bayesloss.learning.links.alternation`) is the lower bound on it,
averaged over the priors.
"""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.interpolate import PchipInterpolator
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.calibration.link_calibrator import LinkCalibrator
from bayesloss.learning.data.folds import Folds
from bayesloss.learning.links.alternation import CurveFit, Round
from bayesloss.learning.links.fitted_link import shaped
from bayesloss.learning.links.tables import HermiteTable, to_device
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.threads import on_one_thread

_NODES = 2048  # of the table of a curve: some thirty for each wave of its highest harmonic
_ROOM = 0.5  # of the scores' range, beyond either end, that the table covers


@dataclass(frozen=True)
class CalibratorFits:
    """Fits of calibrators to the held-out scores of one problem of two classes."""

    data: LinearScores
    folds: Folds

    def __call__(self, held_out: Float[Tensor, "1 n"], scores: Float[Tensor, "F 1 n"]) -> CurveFit:
        """The curve of held-out scores."""
        y = self.data.labels[0].cpu().numpy()
        counted = self.data.weight.cpu().numpy() * self.folds.power
        x = held_out[0].cpu().numpy()
        with warnings.catch_warnings():
            # To turn scores around, or to look at them, is no advice for scores that are made here.
            warnings.simplefilter("ignore", UserWarning)
            curve = LinkCalibrator(scale="real").fit(x, y, counted, self.folds.groups)
        return CurveFit(
            model=curve,
            log_evidence=_log_evidence(curve),
            values=curve.log_odds(x)[None],
            curves=_table(curve, scores),
        )


def _log_evidence(curve: LinkCalibrator) -> float:
    bounds = torch.tensor([part.evidence_bound for part in curve.average_.components])
    return float(bounds.logsumexp(0)) - math.log(len(bounds))


def _table(curve: LinkCalibrator, scores: Tensor) -> HermiteTable:
    """The log odds of a curve, as a table of the score on the scores' device."""
    low = float(scores.min())
    high = float(scores.max())
    room = _ROOM * (high - low) or 1.0
    nodes = np.linspace(low - room, high + room, _NODES)
    log_odds = curve.log_odds(nodes)
    slopes = PchipInterpolator(nodes, log_odds).derivative()(nodes)
    values = torch.from_numpy(log_odds)[None]
    table = HermiteTable(torch.from_numpy(nodes), values, torch.from_numpy(slopes)[None])
    return to_device([table], scores.device)[0]


@on_one_thread
class CalibratedLink:
    """The learned link of one class against the rest: a calibrator's curve, on scores as shown.

    Scores x are those of weights on the scale of a logistic regression, so that the log odds have
    mean slope 1 over the training rows.

    Attributes
    ----------
    calibrator : LinkCalibrator
        Of the score x / ``slope``.
    slope : float
    low, high : float
        The smallest and largest training score.
    """

    def __init__(self, found: Round, weight: Float[Tensor, " n"]) -> None:
        self.calibrator: LinkCalibrator = found.fit.model
        scores = found.scores[0].cpu().numpy()
        self.slope = _mean_slope(self.calibrator, scores, weight.cpu().numpy())
        self.low = self.slope * float(scores.min())
        self.high = self.slope * float(scores.max())

    def log_odds(self, x: ArrayLike) -> Array:
        """The log odds of :meth:`inverse_link`, exact also where those are large."""
        return shaped(self.calibrator.log_odds(self._at(x)), x)

    def source(self, x: ArrayLike) -> Array:
        """The posterior mean of nu at scores x of shape (n,)."""
        return shaped(self.calibrator.mean_curve(self._at(x)), x)

    def inverse_link(self, x: ArrayLike) -> Array:
        """The posterior mean of the probability at scores x of shape (n,)."""
        return shaped(self.calibrator.predict_proba(self._at(x))[:, 1], x)

    def inverse_link_band(self, x: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper end of the interval of the probability, as the calibrator has it."""
        low, high = self.calibrator.predict_interval(self._at(x), level)
        return shaped(low, x), shaped(high, x)

    def source_band(self, x: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """The same for nu(x)."""
        low, high = self.calibrator.log_odds_interval(self._at(x), level)
        return shaped(low, x), shaped(high, x)

    def _at(self, x: ArrayLike) -> Array:
        return np.atleast_1d(np.asarray(x, dtype=np.float64)) / self.slope


def _mean_slope(curve: LinkCalibrator, scores: Array, weight: Array) -> float:
    """The weighted mean slope of the log odds over the scores; 1 where all scores are equal."""
    table = _table(curve, torch.from_numpy(scores))
    slopes = table(torch.from_numpy(scores))[1].numpy()
    mean = float(weight @ slopes / weight.sum())
    return mean if mean > 0 else 1.0
