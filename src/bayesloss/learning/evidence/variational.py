"""Variational inference for sources: the Gaussian nearest to the posterior (beyond W&N 4.1).

Among Gaussians q = N(m, S) find the one with the highest lower bound L(q) on the evidence, see
``gaussian_bound``; the fixed point and its derivation are in book/beyond/variational. In q's metric
the gradient (S E_q[grad], S^-1 -> E_q[H]) is a Newton step, corrected as in L-BFGS for how E_q[H]
changes; backtracking makes every step an ascent.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesloss.lbfgs import Memory
from bayesloss.learning.evidence.gaussian_bound import GaussianBound, Trial
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Likelihood
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import (
    FAIR,
    LEAST_EIGENVALUE,
    ROUNDING,
    Mode,
    find_mode,
)
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.threads import one_thread
from bayesloss.warnings import warn_unconverged

_SETTLED = 1e-6  # nats that the next step would gain,
_RESOLVED = 1e-12  # or part of the bound: no search sees less than rounding errors
_LEAST_BEND = 1e-3  # the curvature along a step that corrects the next ones
_LEAST_STEP = 1e-6  # shorter ones are lost to rounding


@one_thread()
@torch.inference_mode(False)  # the search differentiates, wherever it is called
def variational(
    prior: SourcePrior,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    *,
    sample_weight: Tensor | None = None,
    start: Tensor | None = None,
    max_iter: int = 200,
) -> Posterior:
    """Approximate the posterior of Gamma by the Gaussian with the highest bound on the evidence.

    It represents one mode and its twin, without the mass of others. If it does not settle, or
    settles on a saddle, there is a ConvergenceWarning. In the :class:`Posterior`, m is ``mode`` and
    S ``covariance``; ``log_evidence`` is the highest L with the twin, a bound under Gaussian noise
    and for labels with the log loss; other likelihoods are averaged as if nu(x_n) were normal.
    ``evidence_bound`` is a bound in any case, by ``expected_log_density``, or NaN.
    ``least_curvature`` is that of E_q[H], and ``n_iter`` counts the steps after Newton's.

    Parameters
    ----------
    prior, likelihood, x, y, sample_weight, start
        As for :func:`~bayesloss.learning.inference.laplace.laplace`, at whose mode the search
        begins.
    max_iter : int, default=200
        The most steps of Newton's method, and then of this one.

    Raises
    ------
    ValueError
        As for ``laplace``.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import ISGP, Gaussian, TrigonometricKernel, laplace, variational
    >>> x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    >>> problem = ISGP(TrigonometricKernel(a=1.2, c=0.25, n_basis=16)), Gaussian(200.0), x, x**3
    >>> variational(*problem).log_evidence > laplace(*problem).evidence_bound
    True
    """
    joint = LogJoint.of(prior, likelihood, x, y, sample_weight)
    if start is None:
        start = prior.start(x)
    mode = find_mode(joint, start, max_iter=max_iter)
    posterior, trouble = maximise_bound(GaussianBound(joint), mode, max_iter)
    if trouble:
        warn_unconverged(f"{trouble}; raise max_iter={max_iter} or begin elsewhere")
    return posterior


def nearest(joint: LogJoint, mode: Mode, *, with_laws: bool = True) -> tuple[Posterior, str]:
    """The Gaussian nearest to the posterior, and any failure: an objective of the evidence."""
    return maximise_bound(GaussianBound(joint, with_laws=with_laws), mode)


@torch.no_grad()
def maximise_bound(bound: GaussianBound, mode: Mode, max_iter: int = 200) -> tuple[Posterior, str]:
    """The best Gaussian that the search finds from a mode, and what went wrong, or ""."""
    joint = bound.joint
    begin = bound(mode.Gamma, _positive(joint.curvature(mode.Gamma)))
    top = _climb(bound, begin, max_iter)
    trouble = ""
    if top.gain > max(_SETTLED, _RESOLVED * abs(float(top.q.value))):
        trouble = (
            f"the bound did not settle in {top.n_iter} steps: "
            f"the next would gain {top.gain:.2g} nats"
        )
    elif top.bend <= 0:
        trouble = (
            f"the bound settled on a saddle: its last step found a curvature of {top.bend:.2g}"
        )
    posterior = Posterior(
        prior=joint.prior,
        likelihood=joint.likelihood,
        mode=top.q.m,
        root=top.q.root,
        log_evidence=float(top.q.value),
        evidence_bound=_certain_bound(bound, top.q),
        least_curvature=float(torch.linalg.eigvalsh(top.q.precision)[0]),
        converged=not trouble,
        n_iter=top.n_iter,
    )
    return posterior, trouble


def _certain_bound(bound: GaussianBound, q: Trial) -> float:
    """What q certainly bounds the evidence by: L, or less where nu counted as normal, or NaN."""
    if bound.certain:
        return float(q.value)
    mean, variance = bound.joint.moments(q.m, q.root, q.slopes)
    fit = bound.joint.likelihood.expected_log_density(mean, variance, bound.joint.data)
    if fit is None:
        return math.nan
    return float(q.value) + float(fit - bound.fit(mean, variance))


def _positive(curvature: Tensor) -> Tensor:
    """The curvature as the first S^-1; on a saddle, with its eigenvalues' absolute values."""
    _, not_positive = torch.linalg.cholesky_ex(curvature)
    if not int(not_positive):
        return curvature
    values, vectors = torch.linalg.eigh(curvature)
    return (vectors * values.abs().clamp_min(LEAST_EIGENVALUE)) @ vectors.T


