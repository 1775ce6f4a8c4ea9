r"""GLMTron, SLIsotron and BregmanTron: linear scores with a known or a learned link.

The baselines of W&N's Table 2. Each predicts u(w . x) with an increasing u onto [0, 1]. In every
round w follows the errors y - u(w . x), and u is

* GLMTron (Kakade et al. 2011): known, here the sigmoid;
* SLIsotron (the same): the isotonic regression of the labels on the scores, of slope at most 1;
* BregmanTron (Nock and Menon 2020): the regression of the *previous* values of u under a Bregman
  divergence of the *previous* u, with a least and a largest slope.

Neither original is at hand, and W&N's text names no settings. What follows is therefore ours:

* Inputs are centred, a constant feature is appended, and all are scaled so that no training input
  is longer than 1, as the algorithms suppose. A step of 1 then is stable for slopes up to 1.
* A tenth of each class is held out; the round with the least squared error there is kept. The fit
  ends when ``patience`` rounds have brought no better one.
* w begins at zero. The first u of the SLIsotron is the sigmoid of 4 z, whose steepest slope is 1;
  the BregmanTron's is a straight line of the largest slope, from 0 to 1, and the first "previous
  values" are the labels: their divergence is finite under this u, and infinite under a sigmoid.
* Between sorted scores a learned u is a straight line, beyond them a straight line of the largest
  slope to 0 or 1 (BregmanTron), or constant (SLIsotron, which needs no inverse of u).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from bayesloss.warnings import warn_caller
from bayesloss_book import Array
from bayesloss_book.rivals.isotonic import bregman_isotonic, lipschitz_isotonic


@dataclass(frozen=True)
class PiecewiseLinearLink:
    """A nondecreasing link through points, constant beyond them."""

    scores: Array  # (k,), the points, scores increasing
    values: Array  # (k,)

    @classmethod
    def onto(cls, scores: Array, values: Array, slope: float) -> "PiecewiseLinearLink":
        """Through points at sorted scores, and on to 0 and to 1 with this slope.

        Where values differ by rounding errors only, one of the points is kept, so that the link has
        an inverse on all of [0, 1].
        """
        first = values[0] / slope
        last = (1 - values[-1]) / slope
        z = np.concatenate([[scores[0] - first], scores, [scores[-1] + last]])
        highest = np.maximum.accumulate(np.concatenate([[0.0], values, [1.0]]))
        # Each value at least a rounding error above the one kept before; 0 and 1 stay.
        kept = np.concatenate([[True], np.diff(np.floor(highest / _RESOLUTION)) > 0])
        kept[(highest > 1 - _RESOLUTION)] = False
        kept[-1] = True
        return cls(z[kept], highest[kept])

    def __call__(self, z: Array) -> Array:
        """Probabilities of scores."""
        return np.interp(z, self.scores, self.values)

    def inverse(self, p: Array) -> Array:
        """Scores of probabilities, for a link made by :meth:`onto`."""
        return np.interp(p, self.values, self.scores)

    def inverse_slope(self, p: Array) -> Array:
        """The derivative of the inverse, at a kink the one on the left."""
        slopes = np.diff(self.scores) / np.diff(self.values)
        return slopes[np.clip(np.searchsorted(self.values, p) - 1, 0, len(slopes) - 1)]


_RESOLUTION = 1e-12  # values of a link that differ by less are rounding errors apart
_STEEPNESS = 4.0  # of the sigmoid that the SLIsotron begins with: its steepest slope is 1
Link = Callable[[Array], Array]  # increasing, from scores to probabilities


@dataclass(kw_only=True)
class _Tron(ABC):
    """What the three have in common: inputs, rounds, hold-out, predictions.

    The fit ends when ``patience`` rounds have not lowered the squared error on a hold-out of
    ``validation_fraction`` of each class (the training data, where that is nothing), and keeps
    round ``best_iter_``. The score is ``(X - centre_) @ coef_ + intercept_``.
    """

    max_iter: int
    patience: int = 20
    validation_fraction: float = 0.1
    random_state: int | None = None

    @abstractmethod
    def _begin(self, labels: Array) -> Link:
        """The first link; what the rounds remember is set up here."""

    @abstractmethod
    def _round(self, X: Array, labels: Array, w: Array, link: Link) -> tuple[Array, Link]:
        """New weights and link."""

    def fit(self, X: NDArray, y: NDArray) -> Self:
        """Fit weights to inputs (n, d), and the link where it is learned, to labels 0 and 1.

        Inputs of type float32 are computed with as they are.
        """
        codes = np.asarray(y).astype(int)
        held = _hold_out(codes, self.validation_fraction, check_random_state(self.random_state))
        trained, held = (~held, held) if held.any() else (~held, ~held)
        train = X[trained]
        self.centre_ = train.mean(axis=0)
        train = train - self.centre_
        longest = math.sqrt(float(np.einsum("ij,ij->i", train, train).max()))
        self.scale_ = math.sqrt(2) * (longest or 1.0)
        train /= train.dtype.type(self.scale_)
        train = np.hstack([train, np.full((len(train), 1), math.sqrt(0.5), dtype=train.dtype)])
        labels = codes[trained].astype(float)
        held_labels = codes[held].astype(float)

        w = np.zeros(train.shape[1])
        link = self._begin(labels)
        errors: list[float] = []
        best = math.inf
        for n_iter in range(1, self.max_iter + 1):
            w, link = self._round(train, labels, w, link)
            errors.append(float(np.mean((held_labels - link(self._map(X[held], w))) ** 2)))
            if errors[-1] < best:
                best = errors[-1]
                self.best_iter_ = n_iter
                self._weights = w
                self.link_ = link
            elif n_iter - self.best_iter_ >= self.patience:
                break
        self.n_iter_ = n_iter
        self.holdout_errors_ = np.array(errors)
        self.converged_ = n_iter - self.best_iter_ >= self.patience
        self.coef_ = self._weights[:-1] / self.scale_
        self.intercept_ = math.sqrt(0.5) * float(self._weights[-1])
        if not self.converged_:
            warn_caller(
                f"the error on the hold-out was least in round {self.best_iter_} of {n_iter}, and "
                f"may fall further: raise max_iter={self.max_iter}",
                ConvergenceWarning,
            )
        return self

    def linear_score(self, X: NDArray) -> Array:
        """The scores w . x, of shape (n,); with a link that has flat parts they tell more apart."""
        return self._map(X, self._weights)

    def predict_proba(self, X: NDArray) -> Array:
        """The probabilities of the two classes, of shape (n, 2)."""
        p = self.link_(self.linear_score(X))
        return np.stack([1 - p, p], axis=1)

    def _map(self, X: NDArray, w: Array) -> Array:
        weights = (w[:-1] / self.scale_).astype(X.dtype)
        product = (X @ weights).astype(float) - float(self.centre_ @ weights)
        return product + math.sqrt(0.5) * w[-1]


@dataclass(kw_only=True)
class GLMTron(_Tron):
    """Weights that follow the errors of a known link, the sigmoid (Kakade et al. 2011).

    Each round is w <- w + mean_i (y_i - u(w . x_i)) x_i.
    """

    max_iter: int = 1000

    def _begin(self, labels: Array) -> Link:
        return expit

    def _round(self, X: Array, labels: Array, w: Array, link: Link) -> tuple[Array, Link]:
        return w + _correction(X, labels, _times(X, w), link), link  # Kakade et al. (2011)


@dataclass(kw_only=True)
class SLIsotron(_Tron):
    """The same with a link that is refitted in each round (Kakade et al. 2011).

    A round is the GLMTron's step, and then the isotonic regression of the labels on the new scores,
    of slope between 0 and 1.
    """

    max_iter: int = 100

    def _begin(self, labels: Array) -> Link:
        return lambda z: expit(_STEEPNESS * z)

    def _round(self, X: Array, labels: Array, w: Array, link: Link) -> tuple[Array, Link]:
        w = w + _correction(X, labels, _times(X, w), link)
        z = _times(X, w)
        order = np.argsort(z, kind="stable")
        fit = lipschitz_isotonic(z[order], labels[order], upper=1.0)
        scores, first = np.unique(z[order], return_index=True)
        return w, PiecewiseLinearLink(scores, np.maximum.accumulate(fit.values[first]))


@dataclass
class BregmanTron(_Tron):
    """Weights and link by Bregman divergences (Nock and Menon 2020).

    A round:

    1. w takes ``n_steps`` gradient steps down the mean of D_U(w . x || u^-1(y)), whose gradient is
       the mean of (u(w . x) - y) x. With the previous values of u in the place of the labels y, the
       present w would be the minimiser already, and nothing be learned: so we take labels.
    2. The scores z are sorted.
    3. New values p of u at the scores minimise the mean of D_U*(p || previous values), with slopes
       between n_t and N_t, within [0, 1]. Before the first round these values are the labels.
    4. u goes through (z, p), and on to 0 and 1 with slope N_t.

    N_t is ``max_slope``, n_t = ``slope_ratio`` N_t, or of 1 / (range of the scores) where that is
    less. With the variant "label", step 3 fits the labels by the mean of (p - y)^2 as the SLIsotron
    does; with "approx", the mean of (p - previous value)^2 takes the divergence's place.
    """

    variant: str | None = None
    _: KW_ONLY
    max_iter: int = 20
    patience: int = 3
    slope_ratio: float = 0.01
    max_slope: float = 1.0
    n_steps: int = 50

    def _begin(self, labels: Array) -> Link:
        self._previous = labels
        reach = 0.5 / self.max_slope
        return PiecewiseLinearLink(np.array([-reach, reach]), np.array([0.0, 1.0]))

    def _round(self, X: Array, labels: Array, w: Array, link: Link) -> tuple[Array, Link]:
        z = _times(X, w)
        for _ in range(self.n_steps):
            w = w + _correction(X, labels, z, link) / self.max_slope  # step 1
            z = _times(X, w)
        previous = self._previous
        order = np.argsort(z, kind="stable")
        z = z[order]  # step 2
        spread = float(z[-1] - z[0])
        lower = self.slope_ratio * min(self.max_slope, 1 / spread if spread else math.inf)
        upper = self.max_slope
        if self.variant is None:
            assert isinstance(link, PiecewiseLinearLink)
            image = link.inverse(previous[order])
            fit = bregman_isotonic(
                z, image, link.inverse, link.inverse_slope, lower=lower, upper=upper
            )
        else:
            target = labels if self.variant == "label" else previous
            fit = lipschitz_isotonic(z, target[order], lower=lower, upper=upper)
        self._previous = np.empty_like(previous)
        self._previous[order] = fit.values  # step 3
        scores, first = np.unique(z, return_index=True)
        return w, PiecewiseLinearLink.onto(scores, fit.values[first], self.max_slope)  # step 4


def _times(X: NDArray, w: Array) -> Array:
    return (X @ w.astype(X.dtype)).astype(float)


def _correction(X: NDArray, labels: Array, z: Array, link: Link) -> Array:
    """The mean of (y - u(z)) x."""
    return ((labels - link(z)).astype(X.dtype) @ X).astype(float) / len(X)


def _hold_out(codes: NDArray, fraction: float, generator: np.random.RandomState) -> NDArray:
    """Whether each datum is held out: of each class the same part, rounded down."""
    held = np.zeros(len(codes), dtype=bool)
    for code in (0, 1):
        members = np.flatnonzero(codes == code)
        held[generator.permutation(members)[: int(fraction * len(members))]] = True
    return held
