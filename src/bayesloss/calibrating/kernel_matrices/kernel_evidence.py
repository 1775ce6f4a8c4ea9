r"""The kernel under which the labels are most probable.

The evidence of EP or of Laplace's approximation depends on the hyper-parameters through the kernel
matrix alone, :math:`\partial \log Z = \tfrac12 \sum_{ij} G_{ij} \, \partial K_{ij}`. With the
sites' precisions T and shifts :math:`\tilde\nu`, the posterior mean f of the latent values, and
:math:`R = (K + T^{-1})^{-1}`,

.. math:: G = b b^\top - R, \qquad b = \tilde\nu - T f = K^{-1} f

for EP, whose sites are stationary (GPML (5.27)), and :math:`G = b b^\top - R + u b^\top + b u^\top`
for Laplace's, whose mode moves: :math:`u = (I - R K) s`, where s holds the derivatives of
:math:`-\tfrac12 \log|I + KT|` by the mode (GPML (5.22) to (5.24)). Where classes hardly overlap,
the evidence rises with the amplitude without end; a wide log-normal prior stops that, at the cost
of a nat at 8 times a usual value.
"""

import math
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

from bayesloss.calibrating.kernel_matrices.kernel_matrix import evidence_under
from bayesloss.calibrating.probit.expectation_propagation import SETTLED
from bayesloss.calibrating.probit.whitened_gp import Inference, Labels, Sites
from bayesloss.kernels import SquaredExponential
from bayesloss.optimise import minimise

# Rows that the search looks at, as its time grows like their cube: at first, and later.
_FIRST_ROWS = 250
_ROWS = 500
# Length scales, as multiples of a typical distance in standardised columns, the root of their
# number: the search's starts, and its range, from wiggles of a fiftieth of the data's spread to
# nearly straight lines.
_LENGTHS = (0.3, 1.0, 3.0)
_LENGTH_RANGE = (0.02, 50.0)
# Amplitudes, in units of the probit noise: beyond the range labels are all noise, or without any.
_AMPLITUDES = (1.0, 4.0)
_AMPLITUDE_RANGE = (0.01, 100.0)
# The log-normal prior: medians, and the standard deviation of the logarithms, by which 8 times a
# usual value costs a nat.
_USUAL_LENGTH = 1.0
_USUAL_AMPLITUDE = 3.0
_LOG_SD = 1.5
_STEPS = 100  # of a search at most, where 5 to 13 are usual
# Where a search ends: as the prior alone curves by 1 / _LOG_SD^2, less than about a thousandth of a
# nat is missing then. The other one is for a search from whose end another begins.
_SLOPE = 0.03
_ROUGH_SLOPE = 0.3
_SETTLED = 1e-4  # of EP's sites: gives slopes to some 1e-3
# Minus the second derivative of a row's log evidence by a logarithm, as a rule: sets the length of
# the first step.
_USUAL_CURVATURE = 0.25


class KernelEvidence(NamedTuple):
    """The log evidence of a kernel, summed over data sets, and its slopes."""

    value: float
    by_log_length: Float[Tensor, " D"]
    by_log_amplitude: float
    sites: Sites


def kernel_evidence(
    inputs: Tensor,
    y: Labels,
    amplitude: float,
    *,
    inference: Inference,
    start: Sites | None = None,
    settled: float = SETTLED,
) -> KernelEvidence:
    """Log evidence of EP or Laplace at (n, D) inputs in units of length scales, and its slopes."""
    inputs = inputs - inputs.mean(0)  # nothing changes but rounding errors below
    K = SquaredExponential(a=1.0, b=amplitude**2)(inputs, inputs)
    evidence = evidence_under(K, y, inference, start, settled)
    # dK / d log amplitude = 2 K, and dK_ij / d log length_d = K_ij (x_id - x_jd)^2.
    weighted = evidence.by_kernel * K
    by_log_length = (weighted.sum(0)[:, None] * inputs**2 - inputs * (weighted @ inputs)).sum(0)
    return KernelEvidence(
        value=evidence.value,
        by_log_length=by_log_length,
        by_log_amplitude=float(weighted.sum()),
        sites=evidence.sites,
    )