@dataclass(frozen=True)
class _Top:
    """Where a climb ended."""

    q: Trial
    n_iter: int
    gain: float  # nats that the next step would bring
    bend: float  # the curvature along the last step


def _climb(bound: GaussianBound, q: Trial, max_iter: int) -> _Top:
    """Ascend where q's metric is the identity."""
    slope = _uphill(bound, q)
    memory = Memory(slope[None])
    memory_is_empty = True
    bend = 1.0
    n_iter = 0
    while True:
        step = memory.direction(slope[None])[0]
        gain = 0.5 * float(step @ slope)
        if gain < _SETTLED or n_iter == max_iter:
            break
        moved = _backtrack(bound, q, step, gain)
        if moved is None:
            if memory_is_empty:
                break
            # Earlier steps mislead: once more without them.
            memory = Memory(slope[None])
            memory_is_empty = True
            continue
        q = moved.q
        n_iter += 1
        last_slope = slope
        slope = _uphill(bound, q)
        taken = moved.fraction * step
        fallen = last_slope - slope
        bend = float(taken @ fallen / (taken @ taken))
        if bend > _LEAST_BEND:
            memory.add(taken[None], fallen[None])
            memory_is_empty = False
    return _Top(q=q, n_iter=n_iter, gain=gain, bend=bend)


def _uphill(bound: GaussianBound, q: Trial) -> Tensor:
    """The gradient of L by a and B, of shape (D + D^2,): see :func:`_backtrack`.

    The KL divergence from q to the q of a and B is |a|^2 / 2 + |B|^2 / 2 to second order: with
    sqrt(2) B in S^-1, the plain norm of both is q's metric.
    """
    gradient, hessian = bound.derivatives(q)
    unit = torch.eye(len(q.m)).to(q.m)
    B = (q.root.T @ hessian @ q.root - unit) / math.sqrt(2)
    return torch.cat([q.root.T @ gradient, B.flatten()])


@dataclass(frozen=True)
class _Moved:
    """The q that a step led to, and the part of the step that was taken."""

    q: Trial
    fraction: float


def _backtrack(bound: GaussianBound, q: Trial, step: Tensor, gain: float) -> _Moved | None:
    """Halve the step until the bound rises by a fair part of what it promises.

    With a and B, m becomes m + R a, and S^-1 becomes R^-T (1 + C + C^2 / 2) R^-1, C = sqrt(2) B,
    which is positive definite (Lin, Schmidt and Khan 2020).
    """
    size = len(q.m)
    unit = torch.eye(size).to(q.m)
    factor = torch.linalg.cholesky(q.precision)  # R^-T, in units of the prior, as the precision
    rounding = ROUNDING * abs(float(q.value))
    fraction = 1.0
    while fraction > _LEAST_STEP:
        a, B = (fraction * step).split([size, size**2])
        C = math.sqrt(2) * B.view(size, size)
        precision = factor @ (unit + C + 0.5 * C @ C) @ factor.T
        precision = 0.5 * (precision + precision.T)
        _, not_positive = torch.linalg.cholesky_ex(precision)
        if not int(not_positive):
            moved = bound(q.m + q.root @ a, precision)
            promised = 2 * fraction * gain  # by the slope alone
            if moved.value >= q.value + FAIR * promised - rounding:
                return _Moved(q=moved, fraction=fraction)
        fraction /= 2
    return None
