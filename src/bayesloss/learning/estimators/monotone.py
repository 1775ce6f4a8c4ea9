"""Monotone regression with uncertainty: the ISGP as a scikit-learn estimator.

W&N sections 4.1 and 5: y = nu(x) + noise, with nu an integrated squared Gaussian process, fitted in
standard units. Before the fit, a monotone map learned without the targets brings far-away inputs
near (:mod:`bayesloss.learning.data.range_map`); after it, predictions average over hyper-parameters
(:mod:`bayesloss.learning.evidence.mixtures`), and the curve continues straight beyond the training
inputs (:mod:`bayesloss.learning.sources.priors`).
"""

import math
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from bayesloss.arrays import Array, untensored
from bayesloss.learning.data.checks import check_weights
from bayesloss.learning.data.estimator_base import (
    all_or_nothing,
    by_blocks,
    check_level,
    remember_columns,
)
from bayesloss.learning.data.rows import DaskRows, Rows, array_of, is_dask
from bayesloss.learning.estimators.standard_units import Moments, StandardUnits
from bayesloss.learning.evidence.evidence import maximise_evidence
from bayesloss.learning.evidence.mixtures import PosteriorMixture, average_hyperparameters
from bayesloss.learning.inference.binning import joined, triangle
from bayesloss.learning.inference.likelihoods import Gaussian
from bayesloss.learning.sources.priors import GP, ISGP, PriorName, SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.threads import on_one_thread
from bayesloss.warnings import warn_caller

_PRIORS: dict[PriorName, type[SourcePrior]] = {"isgp": ISGP, "gp": GP}

# Ranges of the search, in units of the target's standard deviation. The intercept's prior never
# gets narrower than the target is wide: with mu free as well, the evidence would take gamma to
# infinity, and the band of nu to zero width at the centre of the inputs.
SEARCH_RANGES = {"b": (1e-6, 1e4), "gamma": (1e-3, 1.0), "alpha": (1e-3, 1e8)}


