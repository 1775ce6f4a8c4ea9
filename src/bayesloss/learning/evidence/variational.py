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

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.interpolate import make_interp_spline
from torch import Tensor

from bayesloss.lbfgs import Memory
from bayesloss.learning.evidence.source_law import SourceLaw, functionals
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Bernoulli, Likelihood, normal_average
from bayesloss.learning.inference.log_joint import LogJoint, Matrix, Rows, Scalar, Vector
from bayesloss.learning.inference.newton import Mode, find_mode
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.proper_losses import LogLoss
from bayesloss.quadrature import gauss_hermite
from bayesloss.threads import one_thread
from bayesloss.warnings import warn_unconverged

_SETTLED = 1e-6  # nats that the next step would gain
_LEAST_BEND = 1e-3  # the curvature along a step that corrects the next ones
_LEAST_STEP = 1e-6  # shorter ones are lost to rounding
_ROWS = 64  # that stand for many labels,
_FINEST = 1000  # which part of their range the closest are apart
_LEAST_VARIANCE = 1e-12  # of a nu, in its squared units


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
    places, index = np.unique(x, return_index=True)
    if len(places) > _ROWS:  # half of them by quantiles, half by the range, and none too close
        at = (places - places[0]) / (places[-1] - places[0])
        share = at + np.linspace(0, 1, len(at))
        kept = np.unique(np.searchsorted(share, np.linspace(0, 2, _ROWS)))
        kept = kept[np.unique((_FINEST * at[kept]).round(), return_index=True)[1]]
        spline = make_interp_spline(places[kept], np.eye(len(kept)), k=min(3, len(kept) - 1))
        index, weight = index[kept], data.weights.cpu().numpy() @ spline(x)
    else:
        weight = np.bincount(np.searchsorted(places, x), data.weights.cpu().numpy())
    return torch.from_numpy(index), torch.from_numpy(weight)


