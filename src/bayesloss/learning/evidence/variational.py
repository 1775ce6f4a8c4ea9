"""Variational inference for sources: the Gaussian nearest to the posterior (beyond W&N 4.1).

Among Gaussians q = N(m, S) find the one with the highest lower bound on the evidence,

    L(q) = E_q[log p(D | nu)] - KL(q || prior)  <=  log p(D).

The first term depends on each nu's mean and variance (``LogJoint.moments``), with derivatives s_n
by the mean and -w_n / 2 by the variance, and with labels on the rest of its law, too
(``source_law``). With V, P, A and K as in ``priors``, slopes the derivative of nu at m and
G = features P, by Bonnet's and Price's theorems

    dL/dm = E_q[grad log p(D, Gamma)],
    E_q[grad] = slopes^T s - 2 V^T diag(G^T w slopes S V^T) - precision (m - location),
    dL/dS = (S^-1 - E_q[H]) / 2,
    E_q[H] = precision + slopes^T w slopes - curvature(features^T s) + 4 V^T ((G^T w G) o K) V,

the Hessian (11) and a last, new term, to which labels add what the shape of their laws does. In q's
metric the gradient (S E_q[grad], S^-1 -> E_q[H]) is a Newton step, corrected as in L-BFGS for how
E_q[H] changes; backtracking makes every step an ascent.

If the ISGP's posterior has a twin at -w, q is half N(m, S), half its mirror image. Its entropy
grows by at least what a draw's w tells of its half: with delta = w^T S_ww^-1 w, the information of
a binary signal in Gaussian noise, between 0 and log 2,

    T(delta) = log 2 - E_z log(1 + exp(-2 (delta + sqrt(delta) z))),   z ~ N(0, 1).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.interpolate import make_interp_spline
from torch import Tensor

from bayesloss.lbfgs import Memory
from bayesloss.learning.evidence.source_law import SourceLaw, functionals
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Bernoulli, Likelihood
from bayesloss.learning.inference.log_joint import LogJoint, Matrix, Rows, Scalar, Vector
from bayesloss.learning.inference.newton import (
    FAIR,
    LEAST_EIGENVALUE,
    ROUNDING,
    Mode,
    find_mode,
)
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.proper_losses import LogLoss
from bayesloss.quadrature import gauss_hermite
from bayesloss.warnings import warn_unconverged

_SETTLED = 1e-6  # nats that the next step would gain,
_RESOLVED = 1e-12  # or part of the bound: no search sees less than rounding errors
_LEAST_BEND = 1e-3  # the curvature along a step that corrects the next ones
_LEAST_STEP = 1e-6  # shorter ones are lost to rounding
_ROWS = 64  # that stand for many labels,
_FINEST = 1000  # which part of their range the closest are apart
_LEAST_VARIANCE = 1e-12  # of a nu, in its squared units, whose root has a derivative
_NODES = 20  # of Gauss and Hermite's rule for the twin: a thousandth of a nat at most


@dataclass(frozen=True)
class Trial:
    """A Gaussian q = N(m, S), its bound, and what the bound's derivatives are made of."""

    m: Vector
    precision: Matrix  # S^-1 in units of the prior's precision
    root: Matrix  # R with R R^T = S
    slopes: Float[Tensor, "n D"]  # the derivative of nu at m
    s: Rows  # the expected log likelihood's derivatives by the means,
    w: Rows  # and -2 times those by the variances
    pull: Vector  # what the laws' shape adds to the gradient by m,
    bend: Matrix  # and to -2 times that by S
    apart: Vector  # S_ww^-1 w, and 0 for nu_0; zero where the prior has no twins
    twin_slope: Scalar  # the derivative of T(delta)
    value: Scalar  # L in nats


def representatives(joint: LogJoint) -> tuple[Int[Tensor, " k"], Float[Tensor, " k"]]:
    """A few rows, and what a sum over all data of a smooth function of x weighs each with.

    The function is a cubic spline through these rows, and the prior mean of nu stands for x.
    """
    prior, data = joint.prior, joint.data
    spread = prior.precision.rsqrt().diag()
    x = (data.features @ prior.mean_coefficients(prior.location, spread)).cpu().numpy()
    weights = data.weights.cpu().numpy()
    knots, rows = np.unique(x, return_index=True)
    if len(knots) <= _ROWS:
        totals = np.bincount(np.searchsorted(knots, x), weights)
        return torch.from_numpy(rows), torch.from_numpy(totals)
    # Half of the knots by quantiles, half by the range, and none too close.
    position = (knots - knots[0]) / (knots[-1] - knots[0])
    share = position + np.linspace(0, 1, len(knots))
    kept = np.unique(np.searchsorted(share, np.linspace(0, 2, _ROWS)))
    _, apart = np.unique((_FINEST * position[kept]).round(), return_index=True)
    kept = kept[apart]
    spline = make_interp_spline(knots[kept], np.eye(len(kept)), k=min(3, len(kept) - 1))
    return torch.from_numpy(rows[kept]), torch.from_numpy(weights @ spline(x))