class ChosenKernel(NamedTuple):
    """Where evidence times prior is largest; length scales in units of the columns."""

    length_scales: Float[np.ndarray, " D"]
    amplitude: float
    converged: bool
    sites: Sites | None
    """Of all rows' likelihood there, if the search saw all of them."""


def choose_kernel(
    X: Float[np.ndarray, "n D"],
    y: Float[np.ndarray, "m n"],
    *,
    inference: Inference,
    length_scales: Float[np.ndarray, " D"] | None = None,
    amplitude: float | None = None,
    ard: bool = False,
) -> ChosenKernel:
    """Maximise evidence times prior from the best of several starts, on at most 500 of the rows.

    Searches follow each other: of Laplace's evidence on at most 250 rows, from several starts; of
    Laplace's on all; of the evidence asked for; with ``ard`` of this by column. Each begins where
    the one before ended, and those before ``ard`` with the curvature that was found there.
    """
    given = length_scales is not None
    unit = column_scales(X) if length_scales is None else length_scales
    if given and amplitude is not None:
        return ChosenKernel(unit, amplitude, converged=True, sites=None)
    starts: list[tuple[float, ...]] = []
    if not given:
        starts.append(_LENGTHS)
    if amplitude is None:
        starts.append(_AMPLITUDES)
    log_starts = torch.tensor(list(product(*starts)), dtype=torch.float64).log()
    first_rows = stratified_rows(y, _FIRST_ROWS)
    rows = stratified_rows(y, _ROWS)
    search = _Search(X[first_rows] / unit, y[:, first_rows], "laplace", amplitude)
    ends = [search.climb(start, _ROUGH_SLOPE) for start in search.best_of(log_starts)]
    end = min(ends, key=lambda end: end.value)
    if len(first_rows) < len(rows):
        search = _Search(X[rows] / unit, y[:, rows], "laplace", amplitude)
        end = search.climb(end, _ROUGH_SLOPE)
    search.inference = inference
    end = search.climb(end, _SLOPE)
    if ard and not given and X.shape[1] > 1:
        by_column = torch.cat([end.at[:1].expand(X.shape[1]), end.at[1:]])
        end = search.climb(_Found.at_start(by_column), _SLOPE)
    multiples, chosen_amplitude = search.read(end.at)
    return ChosenKernel(
        length_scales=unit * multiples.numpy(),
        amplitude=chosen_amplitude,
        converged=end.converged,
        sites=search.sites if len(rows) == len(X) else None,
    )


class _Found(NamedTuple):
    """Where a search begins or has ended, by the logarithms of what it seeks."""

    at: Float[Tensor, " p"]
    inverse_hessian: Float[np.ndarray, "p p"]  # of each row's share
    value: float
    converged: bool

    @classmethod
    def at_start(cls, at: Float[Tensor, " p"], value: float = math.inf) -> "_Found":
        """Before a search; a usual curvature stands for one that is not known."""
        return cls(at, np.eye(len(at)) / _USUAL_CURVATURE, value, converged=False)