class GaussianBound:
    """The lower bound L as a function of m and S, with its derivatives."""

    @torch.no_grad()
    def __init__(self, joint: LogJoint, *, with_laws: bool = True) -> None:
        """With labels L is a bound, unless laws count as normal, which takes half the time."""
        self.joint = joint
        device = joint.data.features.device
        self.nodes, self.node_weights = (each.to(device) for each in gauss_hermite(20))
        likelihood, prior = joint.likelihood, joint.prior
        labels = isinstance(likelihood, Bernoulli) and isinstance(likelihood.loss, LogLoss)
        self.certain = labels and with_laws
        if self.certain:
            V = prior.quadratic_form()[0]
            self.functionals = functionals(V, joint.squares, prior.precision)
            self.rows, self.row_weights = representatives(joint)

    def __call__(self, m: Vector, precision: Matrix) -> Trial:
        """L at q = N(m, S), with S^-1 in units of the prior's precision."""
        root, slopes = self.joint.root(precision), self.joint.slopes(m)
        mean, variance = self.joint.moments(m, root, slopes)
        variance = variance.clamp_min(_LEAST_VARIANCE)
        if self.certain:
            fit, s, w, pull, bend = self.by_laws(mean, variance, root, slopes)
        else:
            fit, s, w = self.by_moments(mean, variance)
            pull, bend = torch.zeros_like(m), torch.zeros_like(root)
        twin, twin_slope, apart = self.twin(m, precision)
        value = fit - self.joint.divergence(m, root) + twin
        return Trial(m, precision, root, slopes, s, w, pull, bend, apart, twin_slope, value)

    def by_moments(self, mean: Rows, variance: Rows) -> tuple[Scalar, Rows, Rows]:
        """The expected log likelihood by each nu's mean and variance alone, with s and w."""
        with torch.enable_grad():
            mean, variance = (each.detach().requires_grad_() for each in (mean, variance))
            fit = self.fit(mean, variance)
            s, by_variance = torch.autograd.grad(fit, (mean, variance))
        return fit.detach(), s, -2 * by_variance

    def by_laws(
        self, mean: Rows, variance: Rows, root: Matrix, slopes: Float[Tensor, "n D"]
    ) -> tuple[Scalar, Rows, Rows, Vector, Matrix]:
        """The same for labels, with pull and bend: as if nu were normal, and what is beyond."""
        data, V = self.joint.data, self.joint.prior.quadratic_form()[0]
        normal, zeros = SourceLaw.normal(mean, variance).expected_log_sigmoid(), 1 - data.targets
        fit = data.weights @ (normal.value - zeros * mean)  # log sigma(-nu) = log sigma(nu) - nu
        s, w = data.weights * (normal.by_mean - zeros), -2 * data.weights * normal.by_variance
        rows, weight = self.rows, self.row_weights
        G, J, moments = self.joint.squares[rows], slopes[rows], (mean[rows], variance[rows])
        law = SourceLaw.of(moments, J @ root, G, V @ root, root.T @ self.functionals)
        found, directions = law.expected_log_sigmoid(), law.directions
        fit = fit + weight @ (found.value - normal.value[rows])
        s = s.index_add(0, rows, weight * (found.by_mean - normal.by_mean[rows]))
        w = w.index_add(0, rows, -2 * weight * (found.by_variance - normal.by_variance[rows]))
        by_g, by_M = weight[:, None] * found.by_g, weight[:, None, None] * found.by_M
        # In q's metric m moves by R a and R to R (1 + E): g moves by 2 M a + E g, M by E M + M E.
        within = V @ root @ directions
        pull = 2 * V.T @ (G * (by_g @ within.T)).sum(dim=0)
        inner = (G.T @ by_M.flatten(1)).view(len(G.T), *by_M.shape[1:])
        inner = (within[:, None] @ inner)[:, 0]  # sum_n diag(G_n) V R B by_M_n
        back = torch.linalg.solve_triangular(root.T, directions, upper=False)
        # Beyond the directions M is nothing, but it turns towards what g is there.
        turned = 2 * J.T @ by_g - back @ ((J @ root @ directions).T @ by_g)
        bend = -(turned + 2 * V.T @ inner) @ back.T
        return fit, s, w, pull, 0.5 * (bend + bend.T)

    def twin(self, m: Vector, precision: Matrix) -> tuple[Scalar, Scalar, Vector]:
        """The bound T, its derivative by delta, and the vector S_ww^-1 w."""
        prior, zero = self.joint.prior, m.new_zeros(())
        if prior.n_twins == 1:
            return zero, zero, torch.zeros_like(m)
        scale = prior.precision[:-1].sqrt()
        w, cross = scale * m[:-1], precision[:-1, -1]
        apart = precision[:-1, :-1] @ w - cross * (cross @ w) / precision[-1, -1]
        delta = (w @ apart).clamp_min(_LEAST_VARIANCE)
        evidence = 2 * (delta + delta.sqrt() * self.nodes)
        share = math.log(2) - self.node_weights @ torch.nn.functional.softplus(-evidence)
        slope = self.node_weights @ (torch.sigmoid(-evidence) * (2 + self.nodes / delta.sqrt()))
        return share, slope, torch.nn.functional.pad(scale * apart, (0, 1))

    def fit(self, mean: Rows, variance: Rows) -> Scalar:
        """The expected log likelihood in nats: exact, or else as if nu were normal."""
        likelihood, data = self.joint.likelihood, self.joint.data
        if likelihood.exact_expectation:
            return likelihood.expected_log_density(mean, variance, data)
        return normal_average(likelihood, mean, variance, data, 20)

    def derivatives(self, q: Trial) -> tuple[Vector, Matrix]:
        """dL/dm and S^-1 - 2 dL/dS: E_q of gradient and Hessian (11), and the twin's part."""
        prior, G = self.joint.prior, self.joint.squares
        V, _, _ = prior.quadratic_form()
        weighted, spread = q.w[:, None] * q.slopes, V @ q.root
        turn = 2 * (((G.T @ weighted) @ q.root) * spread).sum(dim=1)
        gradient = q.slopes.T @ q.s - V.T @ turn - prior.precision * (q.m - prior.location)
        # The curvature and the quartic term are both sandwiches of V.
        inner = 4 * (G.T @ (q.w[:, None] * G)) * (spread @ spread.T)
        inner.diagonal().sub_(2 * (G.T @ q.s))
        hessian = torch.diag(prior.precision) + q.slopes.T @ weighted + V.T @ inner @ V
        # The twin's share: d delta / dm = 2 S_ww^-1 w, d delta / dS_ww = -(S_ww^-1 w)(...)^T.
        pull = 2 * q.twin_slope * q.apart
        return gradient + q.pull + pull, hessian + q.bend + torch.outer(pull, q.apart)


@one_thread()
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
    mode = find_mode(joint, prior.start(x) if start is None else start, max_iter=max_iter)
    posterior, trouble = maximise_bound(GaussianBound(joint), mode, max_iter)
    if trouble:
        warn_unconverged(f"{trouble}; raise max_iter={max_iter} or begin elsewhere")
    return posterior


