r"""The kernel under which the labels are most probable.

The evidence of EP or of Laplace's approximation depends on the hyper-parameters through the kernel
matrix alone, :math:`\partial \log Z = \tfrac12 \sum_{ij} G_{ij} \, \partial K_{ij}`. With the
sites' precisions T and shifts :math:`\tilde\nu`, the posterior mean f of the latent values, and
:math:`R = (K + T^{-1})^{-1} = T - T A S A^\top T` for a covariance S of the weights,

.. math:: G = b b^\top - R, \qquad b = \tilde\nu - T f

for EP, whose sites are stationary (GPML (5.27)), and :math:`G = b b^\top - R + u b^\top + b u^\top`
for Laplace's, whose mode moves: :math:`u = (I - R K) s`, where s holds the derivatives of
:math:`-\tfrac12 \log|I + KT|` by the mode (GPML (5.22) to (5.24)). Where classes hardly overlap,
the evidence rises with the amplitude without end; a wide log-normal prior stops that, at the cost
of a nat at 8 times a usual value.
"""

import math
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from bayesloss.calibrating.probit.expectation_propagation import fit_sites
from bayesloss.calibrating.probit.laplace import find_mode
from bayesloss.calibrating.probit.whitened_gp import (
    Features,
    GaussianWeights,
    Labels,
    Pair,
    WhitenedGP,
    skewness,
)
from bayesloss.kernels import SquaredExponential
from bayesloss.optimise import minimise

Inference = Literal["ep", "laplace"]

# Rows that the search looks at, as its time grows like their cube: from all starts, and from the
# best one.
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


class KernelEvidence(NamedTuple):
    """The log evidence of a kernel, summed over data sets, and its slopes."""

    value: float
    by_log_length: Float[Tensor, " D"]
    by_log_amplitude: float
    q: GaussianWeights


def kernel_evidence(
    inputs: Tensor, y: Labels, amplitude: float, *, inference: Inference, start: Pair | None = None
) -> KernelEvidence:
    """Log evidence of EP or Laplace at (n, D) inputs in units of length scales, and its slopes."""
    inputs = inputs - inputs.mean(0)  # nothing changes but rounding errors below
    prior = WhitenedGP.at(SquaredExponential(a=1.0, b=amplitude**2), inputs)
    features = prior.features.expand(len(y), -1, -1)
    q = fit_sites(features, y, start=start) if inference == "ep" else find_mode(features, y)
    # dK / d log amplitude = 2 K, and dK_ij / d log length_d = K_ij (x_id - x_jd)^2.
    weighted = _pull(features, y, q, inference) * (prior.features @ prior.features.mT)
    by_log_length = (weighted.sum(0)[:, None] * inputs**2 - inputs * (weighted @ inputs)).sum(0)
    return KernelEvidence(
        value=float(q.log_evidence.sum()),
        by_log_length=by_log_length,
        by_log_amplitude=float(weighted.sum()),
        q=q,
    )


def _pull(features: Features, y: Labels, q: GaussianWeights, inference: Inference) -> Tensor:
    """G of the module's docstring, summed over the data sets."""
    precision, shift = q.label_sites()
    mean, variance = q.latent(features)
    b = shift - precision * mean  # of Laplace: the slope of the log likelihood at the mode
    TA = features * precision[..., None]
    G = (TA @ q.covariance @ TA.mT).sum(0) - torch.diag(precision.sum(0)) + b.mT @ b
    if inference == "laplace":
        s = 0.5 * variance * y * skewness(y * mean)  # GPML (5.23)
        Ks = features @ (features.mT @ s[..., None])
        u = s - precision * Ks.squeeze(-1) + (TA @ (q.covariance @ (TA.mT @ Ks))).squeeze(-1)
        G = G + u.mT @ b + b.mT @ u  # GPML (5.24)
    return G


class ChosenKernel(NamedTuple):
    """Where evidence times prior is largest; length scales in units of the columns."""

    length_scales: Float[np.ndarray, " D"]
    amplitude: float
    converged: bool


def choose_kernel(
    X: Float[np.ndarray, "n D"],
    y: Float[np.ndarray, "m n"],
    *,
    inference: Inference,
    length_scales: Float[np.ndarray, " D"] | None = None,
    amplitude: float | None = None,
    ard: bool = False,
) -> ChosenKernel:
    """Maximise evidence times prior by L-BFGS from several starts, on at most 500 of the rows."""
    given = length_scales is not None
    unit = column_scales(X) if length_scales is None else length_scales
    if given and amplitude is not None:
        return ChosenKernel(unit, amplitude, True)
    first_rows = stratified_rows(y, _FIRST_ROWS)
    rows = stratified_rows(y, _ROWS)
    first_search = _Search(X[first_rows] / unit, y[:, first_rows], inference, amplitude)
    search = _Search(X[rows] / unit, y[:, rows], inference, amplitude)
    starts: list[tuple[float, ...]] = []
    if not given:
        starts.append(_LENGTHS)
    if amplitude is None:
        # One is enough beside three length scales.
        starts.append(_AMPLITUDES if given else _AMPLITUDES[:1])
    log_starts = torch.tensor(list(product(*starts)), dtype=torch.float64).log()
    best, converged = first_search.climb(log_starts)
    if len(first_rows) < len(rows):
        best, converged = search.climb(best[None])
    if ard and not given and X.shape[1] > 1:
        by_column = torch.cat([best[:1].expand(X.shape[1]), best[1:]])
        best, converged = search.climb(by_column[None])
    multiples, chosen_amplitude = search.read(best)
    return ChosenKernel(
        length_scales=unit * multiples.numpy(), amplitude=chosen_amplitude, converged=converged
    )


class _Search:
    """Minus the log of evidence times prior, by the logarithms of the parameters not given."""

    def __init__(
        self, inputs: np.ndarray, y: np.ndarray, inference: Inference, amplitude: float | None
    ) -> None:
        self.inputs = torch.from_numpy(inputs)
        self.y = torch.from_numpy(y)
        self.inference = inference
        self.amplitude = amplitude
        self.sites: Pair | None = None  # of the last point, from where EP begins at the next

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
        lengths, amplitude = self.read(free)
        evidence = kernel_evidence(
            self.inputs / lengths, self.y, amplitude, inference=self.inference, start=self.sites
        )
        if math.isfinite(evidence.value):
            self.sites = evidence.q.sites
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

    def climb(self, starts: Float[Tensor, "k p"]) -> tuple[Tensor, bool]:
        """The best end of searches from some starts, and whether its slope vanishes."""
        ranges = [_LENGTH_RANGE] * starts.shape[1]
        if self.amplitude is None:
            ranges[-1] = _AMPLITUDE_RANGE
        bounds = torch.tensor(ranges).double().log()
        options = {"maxiter": _STEPS}
        ends = [minimise(self, start, bounds=bounds, options=options) for start in starts]
        best = min(ends, key=lambda end: float(end.fun))
        return torch.from_numpy(best.x), bool(best.success)


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
