"""Newton's method for a mode of the log joint density (W&N section 4.1).

Steps are in units of the prior's standard deviations. Where the Hessian is indefinite, its
eigenvalues' absolute values lead away from saddle points (Dauphin et al. 2014); on one, its lowest
eigenvector does. Backtracking makes every step an ascent.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bayesloss.learning.inference.log_joint import LogDensity, Matrix, Scalar, Vector

_EXACT = 1e-18  # nats still to gain: the mode is known to half the digits that floating point has
_NEAR = 1e-6  # nats that a mode may be short of where evidences are compared: none feels them
_CLOSE = 1e-10  # nats still to gain at a mode that rounding errors keep from becoming exact


@dataclass(frozen=True)
class Mode:
    """Where Newton's method ended, with the Hessian in units of the prior precision."""

    Gamma: Vector
    curvature: Matrix
    least_curvature: float
    converged: bool
    n_iter: int


def find_mode(
    joint: LogDensity, start: Vector, *, max_iter: int = 200, exact: float = _EXACT
) -> Mode:
    """Climb to a mode by Newton's method, until a step would gain less than ``exact`` nats."""
    scale = joint.prior.precision.rsqrt()
    Gamma, value, n_iter, gain = start, joint(start), 0, math.inf
    while True:
        before, (gradient, hessian) = gain, joint.derivatives(Gamma)
        slope, curvature = scale * gradient, scale[:, None] * hessian * scale
        factor, indefinite = torch.linalg.cholesky_ex(curvature)
        if indefinite:
            step, gain = _saddle_free_step(curvature, slope, exact)
        else:
            step = torch.cholesky_solve(slope[:, None], factor)[:, 0]
            gain = 0.5 * float(slope @ step)
        rounding = not indefinite and before <= gain < _CLOSE  # else a step would square the gain
        if gain < exact or n_iter == max_iter or rounding:
            break
        moved = _ascend(joint, Gamma, scale * step, value, gain)
        if moved is None:
            break
        Gamma, value = moved
        n_iter += 1
    values = torch.linalg.eigvalsh(curvature)
    # What is smaller than rounding errors of the largest is none.
    definite = not indefinite and bool(values[0] > torch.finfo(values.dtype).eps * values[-1])
    converged = definite and gain < max(exact, _CLOSE, 1e-14 * abs(float(value)))
    return Mode(Gamma, curvature, float(values[0]), converged, n_iter)


def find_modes(
    joints: Mapping[int, LogDensity],
    start: Vector,
    known: Mapping[int, Vector] | None = None,
    **search: Any,
) -> dict[int, Mode]:
    """The modes under those priors that have one, each sought from a known or the next one."""
    found: dict[int, Mode] = {}
    for place in sorted(joints, reverse=True):
        mode = find_mode(joints[place], (known or {}).get(place, start), **search)
        if mode.least_curvature > 0:
            found[place], start = mode, mode.Gamma
    if not found:
        raise ValueError(f"expected a mode under one of {len(joints)} priors, got none")
    return found


def choose_prior(
    joints: Mapping[int, LogDensity], known: Mapping[int, Vector], start: Vector, behind: float
) -> tuple[int, float, dict[int, Mode]]:
    """The best prior's place, its evidence, and the modes of those less than ``behind`` worse.

    They differ in hyper-parameters alone, and so share Gamma.
    """
    modes = find_modes(joints, start, known, exact=_NEAR)
    values = {i: float(joints[i].log_evidence(m.Gamma, m.curvature)) for i, m in modes.items()}
    best = max(values, key=lambda i: values[i])
    near = {i: mode for i, mode in modes.items() if values[i] >= values[best] - behind}
    return best, values[best], near


def _saddle_free_step(curvature: Matrix, slope: Vector, exact: float) -> tuple[Vector, float]:
    """A step away from a saddle, and its expected gain; on the saddle, the lowest eigenvector."""
    values, vectors = torch.linalg.eigh(curvature)
    step = vectors @ ((vectors.T @ slope) / values.abs().clamp_min(1e-3))
    gain = 0.5 * float(slope @ step)
    if gain < exact:
        return vectors[:, 0], -0.5 * float(values[0])
    return step, gain


def _ascend(
    joint: LogDensity, Gamma: Vector, step: Vector, value: Scalar, gain: float
) -> tuple[Vector, Scalar] | None:
    """Halve the step until the log joint rises by a fair part of what Newton's model predicts."""
    fraction, rounding = 1.0, 1e-14 * abs(float(value))
    # What rounding errors hide from a full step, no smaller one finds.
    least = 1.0 if gain < _CLOSE else 1e-10
    while fraction >= least:
        moved = Gamma + fraction * step
        new_value = joint(moved)
        if new_value >= value + 1e-4 * fraction * gain - rounding:
            return moved, new_value
        fraction /= 2
    return None