def nearest(joint: LogJoint, mode: Mode, *, with_laws: bool = True) -> tuple[Posterior, str]:
    """The Gaussian nearest to the posterior, and any failure."""
    return maximise_bound(GaussianBound(joint, with_laws=with_laws), mode)


@torch.no_grad()
def maximise_bound(bound: GaussianBound, mode: Mode, max_iter: int = 200) -> tuple[Posterior, str]:
    """The best Gaussian that the search finds from a mode, and what went wrong, or ""."""
    joint = bound.joint
    begin = bound(mode.Gamma, _positive(joint.curvature(mode.Gamma)))
    q, n_iter, gain, bend = _climb(bound, begin, max_iter)
    trouble = ""
    if gain > max(_SETTLED, 1e-12 * abs(float(q.value))):
        trouble = f"the bound did not settle in {n_iter} steps: the next would gain {gain:.2g} nats"
    elif bend <= 0:
        trouble = f"the bound settled on a saddle: its last step found a curvature of {bend:.2g}"
    share = 0.0
    if not bound.certain:
        moments = joint.moments(q.m, q.root, q.slopes)
        certain = joint.likelihood.expected_log_density(*moments, joint.data)
        share = math.nan if certain is None else float(certain - bound.fit(*moments))
    least = float(torch.linalg.eigvalsh(q.precision)[0])
    facts = float(q.value), float(q.value) + share, least, not trouble, n_iter
    return Posterior(joint.prior, joint.likelihood, q.m, q.root, *facts), trouble


def _positive(curvature: Tensor) -> Tensor:
    """The curvature as the first S^-1; on a saddle, with its eigenvalues' absolute values."""
    if int(torch.linalg.cholesky_ex(curvature)[1]) == 0:
        return curvature
    values, vectors = torch.linalg.eigh(curvature)
    return (vectors * values.abs().clamp_min(1e-3)) @ vectors.T


def _climb(bound: GaussianBound, q: Trial, max_iter: int) -> tuple[Trial, int, float, float]:
    """Ascend where q's metric is the identity: the best q, steps, gain left, last curvature."""
    unit = torch.eye(len(q.m)).to(q.m)

    def uphill(q: Trial) -> Tensor:
        gradient, hessian = bound.derivatives(q)
        B = (q.root.T @ hessian @ q.root - unit) / math.sqrt(2)
        return torch.cat([q.root.T @ gradient, B.flatten()])

    slope, n_iter, bend = uphill(q), 0, 1.0
    memory, fresh = Memory(slope[None]), True
    while True:
        step = memory.direction(slope[None])[0]
        gain = 0.5 * float(step @ slope)
        if gain < _SETTLED or n_iter == max_iter:
            break
        moved, fraction = _backtrack(bound, q, step, gain)
        if moved is not None:
            q, before, n_iter = moved, slope, n_iter + 1
            slope = uphill(q)
            taken, fallen = fraction * step, before - slope
            bend = float(taken @ fallen / (taken @ taken))
            if bend > _LEAST_BEND:
                memory.add(taken[None], fallen[None])
                fresh = False
        elif not fresh:  # earlier steps mislead: once more without them
            memory, fresh = Memory(slope[None]), True
        else:
            break
    return q, n_iter, gain, bend


def _backtrack(
    bound: GaussianBound, q: Trial, step: Tensor, gain: float
) -> tuple[Trial | None, float]:
    """Halve the step until the bound rises by a fair part of what it promises.

    S^-1 becomes R^-T (1 + B + B^2 / 2) R^-1, positive definite (Lin, Schmidt and Khan 2020).
    """
    size, unit, factor = len(q.m), torch.eye(len(q.m)).to(q.m), torch.linalg.cholesky(q.precision)
    fraction, rounding = 1.0, 1e-14 * abs(float(q.value))
    while fraction > _LEAST_STEP:
        a, B = (fraction * step).split([size, size**2])
        B = math.sqrt(2) * B.view(size, size)
        new = factor @ (unit + B + 0.5 * B @ B) @ factor.T
        new = 0.5 * (new + new.T)
        if int(torch.linalg.cholesky_ex(new)[1]) == 0:
            moved = bound(q.m + q.root @ a, new)
            if moved.value >= q.value + 2e-4 * fraction * gain - rounding:
                return moved, fraction
        fraction /= 2
    return None, 0.0
