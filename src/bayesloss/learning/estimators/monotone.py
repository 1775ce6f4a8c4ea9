"""Monotone regression with uncertainty: the ISGP as a scikit-learn estimator.

W&N sections 4.1 and 5. The model is y = nu(x) + noise, nu an integrated squared Gaussian process.
Inputs and targets are shifted and scaled before the fit, so that its starting points suit any
units, and the answers are scaled back. Inputs with far-away values are first brought near by a
monotone map that is learned without the targets (:mod:`bayesloss.learning.data.range_map`), what
is said
of nu is averaged over hyper-parameters (:mod:`bayesloss.learning.inference.mixtures`), and beyond
the training inputs the curve goes on straight (:mod:`bayesloss.learning.inference.ends`).
"""

import math
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from bayesloss.arrays import as_float64
from bayesloss.learning.data.dask_inputs import array_of, is_dask
from bayesloss.learning.data.estimator_base import all_or_nothing, by_blocks, remember_columns
from bayesloss.learning.data.range_map import DEPTHS, RangeMap
from bayesloss.learning.data.rows import DaskRows, Rows, extremes, largest, size
from bayesloss.learning.inference.binning import joined, triangle
from bayesloss.learning.inference.ends import with_straight_ends
from bayesloss.learning.inference.evidence import EvidenceMaximum, maximise_evidence
from bayesloss.learning.inference.likelihoods import Gaussian, Observations
from bayesloss.learning.inference.mixtures import PosteriorMixture, average_hyperparameters
from bayesloss.learning.sources.priors import GP, ISGP, SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.threads import fixed_threads
from bayesloss.warnings import warn_caller

__all__ = ["SEARCH_RANGES", "ISGPRegressor"]

_PRIORS: dict[str, type[SourcePrior]] = {"isgp": ISGP, "gp": GP}

# Ranges of the search, in units of the target's standard deviation. The intercept's prior never
# gets narrower than the target is wide: with mu free as well, the evidence would take gamma to
# infinity, and the band of nu to zero width at the centre of the inputs.
SEARCH_RANGES = {"b": (1e-6, 1e4), "gamma": (1e-3, 1.0), "alpha": (1e-3, 1e8)}

Array = NDArray[np.float64]

_SPREADS = (1e-150, 1e150)  # spreads of the target whose squares are numbers