class _Search:
    """Minus the log of evidence times prior, by the logarithms of the parameters not given."""

    def __init__(
        self, inputs: np.ndarray, y: np.ndarray, inference: Inference, amplitude: float | None
    ) -> None:
        self.inputs = torch.from_numpy(inputs)
        self.y = torch.from_numpy(y)
        self.inference = inference
        self.amplitude = amplitude
        self.sites: Sites | None = None  # of the last point, from where the next one's begin

    def read(self, free: Tensor) -> tuple[Tensor, float]:
        """Length scales, of all columns or one for all, and the amplitude."""
        values = torch.from_numpy(np.exp(free.numpy()))
        if self.amplitude is None:
            multiples = values[:-1]
            amplitude = float(values[-1])
        else:
            multiples = values
            amplitude = self.amplitude
        if not len(multiples):
            return values.new_ones(1), amplitude
        return self.inputs.shape[1] ** 0.5 * multiples, amplitude

    def __call__(self, free: Tensor) -> tuple[float, Tensor]:
        bounds = self.bounds(len(free))
        if bool(((free < bounds[:, 0]) | (free > bounds[:, 1])).any()):
            return math.inf, torch.zeros_like(free)
        lengths, amplitude = self.read(free)
        evidence = kernel_evidence(
            self.inputs / lengths,
            self.y,
            amplitude,
            inference=self.inference,
            start=self.sites,
            settled=_SETTLED,
        )
        if math.isfinite(evidence.value):
            self.sites = evidence.sites
        slopes = evidence.by_log_length
        if len(lengths) == 1:
            slopes = slopes.sum(0, keepdim=True)
        usual = torch.full_like(free, math.log(_USUAL_LENGTH))
        if self.amplitude is None:
            by_amplitude = slopes.new_tensor([evidence.by_log_amplitude])
            slopes = torch.cat([slopes[: len(free) - 1], by_amplitude])
            usual[-1] = math.log(_USUAL_AMPLITUDE)
        off = (free - usual) / _LOG_SD
        return float(0.5 * off @ off) - evidence.value, off / _LOG_SD - slopes

    def bounds(self, n_free: int) -> Float[Tensor, "p 2"]:
        """Of the logarithms."""
        ranges = [_LENGTH_RANGE] * n_free
        if self.amplitude is None:
            ranges[-1] = _AMPLITUDE_RANGE
        return torch.tensor(ranges, dtype=torch.float64).log()

    def best_of(self, starts: Float[Tensor, "k p"]) -> list[_Found]:
        """The best start of those that share the first coordinate, for each value of that."""
        best: dict[float, _Found] = {}
        for start in starts:
            value, _ = self(start)
            first = float(start[0])
            if first not in best or value < best[first].value:
                best[first] = _Found.at_start(start, value)
        return list(best.values())

    def climb(self, start: _Found, slope: float) -> _Found:
        """Search until no slope is larger; by L-BFGS-B where BFGS meets a bound."""
        n = len(self.inputs)
        options = {"maxiter": _STEPS, "gtol": slope}
        curved = start.inverse_hessian / n
        end = minimise(self, start.at, inverse_hessian=curved, options=options)
        inverse_hessian = end.hess_inv
        if not end.success:
            near = torch.from_numpy(end.x)
            end = minimise(self, near, bounds=self.bounds(len(near)), options=options)
            inverse_hessian = end.hess_inv.todense()
        return _Found(
            at=torch.from_numpy(end.x),
            inverse_hessian=inverse_hessian * n,
            value=float(end.fun),
            converged=bool(end.success),
        )


def checked_length_scales(given: ArrayLike, X: Float[np.ndarray, "n D"]) -> Float[np.ndarray, " D"]:
    """One for each column; a ValueError unless positive and, in their units, inputs are finite."""
    scales = np.asarray(given, dtype=float)
    n_features = X.shape[1]
    if scales.ndim and scales.shape != (n_features,):
        raise ValueError(f"expected one length_scale or {n_features}, got shape {scales.shape}")
    if not ((scales > 0) & np.isfinite(scales)).all():
        raise ValueError(f"expected length_scale > 0 and finite, got {scales.tolist()}")
    with np.errstate(over="ignore"):
        in_units = np.abs(X).max(axis=0) / scales
    if not np.isfinite(in_units).all():
        raise ValueError(
            f"expected inputs of a finite number of length scales, got {np.abs(X).max():g} in "
            f"units of {scales.min():g}"
        )
    return np.broadcast_to(scales, n_features).copy()


def column_scales(X: Float[np.ndarray, "n D"]) -> Float[np.ndarray, " D"]:
    """Standard deviations of the columns, without overflow; one where a column is constant."""
    largest = np.abs(X).max(axis=0)
    largest[largest == 0] = 1.0
    spread = (X / largest).std(axis=0) * largest
    return np.where((np.ptp(X / largest, axis=0) > 0) & (spread > 0), spread, 1.0)


def stratified_rows(y: Float[np.ndarray, "m n"], n_rows: int) -> Int[np.ndarray, " k"]:
    """At most ``n_rows`` rows, each class in proportion; the same at each call."""
    n = y.shape[1]
    if n <= n_rows:
        return np.arange(n)
    order = np.random.default_rng(0).permutation(n)
    by_class = order[np.lexsort(y[:, order])]  # rows of one class together
    spaced = np.linspace(0, n - 1, n_rows).round().astype(int)
    return np.sort(by_class[spaced])