class Fit(NamedTuple):
    """The expected log likelihood in nats, and its derivatives: see :class:`Trial`."""

    value: Scalar
    s: Rows
    w: Rows
    pull: Vector
    bend: Matrix


class Twin(NamedTuple):
    """What the mirror image adds to the bound."""

    share: Scalar  # T(delta)
    slope: Scalar  # its derivative by delta
    apart: Vector  # S_ww^-1 w, and 0 for nu_0


class GaussianBound:
    """The lower bound L as a function of m and S, with its derivatives."""

    @torch.no_grad()
    def __init__(self, joint: LogJoint, *, with_laws: bool = True) -> None:
        """With labels L is a bound, unless laws count as normal, which takes half the time."""
        self.joint = joint
        nodes, node_weights = gauss_hermite(_NODES)
        self.nodes = nodes.to(joint.data.features.device)
        self.node_weights = node_weights.to(joint.data.features.device)
        likelihood = joint.likelihood
        labels = isinstance(likelihood, Bernoulli) and isinstance(likelihood.loss, LogLoss)
        self.certain = labels and with_laws
        if self.certain:
            V, _, _ = joint.prior.quadratic_form()
            self.functionals = functionals(V, joint.squares, joint.prior.precision)
            self.rows, self.row_weights = representatives(joint)

    def __call__(self, m: Vector, precision: Matrix) -> Trial:
        """L at q = N(m, S), with S^-1 in units of the prior's precision."""
        root = self.joint.root(precision)
        slopes = self.joint.slopes(m)
        mean, variance = self.joint.moments(m, root, slopes)
        variance = variance.clamp_min(_LEAST_VARIANCE)
        if self.certain:
            fit = self.by_laws(mean, variance, root, slopes)
        else:
            fit = self.by_moments(mean, variance)
        twin = self.twin(m, precision)
        return Trial(
            m=m,
            precision=precision,
            root=root,
            slopes=slopes,
            s=fit.s,
            w=fit.w,
            pull=fit.pull,
            bend=fit.bend,
            apart=twin.apart,
            twin_slope=twin.slope,
            value=fit.value - self.joint.divergence(m, root) + twin.share,
        )

    def by_moments(self, mean: Rows, variance: Rows) -> Fit:
        """The expected log likelihood by each nu's mean and variance alone."""
        with torch.enable_grad():
            mean = mean.detach().requires_grad_()
            variance = variance.detach().requires_grad_()
            value = self.fit(mean, variance)
            s, by_variance = torch.autograd.grad(value, (mean, variance))
        return Fit(
            value=value.detach(),
            s=s,
            w=-2 * by_variance,
            pull=torch.zeros_like(self.joint.prior.location),
            bend=torch.zeros_like(self.joint.prior.location.diag()),
        )

    def by_laws(
        self, mean: Rows, variance: Rows, root: Matrix, slopes: Float[Tensor, "n D"]
    ) -> Fit:
        """The same for labels, with pull and bend: as if nu were normal, and what is beyond."""
        data = self.joint.data
        normal = SourceLaw.normal(mean, variance).expected_log_sigmoid()
        share_of_zeros = 1 - data.targets  # log sigma(-nu) = log sigma(nu) - nu
        value = data.weights @ (normal.value - share_of_zeros * mean)
        s = data.weights * (normal.by_mean - share_of_zeros)
        w = -2 * data.weights * normal.by_variance
        # At a few rows the exact law, less the normal one.
        rows = self.rows
        weight = self.row_weights
        V, _, _ = self.joint.prior.quadratic_form()
        G = self.joint.squares[rows]
        J = slopes[rows]
        moments = (mean[rows], variance[rows])
        law = SourceLaw.of(moments, J @ root, G, V @ root, root.T @ self.functionals)
        exact = law.expected_log_sigmoid()
        value = value + weight @ (exact.value - normal.value[rows])
        s = s.index_add(0, rows, weight * (exact.by_mean - normal.by_mean[rows]))
        w = w.index_add(0, rows, -2 * weight * (exact.by_variance - normal.by_variance[rows]))
        by_g = weight[:, None] * exact.by_g
        by_M = weight[:, None, None] * exact.by_M
        # In q's metric m moves by R a and R to R (1 + E): g moves by 2 M a + E g, M by E M + M E.
        directions = law.directions
        within = V @ root @ directions
        pull = 2 * V.T @ (G * (by_g @ within.T)).sum(dim=0)
        inner = (G.T @ by_M.flatten(1)).view(len(G.T), *by_M.shape[1:])
        inner = (within[:, None] @ inner)[:, 0]  # sum_n diag(G_n) V R B by_M_n
        back = torch.linalg.solve_triangular(root.T, directions, upper=False)
        # Beyond the directions M is nothing, but it turns towards what g is there.
        turned = 2 * J.T @ by_g - back @ ((J @ root @ directions).T @ by_g)
        bend = -(turned + 2 * V.T @ inner) @ back.T
        return Fit(value=value, s=s, w=w, pull=pull, bend=0.5 * (bend + bend.T))

    def twin(self, m: Vector, precision: Matrix) -> Twin:
        """What the mode at -w adds, if there is one."""
        prior = self.joint.prior
        if prior.n_twins == 1:
            zero = m.new_zeros(())
            return Twin(share=zero, slope=zero, apart=torch.zeros_like(m))
        scale = prior.precision[:-1].sqrt()
        w = scale * m[:-1]
        cross = precision[:-1, -1]
        apart = precision[:-1, :-1] @ w - cross * (cross @ w) / precision[-1, -1]
        delta = (w @ apart).clamp_min(_LEAST_VARIANCE)
        evidence = 2 * (delta + delta.sqrt() * self.nodes)
        share = math.log(2) - self.node_weights @ torch.nn.functional.softplus(-evidence)
        slope = self.node_weights @ (torch.sigmoid(-evidence) * (2 + self.nodes / delta.sqrt()))
        padded = torch.nn.functional.pad(scale * apart, (0, 1))
        return Twin(share=share, slope=slope, apart=padded)

    def fit(self, mean: Rows, variance: Rows) -> Scalar:
        """The expected log likelihood in nats: exact, or else as if nu were normal."""
        return self.joint.expected_log_likelihood(mean, variance)

    def derivatives(self, q: Trial) -> tuple[Vector, Matrix]:
        """dL/dm and S^-1 - 2 dL/dS: E_q of gradient and Hessian (11), and the twin's part."""
        prior = self.joint.prior
        G = self.joint.squares
        V, _, _ = prior.quadratic_form()
        weighted = q.w[:, None] * q.slopes
        spread = V @ q.root
        turn = 2 * (((G.T @ weighted) @ q.root) * spread).sum(dim=1)
        gradient = q.slopes.T @ q.s - V.T @ turn - prior.precision * (q.m - prior.location)
        # The curvature and the quartic term are both sandwiches of V.
        inner = 4 * (G.T @ (q.w[:, None] * G)) * (spread @ spread.T)
        inner.diagonal().sub_(2 * (G.T @ q.s))
        hessian = torch.diag(prior.precision) + q.slopes.T @ weighted + V.T @ inner @ V
        # The twin's share: d delta / dm = 2 S_ww^-1 w, d delta / dS_ww = -(S_ww^-1 w)(...)^T.
        pull = 2 * q.twin_slope * q.apart
        gradient = gradient + q.pull + pull
        hessian = hessian + q.bend + torch.outer(pull, q.apart)
        return gradient, hessian


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
    """The gradient of L by a and B in q's metric, of shape (D + D^2,): see :func:`_backtrack`."""
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

    With a and B, m becomes m + R a, and S^-1 becomes R^-T (1 + B + B^2 / 2) R^-1, positive definite
    (Lin, Schmidt and Khan 2020).
    """
    size = len(q.m)
    unit = torch.eye(size).to(q.m)
    factor = torch.linalg.cholesky(q.precision)
    rounding = ROUNDING * abs(float(q.value))
    fraction = 1.0
    while fraction > _LEAST_STEP:
        a, B = (fraction * step).split([size, size**2])
        B = math.sqrt(2) * B.view(size, size)
        precision = factor @ (unit + B + 0.5 * B @ B) @ factor.T
        precision = 0.5 * (precision + precision.T)
        _, not_positive = torch.linalg.cholesky_ex(precision)
        if not int(not_positive):
            moved = bound(q.m + q.root @ a, precision)
            promised = 2 * fraction * gain  # by the slope alone
            if moved.value >= q.value + FAIR * promised - rounding:
                return _Moved(q=moved, fraction=fraction)
        fraction /= 2
    return None