@on_one_thread
class ISGPRegressor(RegressorMixin, BaseEstimator):
    """Isotonic regression with uncertainty, by an integrated squared Gaussian process.

    W&N section 3 (the prior), section 4.1 and appendix D (inference); for the objective see
    :func:`~bayesloss.learning.evidence.evidence.maximise_evidence`. After one pass over the data,
    time and memory do not depend on their number.

    Parameters
    ----------
    n_basis : int, default=64
        Basis functions of the trigonometric kernel, even.
    increasing : bool or "auto", default="auto"
        Whether the target increases with the input; "auto" takes the sign of their correlation.
    period_fraction : float, default=0.25
        The part of the kernel's period that training inputs cover, in (0, 1]: the kernel's c.
    prior : {"isgp", "gp"}, default="isgp"
        "gp" is a Gaussian process with the same kernel, not monotone, for comparison.
    max_iter : int, default=200
        Iterations allowed to each of two searches for the maximum of the evidence.
    robust_range : bool, default=True
        Whether a monotone map brings heavy-tailed inputs near
        (:class:`~bayesloss.learning.data.range_map.RangeMap`), and the ISGP's curve continues
        straight beyond the training inputs. If not, as in the paper, the curve climbs like a
        staircase with the kernel's period. A GP's curve is constant beyond one period.
    average_hyperparameters : bool, default=True
        Whether predictions average over hyper-parameters. If not, as in the paper, they use those
        of maximal evidence, and bands are too narrow.

    Attributes
    ----------
    posterior_, likelihood_ : Posterior, Gaussian
        The approximate posterior of nu and the noise at the hyper-parameters of maximal evidence,
        in standard units: mapped inputs span [-1, 1], and targets, turned to increase, have mean 0
        and standard deviation 1.
    mixture_, range_map_ : PosteriorMixture, RangeMap
        The weighted posteriors that predictions come from, in standard units; the inputs' map.
    noise_variance_, log_evidence_, evidence_bound_ : float
        The noise's mean over the mixture, in squared units of the target; Laplace's approximation
        to the log evidence of the original targets, in nats, and a lower bound: if they are far
        apart, distrust the band.
    increasing_, converged_, n_iter_ : bool, bool, int
        The direction, whether the maximum was found, and evaluations of the evidence.
    n_features_in_, feature_names_in_ : int, ndarray of str

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import ISGPRegressor
    >>> x = np.linspace(0, 1, 50)[:, None]
    >>> y = np.sqrt(x[:, 0]) + 0.1 * np.sin(40 * x[:, 0])
    >>> ISGPRegressor(n_basis=16).fit(x, y).predict([[0.25], [0.81]]).round(1)
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
        increasing: bool | Literal["auto"] = "auto",
        period_fraction: float = 0.25,
        prior: PriorName = "isgp",
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
        """Fit the posterior, with hyper-parameters that maximise the evidence; return self.

        Warns if the maximum was not found, or the direction that "auto" chose is in doubt.

        Parameters
        ----------
        X, y, sample_weight : array-like or Dask collection of shape (n, 1), (n,), (n,)
            X may also be an array-like of shape (n,). Dask collections are read by blocks. Weights,
            optional, say how many times a row counts.

        Raises
        ------
        ValueError, RuntimeError
            If X has not one column, a value is not finite, inputs or targets are all equal or vary
            by less or more than floats can tell; with Dask as :meth:`LinkgisticClassifier.fit`.
        """
        self._validate_params()
        with all_or_nothing(self):
            self._fit(self._read(X, y, sample_weight))
        return self

    def _fit(self, rows: Rows) -> None:
        units, moments = StandardUnits.of(rows, self.robust_range)
        self.range_map_ = units.range_map
        self.increasing_ = self._direction(moments)
        self._units = units if self.increasing_ else replace(units, y_scale=-units.y_scale)
        prior, likelihood = self._beginning(moments)
        ends = torch.tensor([-1.0, 1.0], dtype=torch.float64)
        with torch.inference_mode(False):  # search and average differentiate
            folded = rows.fold(_triangle, prior.features, self._units, merge=joined)
            data = likelihood.of_triangle(folded, moments.total)
            best = maximise_evidence(
                prior, likelihood, ends, data, bounds=SEARCH_RANGES, max_iter=self.max_iter
            )
            self.mixture_ = PosteriorMixture([best.posterior], ends.new_ones(1))
            if self.average_hyperparameters:
                self.mixture_ = average_hyperparameters(best.posterior, data)
        self.posterior_ = best.posterior
        self.likelihood_ = best.likelihood
        self.converged_ = best.converged
        self.n_iter_ = best.n_evaluations
        if self.robust_range:
            self.mixture_ = self.mixture_.with_straight_ends()
        scale = self._units.y_scale
        noise = float(self.mixture_.weights @ self.mixture_.noise_variances)
        self.noise_variance_ = scale**2 * noise
        in_units = moments.total * math.log(abs(scale))
        self.log_evidence_ = self.posterior_.log_evidence - in_units
        self.evidence_bound_ = self.posterior_.evidence_bound - in_units

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> Array: ...
    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Array, Array]: ...
    @overload
    def predict(self, X: ArrayLike, return_std: bool) -> Array | tuple[Array, Array]: ...
    @by_blocks
    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """The posterior mean of nu, and its standard deviation: lemma 7, as corrected.

        Both have shape (n,). Warns of inputs outside the kernel's period.

        Parameters
        ----------
        X : array-like of shape (n, 1) or (n,)
        return_std : bool, default=False
            Whether to return both. A new target's variance is std squared plus ``noise_variance_``.
        """
        x = self._new_input(X)
        centre, variance = self.mixture_.moments(x)
        mean = self._units.original_targets(centre)
        if not return_std:
            return mean
        std = abs(self._units.y_scale) * np.sqrt(variance.numpy())
        return mean, std

    @by_blocks
    def predict_interval(
        self, X: ArrayLike, level: float = 0.95, of: Literal["curve", "observation"] = "curve"
    ) -> tuple[Array, Array]:
        """Lower and upper ends of a central interval at each input; warns as :meth:`predict` does.

        The prior is smooth, so intervals for a curve with jumps or corners are too narrow. In five
        draws of 1,000 rows (``benchmarks/bands.py``) those of level 0.95 contained one step at 61 ±
        7 % of the inputs, three steps at 67 ± 3, a corner at 78 ± 6, a plateau between slopes at
        91 ± 1, a straight line at 100, a bent curve at 94 ± 2, the cube of normal inputs at 90 ± 6,
        and the logarithm and the root of log-normal inputs at 90 ± 6 and 89 ± 7.

        Parameters
        ----------
        X : array-like of shape (n, 1) or (n,)
        level : float, default=0.95
            The probability, in (0, 1); else a ValueError.
        of : {"curve", "observation"}, default="curve"
            Whether the interval is for nu, or for a new target, which has noise.
        """
        check_level(level)
        if of not in ("curve", "observation"):
            raise ValueError(f'expected of to be "curve" or "observation", got {of!r}')
        x = self._new_input(X)
        observation = of == "observation"
        below = self.mixture_.quantile(x, (1 - level) / 2, observation=observation)
        above = self.mixture_.quantile(x, (1 + level) / 2, observation=observation)
        low = self._units.original_targets(below)
        high = self._units.original_targets(above)
        return (low, high) if self.increasing_ else (high, low)

    def sample_source(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = None,
    ) -> Array:
        """Draw functions nu from the posterior, monotone under the ISGP: of shape (n, n_samples).

        Parameters
        ----------
        X : array-like of shape (n, 1) or (n,)
        n_samples : int, default=1
            At least 0; else a ValueError.
        random_state : int, RandomState or None, default=None
        """
        if n_samples < 0:
            raise ValueError(f"expected n_samples of at least 0, got {n_samples}")
        x = self._new_input(X)
        seed = int(check_random_state(random_state).randint(2**31))
        generator = torch.Generator().manual_seed(seed)
        sources = self.mixture_.sample_source(x, n_samples, generator)
        return self._units.original_targets(sources).T

    def _read(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Rows:
        if is_dask(X):
            x = self._one_feature(array_of(X, "X"))
            remember_columns(self, X)
            rows = DaskRows.in_blocks(x, y, sample_weight, "X")
            return rows.map(y=partial(np.asarray, dtype=np.float64))
        features, target = validate_data(
            self,
            as_column(X),
            untensored(y),
            dtype=np.float64,
            y_numeric=True,
            ensure_min_samples=2,
        )
        x = self._one_feature(features)
        y = np.asarray(target, dtype=np.float64)
        if sample_weight is None:  # no memory for each
            return Rows(x, y, np.broadcast_to(1.0, len(y)))
        weight = check_weights(sample_weight, features)
        return Rows(x, y, weight).some(weight > 0)

    def _one_feature(self, X: Any) -> Any:
        if X.ndim != 2 or X.shape[1] != 1:
            raise ValueError(f"expected X with one feature, of shape (n, 1), got {X.shape}")
        return X[:, 0]

    def _new_input(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        features = validate_data(self, as_column(X), reset=False, dtype=np.float64)
        x = self._units.inputs(self._one_feature(features))
        edge = 1 / self.period_fraction
        outside = int((x.abs() > edge).sum())
        if outside:
            low, high = self._units.original_inputs([-edge, edge])
            goes_on = ""
            if self.robust_range and self.prior == "isgp":
                goes_on = ", and goes on straight"
            warn_caller(
                f"{outside} of {len(x)} inputs lie outside [{low:.6g}, {high:.6g}], where the "
                f"kernel's period ends: the fit says nothing there{goes_on}"
            )
        return x

    def standardise(self, x: Array, y: Array) -> tuple[Tensor, Tensor]:
        """Inputs and targets in the units of ``posterior_``, each of shape (n,)."""
        return self._units.inputs(x), self._units.targets(y)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    def _direction(self, moments: Moments) -> bool:
        if self.increasing != "auto":
            return bool(self.increasing)
        if moments.direction_in_doubt:
            warn_caller(
                f"the correlation of target and input, {moments.correlation:.2g}, may be an "
                'accident of sampling: set increasing to True or False instead of "auto"'
            )
        return moments.correlation >= 0

    def _beginning(self, moments: Moments) -> tuple[SourcePrior, Gaussian]:
        """The prior and likelihood of the straight line, where the search begins."""
        # Within limits, so that neither the line is flat nor its noise nothing.
        correlation = min(abs(moments.correlation), 0.999)
        # The prior mean of the ISGP is a line of slope k(0, 0); the variance of the GP is k(0, 0).
        variance = 1.0
        if self.prior == "isgp":
            variance = max(correlation, 0.1) / moments.x_spread
        kernel = TrigonometricKernel(a=3.0, c=self.period_fraction, n_basis=self.n_basis)
        prior = _PRIORS[self.prior](kernel.scaled(variance))
        return prior, Gaussian(1 / (1 - correlation**2))


def as_column(X: Any) -> Any:
    """Inputs of shape (n,) as a column; others as they are."""
    X = untensored(X)
    shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    return np.asarray(X)[:, None] if len(shape) == 1 else X


def _triangle(x: Array, y: Array, weight: Array, features: Any, units: StandardUnits) -> Tensor:
    return triangle(features, units.inputs(x), units.targets(y), torch.from_numpy(weight))
