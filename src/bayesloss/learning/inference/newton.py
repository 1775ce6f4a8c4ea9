"""Newton's method for a mode of the log joint density (W&N section 4.1).

Steps are in units of the prior's standard deviations. Where the Hessian is indefinite, its
eigenvalues' absolute values lead away from saddle points (Dauphin et al. 2014); on one, its lowest
eigenvector does. Backtracking makes every step an ascent.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from bayesloss.learning.inference.log_joint import LogDensity, Matrix, Scalar, Vector

# What the next step would gain, in nats. The search stops at the first: the mode is then known to
# half the digits that floating point has. It stops at the second where evidences are compared: so
# little does not change them.
_GAIN_TO_STOP = 1e-18
_GAIN_TO_COMPARE = 1e-6
# Rounding errors may keep a mode from becoming so exact. Below this gain they end the search where
# it does not fall any more, and the mode counts as found.
_GAIN_CONVERGED = 1e-10
ROUNDING = 1e-14  # part of the log joint that its rounding errors may be: 45 of the last digit
FAIR = 1e-4  # part of the predicted gain that a step has to bring, as is usual (Armijo's rule)
_SHORTEST = 1e-10  # part of a step: after 33 halvings the search gives up
LEAST_EIGENVALUE = 1e-3  # where the curvature is nearly flat, so that no step is a leap


@dataclass(frozen=True)
class Mode:
    """Where Newton's method ended, with the Hessian in units of the prior precision."""

    Gamma: Vector
    curvature: Matrix
    least_curvature: float
    converged: bool
    n_iter: int


def find_mode(
    joint: LogDensity, start: Vector, *, max_iter: int = 200, gain_to_stop: float = _GAIN_TO_STOP
) -> Mode:
    """Climb to a mode by Newton's method, until a step would gain less than ``gain_to_stop``."""
    scale = joint.prior.precision.rsqrt()
    Gamma = start
    value = joint(start)
    n_iter = 0
    gain = math.inf
    while True:
        last_gain = gain
        gradient, hessian = joint.derivatives(Gamma)
        slope = scale * gradient
        curvature = scale[:, None] * hessian * scale
        factor, indefinite = torch.linalg.cholesky_ex(curvature)
        if indefinite:
            step, gain = _saddle_free_step(curvature, slope, gain_to_stop)
        else:
            step = torch.cholesky_solve(slope[:, None], factor)[:, 0]
            gain = 0.5 * float(slope @ step)
        # Near a mode each step squares the gain; where it no longer falls, only rounding is left.
        only_rounding = not indefinite and last_gain <= gain < _GAIN_CONVERGED
        if gain < gain_to_stop or n_iter == max_iter or only_rounding:
            break
        moved = _ascend(joint, Gamma, scale * step, value, gain)
        if moved is None:
            break
        Gamma, value = moved
        n_iter += 1
    values = torch.linalg.eigvalsh(curvature)
    # What is smaller than rounding errors of the largest is none.
    definite = not indefinite and bool(values[0] > torch.finfo(values.dtype).eps * values[-1])
    converged = definite and gain < max(gain_to_stop, _GAIN_CONVERGED, ROUNDING * abs(float(value)))
    return Mode(
        Gamma=Gamma,
        curvature=curvature,
        least_curvature=float(values[0]),
        converged=converged,
        n_iter=n_iter,
    )


def find_modes(
    joints: Mapping[int, LogDensity],
    start: Vector,
    known: Mapping[int, Vector] | None = None,
    **search: Any,
) -> dict[int, Mode]:
    """The modes under those priors that have one, each sought from a known or the next one."""
    if known is None:
        known = {}
    modes: dict[int, Mode] = {}
    for place in sorted(joints, reverse=True):
        mode = find_mode(joints[place], known.get(place, start), **search)
        if mode.least_curvature > 0:
            modes[place] = mode
            start = mode.Gamma
    if not modes:
        raise ValueError(f"expected a mode under one of {len(joints)} priors, got none")
    return modes


class ChosenPrior(NamedTuple):
    """The best of some priors, by its place among them."""

    place: int
    log_evidence: float
    near_modes: dict[int, Mode]  # of all priors that are not far behind, by their places


def choose_prior(
    joints: Mapping[int, LogDensity], known: Mapping[int, Vector], start: Vector, behind: float
) -> ChosenPrior:
    """The prior of the highest evidence; near are those less than ``behind`` nats worse.

    They differ in hyper-parameters alone, and so share Gamma.
    """
    modes = find_modes(joints, start, known, gain_to_stop=_GAIN_TO_COMPARE)
    evidence = {
        place: float(joints[place].log_evidence(mode.Gamma, mode.curvature))
        for place, mode in modes.items()
    }
    best = max(evidence, key=lambda place: evidence[place])
    near = {
        place: mode for place, mode in modes.items() if evidence[place] >= evidence[best] - behind
    }
    return ChosenPrior(place=best, log_evidence=evidence[best], near_modes=near)


def _saddle_free_step(
    curvature: Matrix, slope: Vector, gain_to_stop: float
) -> tuple[Vector, float]:
    """A step away from a saddle, and its expected gain; on the saddle, the lowest eigenvector."""
    values, vectors = torch.linalg.eigh(curvature)
    step = vectors @ ((vectors.T @ slope) / values.abs().clamp_min(LEAST_EIGENVALUE))
    gain = 0.5 * float(slope @ step)
    if gain < gain_to_stop:
        return vectors[:, 0], -0.5 * float(values[0])
    return step, gain


def _ascend(
    joint: LogDensity, Gamma: Vector, step: Vector, value: Scalar, gain: float
) -> tuple[Vector, Scalar] | None:
    """Halve the step until the log joint rises by a fair part of what Newton's model predicts."""
    rounding = ROUNDING * abs(float(value))
    # What rounding errors hide from a full step, no smaller one finds.
    shortest = 1.0 if gain < _GAIN_CONVERGED else _SHORTEST
    fraction = 1.0
    while fraction >= shortest:
        moved = Gamma + fraction * step
        new_value = joint(moved)
        if new_value >= value + FAIR * fraction * gain - rounding:
            return moved, new_value
        fraction /= 2
    return None
