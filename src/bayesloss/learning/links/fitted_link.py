"""The learned link of one class against the rest, as an estimator keeps it.

Weights s times as large with nu(x / s) are the same model. So weights get the scale of a logistic
regression, where nu'(x) has mean 1 over the training data, and nu is evaluated at score / slope.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.data.estimator_base import check_level
from bayesloss.learning.inference.laplace import Posterior, even_normals, ordered_root
from bayesloss.learning.links.tables import HermiteTable, predictive_log_odds
from bayesloss.proper_losses import ProperLoss
from bayesloss.tensors import as_float64, as_points
from bayesloss.threads import on_one_thread

DRAWS = 64  # points that stand for a posterior, where there is no chance
_BAND_DRAWS = 1024  # for bands: 64 put an end at 95 % wrong by 0.3 standard deviations or so
_ROWS = 4096  # data in a block,
_TABULATED = 2**14  # or where slopes are read off a table
_STEPS = 4096  # of a table of slopes a half period: 128 a wave of f^2's highest harmonic if M = 64
_FLAT = 1e-6  # the least mean slope that scores are multiplied by: a GP's may be zero or below


@on_one_thread
@dataclass(frozen=True)
class FittedLink:
    """The posterior over the link of one class against the rest, for scores (n,) or a number.

    Attributes
    ----------
    posterior, loss : Posterior, ProperLoss
        Of nu at score / ``slope``; the loss whose inverse canonical link makes nu a probability.
    draws, band_draws : Tensor of shape (S, D) and (B, D)
        From the posterior, for averages and for the quantiles of bands.
    slope : float
        The mean slope of nu over the training data; 1 for a GP that does not rise.
    low, high, end : float
        The smallest and largest training score, and the bound to which scores are clipped:
        infinite, or the kernel's period if a few training scores lie far out.
    """

    posterior: Posterior = field(repr=False)
    loss: ProperLoss
    draws: Tensor = field(repr=False)
    band_draws: Tensor = field(repr=False)
    slope: float
    low: float
    high: float
    end: float

    @classmethod
    def of(
        cls,
        posterior: Posterior,
        loss: ProperLoss,
        x: Tensor,
        weight: Tensor,
        *,
        draws: Tensor | None = None,
        chance: bool,
        constant_ends: bool,
    ) -> Self:
        """The link of a posterior, from training scores x on the scale of EM, with their weights.

        By ``chance`` draws are random; with ``constant_ends`` nu is constant beyond one period.
        """
        end = math.inf
        if constant_ends:
            end = posterior.prior.kernel.edge
        low = max(float(x.min()), -end)
        high = min(float(x.max()), end)
        root = ordered_root(posterior, low, high)
        if draws is None:
            draws = posterior.mode + even_normals(DRAWS, len(posterior.mode)) @ root.T
        bands = draws
        if not chance:
            bands = posterior.mode + even_normals(_BAND_DRAWS, len(posterior.mode)) @ root.T
        if end < math.inf:
            weight = torch.where(x.abs() > end, 0.0, weight)
        slope = mean_slope(posterior, x, weight)
        if not slope > _FLAT:
            slope = 1.0
        return cls(
            posterior=posterior,
            loss=loss,
            draws=draws,
            band_draws=bands,
            slope=slope,
            low=slope * low,
            high=slope * high,
            end=slope * end,
        )

    @property
    def edge(self) -> float:
        """The score where the kernel's period ends."""
        return self.slope * self.posterior.prior.kernel.edge

    def source(self, x: ArrayLike) -> Array:
        """The posterior mean of nu at scores x of shape (n,), in closed form."""
        return shaped(self.posterior.mean(self.within(x)).numpy(), x)

    def inverse_link(self, x: ArrayLike) -> Array:
        """The posterior mean of the probability u(nu(x)) at scores x of shape (n,)."""
        return shaped(self._probabilities(x, self.draws).mean(axis=0), x)

    def source_band(self, x: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper end of the central posterior interval of nu(x), by quantiles of draws."""
        nu = self.posterior.prior.source(self.within(x), self.band_draws).numpy()
        return _central(nu, level, x)

    def inverse_link_band(self, x: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """The same for u(nu(x)), as exact as :meth:`source_band`."""
        return _central(self._probabilities(x, self.band_draws), level, x)

    def log_odds(self, x: ArrayLike) -> Array:
        """The log odds of :meth:`inverse_link`, exact also where those are large."""
        return shaped(self._log_odds(self.within(x))[0].numpy(), x)

    @cached_property
    def _log_odds(self) -> HermiteTable:
        """A table, for many scores."""
        return predictive_log_odds(self.posterior.prior, self.loss, self.draws)

    def within(self, x: ArrayLike) -> Tensor:
        """Scores over the slope, of shape (n,), with those beyond the ends moved there."""
        return _points(x).clamp(-self.end, self.end) / self.slope

    def _probabilities(self, x: ArrayLike, draws: Tensor) -> Array:
        nu = self.posterior.prior.source(self.within(x), draws)
        return self.loss.inverse_canonical_link(nu).numpy()


def mean_slope(posterior: Posterior, x: Tensor, weight: Tensor) -> float:
    """The weighted mean slope at x of the posterior mean of nu, read off a table if x is long."""
    prior = posterior.prior
    coefficients = prior.mean_coefficients(posterior.mode, posterior.root)
    low = float(x.min())
    high = float(x.max())
    steps = math.ceil(_STEPS * max(1.0, (high - low) / prior.kernel.edge))
    tabulated = len(x) > 2 * steps and high > low
    points = x
    if tabulated:
        points = torch.linspace(low, high, steps + 1, dtype=x.dtype)
    slopes = []
    for part in points.split(_ROWS):
        at = part.clone().requires_grad_()
        total = (prior.features(at) @ coefficients).sum()
        (slope,) = torch.autograd.grad(total, at, create_graph=tabulated)
        bend = slope  # which nothing asks for
        if tabulated:
            (bend,) = torch.autograd.grad(slope.sum(), at)
        slopes.append(torch.stack([slope.detach(), bend]))
    slope, bend = torch.cat(slopes, dim=1)
    if not tabulated:
        return float(weight @ slope / weight.sum())
    table = HermiteTable(points, slope[None], bend[None])
    parts = zip(x.split(_TABULATED), weight.split(_TABULATED), strict=True)
    return sum(float(share @ table(part)[0]) for part, share in parts) / float(weight.sum())


def _points(x: ArrayLike) -> Tensor:
    scores = as_float64(x)
    if scores.ndim == 0:
        scores = scores[None]
    return as_points(scores, "scores")


def shaped(values: Array, x: ArrayLike) -> Array:
    """Values in the shape of x, a number for a number."""
    return values.reshape(np.shape(x))[()]


def _central(values: Array, level: float, x: ArrayLike) -> tuple[Array, Array]:
    check_level(level)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return shaped(low, x), shaped(high, x)