class ISGPRegressor(RegressorMixin, BaseEstimator):
    """Isotonic regression with uncertainty, by an integrated squared Gaussian process.

    Parameters
    ----------
    n_basis : int, default=64
        Number M of basis functions of the trigonometric kernel, even.
    increasing : bool or "auto", default="auto"
        Whether the target increases or decreases with the input. "auto" takes the sign of their
        correlation, and warns where that could be an accident of sampling.
    period_fraction : float, default=0.25
        The part of the kernel's period that the training inputs cover, in (0, 1]. It sets c, which
        the paper leaves open. Predictions are meant for inputs within one period.
    prior : {"isgp", "gp"}, default="isgp"
        "gp" drops monotonicity: the Gaussian process with the same kernel that the paper compares
        with.
    max_iter : int, default=200
        The largest number of quasi-Newton iterations of each of the two searches for the evidence's
        maximum.
    robust_range : bool, default=True
        Whether heavy-tailed inputs are first mapped, see
        :class:`bayesloss.learning.data.range_map.RangeMap`, and the curve goes on straight beyond
        the training inputs, in the map's units, see
        :class:`bayesloss.learning.inference.ends.StraightEnds`. On well-spread inputs the map is
        the identity. Without, as in the paper, the ISGP repeats itself with the kernel's period: a
        staircase. The curve of ``prior="gp"`` is left as it is, which bends back to its mean.
    average_hyperparameters : bool, default=True
        Whether predictions average over hyper-parameters, or take the ones of maximal evidence for
        true, as in the paper: bands are then too narrow.

    Attributes
    ----------
    posterior_ : Posterior
        The approximate posterior over nu at the hyper-parameters of maximal evidence, in units in
        which the mapped training inputs span [-1, 1] and the targets have mean 0 and standard
        deviation 1, increasing.
    likelihood_ : Gaussian
        The noise there, in the same units as ``posterior_``.
    mixture_ : PosteriorMixture
        What predictions are made from: approximate posteriors with their weights, in the same
        units; ``posterior_`` alone without the average. Under ``robust_range`` their sources have
        straight ends.
    range_map_ : RangeMap
        Of the inputs.
    noise_variance_ : float
        The variance of the noise, in squared units of the target; its mean over the mixture.
    log_evidence_, evidence_bound_ : float
        Laplace's approximation to the log evidence of the targets as they came, in nats, and a
        lower bound on it. Where they are far apart, distrust the band.
    increasing_ : bool
    n_iter_ : int
        Evaluations of the evidence.
    converged_ : bool
    n_features_in_ : int
        Always 1.
    feature_names_in_ : ndarray of str

    Notes
    -----
    W&N section 3 (the prior), section 4.1 and appendix D (inference); see
    :func:`~bayesloss.learning.inference.evidence.maximise_evidence` for what is maximised. Time and
    memory beyond one pass over the data do not depend on their number.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import ISGPRegressor
    >>> x = np.linspace(0, 1, 50)[:, None]
    >>> y = np.sqrt(x[:, 0]) + 0.1 * np.sin(40 * x[:, 0])
    >>> model = ISGPRegressor(n_basis=16).fit(x, y)
    >>> mean, std = model.predict([[0.25], [0.81]], return_std=True)
    >>> mean.round(1)
    array([0.5, 0.9])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_basis": [Interval(Integral, 2, None, closed="left")],
        "increasing": ["boolean", StrOptions({"auto"})],
        "period_fraction": [Interval(Real, 0, 1, closed="right")],
        "prior": [StrOptions(set(_PRIORS))],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "robust_range": ["boolean"],
        "average_hyperparameters": ["boolean"],
    }

    def __init__(
        self,
        *,
        n_basis: int = 64,
        increasing: bool | str = "auto",
        period_fraction: float = 0.25,
        prior: str = "isgp",
        max_iter: int = 200,
        robust_range: bool = True,
        average_hyperparameters: bool = True,
    ) -> None:
        self.n_basis = n_basis
        self.increasing = increasing
        self.period_fraction = period_fraction
        self.prior = prior
        self.max_iter = max_iter
        self.robust_range = robust_range
        self.average_hyperparameters = average_hyperparameters

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the posterior, with hyper-parameters that maximise the evidence.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n, 1)
            A Dask array or DataFrame stays where it is, see
            :mod:`bayesloss.learning.data.rows`.
        y : array-like or Dask collection of shape (n,)
        sample_weight : array-like or Dask collection of shape (n,), optional
            How many times each datum counts; data of weight zero are left out.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X has another number of columns than one, a value is not finite, fewer than two
            inputs are distinct, all targets are equal, either varies by less or more than
            floating-point numbers can tell, or blocks of a Dask collection have unknown sizes or
            others than those of y.
        RuntimeError
            If Dask's workers died or ran out of memory.

        Warns
        -----
        ConvergenceWarning
            If the maximum of the evidence was not found.
        UserWarning
            If ``increasing="auto"`` and the direction is in doubt.
        """
        self._validate_params()
        with all_or_nothing(self):
            self._fit(self._read(X, y, sample_weight))
        return self

    def _fit(self, rows: Rows) -> None:
        x_ends, y_ends = rows.fold(extremes, merge=largest).reshape(2, 2) * [-1, 1]
        _check_ends(x_ends, y_ends, rows)
        self.range_map_ = RangeMap()
        if self.robust_range:
            points, weight = map(as_float64, rows.distribution(DEPTHS.numpy()))
            self.range_map_ = RangeMap.fit(points, weight)
        low, high = self.range_map_(torch.from_numpy(x_ends)).numpy() / 2
        self._x_location, self._x_scale = low + high, high - low
        if self._x_scale < np.finfo(np.float64).tiny:
            raise ValueError(
                f"expected inputs that vary by more than {np.finfo(np.float64).tiny:.3g}, got "
                f"{2 * self._x_scale:.3g}: rescale them"
            )
        total, target = rows.fold(_sums).tolist()
        self._y_location = target / total
        # As yet a power of two near the scale keeps squares and products in floating point's range.
        self._y_scale = 2.0 ** math.frexp(float(np.diff(y_ends)[0]))[1]
        sums = rows.fold(_moments, self.standardise).tolist()
        x_mean, x_square, product, y_square = (value / total for value in sums)
        x_spread, y_spread = math.sqrt(x_square - x_mean**2), math.sqrt(y_square)
        correlation = product / (x_spread * y_spread)
        self._y_scale *= y_spread
        self.increasing_ = self._direction(correlation, total)
        if not self.increasing_:
            self._y_scale = -self._y_scale

        prior, likelihood = self._beginning(correlation, x_spread)
        with fixed_threads(1), torch.inference_mode(False):  # the search differentiates
            folded = rows.fold(_triangle, self.standardise, prior.features, merge=joined)
            data = likelihood.of_triangle(folded, total)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = maximise_evidence(
                prior,
                likelihood,
                torch.tensor([-1.0, 1.0], dtype=torch.float64),
                data,
                bounds=SEARCH_RANGES,
                max_iter=self.max_iter,
            )
        for warning in caught:
            warn_caller(str(warning.message), warning.category)
        self.posterior_ = found.posterior
        self.converged_ = found.converged
        self.n_iter_ = found.n_evaluations
        self.likelihood_ = found.likelihood
        self.mixture_ = self._mixture(found, data)
        if self.robust_range:
            self.mixture_ = with_straight_ends(self.mixture_)
        noise = float(self.mixture_.weights @ self.mixture_.noise_variances)
        self.noise_variance_ = float(self._y_scale**2 * noise)
        units = total * math.log(abs(self._y_scale))
        self.log_evidence_ = self.posterior_.log_evidence - units
        self.evidence_bound_ = self.posterior_.evidence_bound - units

    @by_blocks
    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The posterior mean of nu, and its standard deviation: lemma 7, as corrected.

        Parameters
        ----------
        X : array-like of shape (n, 1)
        return_std : bool, default=False
            The standard deviation is that of nu; add ``noise_variance_`` for a new observation.

        Returns
        -------
        mean : ndarray of shape (n,)
        std : ndarray of shape (n,), if asked for

        Warns
        -----
        UserWarning
            If an input lies outside the kernel's period.
        """
        x = self._new_input(X)
        mean, variance = (values.numpy() for values in self.mixture_.moments(x))
        mean = self._y_location + self._y_scale * mean
        return (mean, abs(self._y_scale) * np.sqrt(variance)) if return_std else mean

    @by_blocks
    def predict_interval(
        self,
        X: ArrayLike,
        level: float = 0.95,
        of: str = "curve",
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A band that holds nu, or new targets, with a given probability at each input.

        Parameters
        ----------
        X : array-like of shape (n, 1)
        level : float, default=0.95
            In (0, 1); as much is left out below as above.
        of : {"curve", "observation"}, default="curve"
            The band of nu itself, or of a new target, which has noise.

        Returns
        -------
        low, high : ndarray of shape (n,)

        Raises
        ------
        ValueError
            If level or ``of`` is not one of the above.

        Warns
        -----
        UserWarning
            If an input lies outside the kernel's period.
        """
        if not 0 < level < 1:
            raise ValueError(f"expected a level in (0, 1), got {level}")
        if of not in ("curve", "observation"):
            raise ValueError(f'expected of to be "curve" or "observation", got {of!r}')
        x = self._new_input(X)
        ends = [
            self._y_location
            + self._y_scale
            * self.mixture_.quantile(x, quantile, observation=of == "observation").numpy()
            for quantile in ((1 - level) / 2, (1 + level) / 2)
        ]
        low, high = ends if self.increasing_ else reversed(ends)
        return low, high

    def sample_source(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = None,
    ) -> NDArray[np.float64]:
        """Draw functions nu from the posterior; under the ISGP prior every one is monotone.

        Parameters
        ----------
        X : array-like of shape (n, 1)
        n_samples : int, default=1
        random_state : int, RandomState or None, default=None

        Returns
        -------
        ndarray of shape (n, n_samples)

        Raises
        ------
        ValueError
            If n_samples is negative, or X is not as in the fit.
        """
        if n_samples < 0:
            raise ValueError(f"expected n_samples of at least 0, got {n_samples}")
        x = self._new_input(X)
        seed = int(check_random_state(random_state).randint(2**31))
        generator = torch.Generator().manual_seed(seed)
        nu = self.mixture_.sample_source(x, n_samples, generator).numpy().T
        return self._y_location + self._y_scale * nu

    def _read(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Rows:
        """The data that count."""
        if is_dask(X):
            x = self._one_feature(array_of(X, "X"))
            remember_columns(self, X)
            return DaskRows.of(x, y, sample_weight, "X").map(_floats)
        features, target = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2
        )
        y = np.asarray(target, dtype=np.float64)
        if sample_weight is None:
            x = self._one_feature(features)
            return Rows(x, y, np.broadcast_to(1.0, len(x)))  # no memory for each
        weight = _check_sample_weight(
            sample_weight, features, dtype=np.float64, ensure_non_negative=True
        )
        counted, x = weight > 0, self._one_feature(features)
        return Rows(x[counted], y[counted], weight[counted])

    def _one_feature(self, X: Any) -> Any:
        if X.ndim != 2 or X.shape[1] != 1:
            raise ValueError(
                f"{type(self).__name__} expects X with one feature, of shape (n, 1), got {X.shape}"
            )
        return X[:, 0]

    def _new_input(self, X: ArrayLike) -> torch.Tensor:
        check_is_fitted(self)
        x = self._standard_input(
            self._one_feature(validate_data(self, X, reset=False, dtype=np.float64))
        )
        edge = 1 / self.period_fraction
        outside = int((x.abs() > edge).sum())
        if outside:
            ends = self._x_location + edge * self._x_scale * np.array([-1.0, 1.0])
            low, high = self.range_map_.inverse(torch.from_numpy(ends)).tolist()
            warn_caller(
                f"{outside} of {len(x)} inputs lie outside [{low:.6g}, {high:.6g}], where the "
                "kernel's period ends: the fit says nothing there"
                + (", and goes on straight" if self.robust_range and self.prior == "isgp" else ""),
            )
        return x

    def standardise(
        self, x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets, each of shape (n,), in the units that ``posterior_`` is in."""
        return self._standard_input(x), torch.from_numpy((y - self._y_location) / self._y_scale)

    def _standard_input(self, x: NDArray[np.float64]) -> torch.Tensor:
        mapped = self.range_map_(as_float64(x)).numpy()
        return torch.from_numpy((mapped - self._x_location) / self._x_scale)

    def _mixture(self, found: EvidenceMaximum[Gaussian], data: Observations) -> PosteriorMixture:
        if not self.average_hyperparameters:
            return PosteriorMixture([found.posterior], torch.ones(1, dtype=torch.float64))
        with fixed_threads(1), torch.inference_mode(False):  # the average differentiates
            return average_hyperparameters(found.posterior, data)

    def _direction(self, correlation: float, n: float) -> bool:
        if self.increasing != "auto":
            return bool(self.increasing)
        # Fisher's transformation: atanh of a correlation has a standard error of 1 / sqrt(n - 3).
        if n > 3 and abs(correlation) < math.tanh(1.96 / math.sqrt(n - 3)):
            warn_caller(
                f"the correlation of target and input, {correlation:.2g}, may be an accident of "
                'sampling: set increasing to True or False instead of "auto"',
            )
        return correlation >= 0

    def _beginning(self, correlation: float, spread: float) -> tuple[SourcePrior, Gaussian]:
        """A prior and a likelihood where the search may begin: those of the straight line."""
        explained = min(abs(correlation), 0.999)
        # The prior mean of the ISGP is a line of slope k(0, 0); the variance of the GP is k(0, 0).
        variance = max(explained, 0.1) / spread if self.prior == "isgp" else 1.0
        kernel = TrigonometricKernel(a=3.0, c=self.period_fraction, n_basis=self.n_basis).scaled(
            variance
        )
        return _PRIORS[self.prior](kernel), Gaussian(1 / (1 - explained**2))


def _check_ends(x: Array, y: Array, rows: Rows) -> None:
    """Refuse data whose extremes are not finite, or do not differ."""
    for name, ends in (("X", x), ("y", y)):
        if np.isnan(ends).any() or (np.isinf(ends).any() and ends[0] <= ends[1]):
            raise ValueError(f"expected finite {name}, got NaN or infinity")
    if x[0] >= x[1]:
        raise ValueError(f"expected at least 2 distinct inputs, got {int(x[0] == x[1])}")
    if y[0] == y[1]:
        raise ValueError(f"expected a target that varies, got {rows.fold(size)} times {y[0]}")
    spread = y[1] / 2 - y[0] / 2
    if not _SPREADS[0] < spread < _SPREADS[1]:
        raise ValueError(
            f"expected a target that varies by {_SPREADS[0]:g} to {_SPREADS[1]:g}, got "
            f"{2 * spread:.3g}: rescale it"
        )


def _floats(x: Array, y: NDArray) -> tuple[Array, Array]:
    return x, y.astype(np.float64)


def _sums(x: Array, y: Array, weight: Array) -> Array:
    """The sums of 1 and y."""
    return np.array([weight.sum(), (weight * y).sum()])


def _moments(
    x: Array, y: Array, weight: Array, standardise: Callable[[Array, Array], tuple[Tensor, Tensor]]
) -> Array:
    """The sums of x, x^2, x y and y^2."""
    u, v = (values.numpy() for values in standardise(x, y))
    wu = weight * u
    return np.array([wu.sum(), wu @ u, wu @ v, (weight * v**2).sum()])


def _triangle(
    x: Array,
    y: Array,
    weight: Array,
    standardise: Callable[[Array, Array], tuple[Tensor, Tensor]],
    features: Callable[[Tensor], Tensor],
) -> Tensor:
    return triangle(features, *standardise(x, y), torch.from_numpy(weight))
