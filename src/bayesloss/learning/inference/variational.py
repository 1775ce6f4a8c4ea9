r"""Variational inference for sources: the Gaussian nearest to the posterior (beyond W&N 4.1).

Among Gaussians q = N(m, S) look for the one with the highest lower bound on the evidence,

    L(q) = E_q[log p(D | nu)] - KL(q || prior)  <=  log p(D).

What is random in nu(x) is a square: with V, P and A from ``SourcePrior.quadratic_form``,
nu = features (P (V Gamma)^2 + A Gamma). Under q the vector f = V Gamma is normal with mean V m and
covariance K = V S V^T, so that, with J the derivative of the coefficients at m and with slopes =
features J and G = features P,

    E_q nu   = features (P (diag K + (V m)^2) + A m),
    Var_q nu = diag(slopes S slopes^T) + 2 diag(G (K o K) G^T),        o: entry by entry,

in O(M^2) numbers a datum and without integrals. If the likelihood's part is a function of the two,
with derivatives s_n by the mean and -w_n / 2 by the variance, then by Bonnet's and Price's theorems

    dL/dm = E_q[grad log p(D, Gamma)],
    E_q[grad] = slopes^T s - 2 V^T diag(G^T w slopes S V^T) - precision (m - location),
    dL/dS = (S^-1 - E_q[H]) / 2,
    E_q[H] = precision + slopes^T w slopes - curvature(features^T s) + 4 V^T ((G^T w G) o K) V,

the Hessian (11) with one new term, the last. Where L is highest, S^-1 = E_q[H]: the posterior's
precision is the average curvature, not that at one point. In the metric of q the gradient is
(S E_q[grad], S^-1 -> E_q[H]), a Newton step; pairs of earlier steps correct it for how E_q[H]
changes, as in L-BFGS, and backtracking makes every step an ascent.

The ISGP's posterior has a twin at -w, and so has q: half N(m, S), half its mirror image. Nothing
changes but the entropy. It grows by what a draw tells of which half it is from, which is at least
what its w tells: with delta = w^T S_ww^-1 w, the information of a binary signal in Gaussian noise,

    T(delta) = log 2 - E_z log(1 + exp(-2 (delta + sqrt(delta) z))),   z ~ N(0, 1),

from 0 where the halves are one to log 2 where they are apart.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from numpy.polynomial.hermite_e import hermegauss
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.learning.inference.laplace import Posterior, check_data
from bayesloss.learning.inference.likelihoods import Likelihood, Observations
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import Mode, find_mode
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.warnings import warn_caller

__all__ = ["Expectation", "GaussianBound", "Trial", "nearest", "variational"]

Expectation = Literal["bound", "normal"]

_SETTLED = 1e-6  # nats that the next step would gain
_MEMORY = 10  # pairs of steps that correct the next
_LEAST_STEP = 1e-6  # shorter ones are lost to rounding
_LEAST_VARIANCE = 1e-12  # of a nu, in its squared units


@dataclass(frozen=True)
class Trial:
    """A Gaussian q and the bound that it gives.

    Attributes
    ----------
    m : Tensor of shape (M + 1,)
        The mean.
    precision, factor : Tensor of shape (M + 1, M + 1)
        S^-1 in units of the prior's precision, and its Cholesky factor.
    root : Tensor of shape (M + 1, M + 1)
        R with R R^T = S.
    slopes : Tensor of shape (rows, M + 1)
        The derivative of nu at m.
    s, w : Tensor of shape (rows,)
        The derivatives of the expected log likelihood by the means, and -2 times by the variances.
    apart : Tensor of shape (M + 1,)
        The vector S_ww^-1 w, and 0 for nu_0; zero where the prior has no twins.
    twin_slope : Tensor of shape ()
        The derivative of T(delta).
    value : Tensor of shape ()
        L in nats.
    """

    m: Tensor
    precision: Tensor
    factor: Tensor
    root: Tensor
    slopes: Tensor
    s: Tensor
    w: Tensor
    apart: Tensor
    twin_slope: Tensor
    value: Tensor


class GaussianBound:
    """The lower bound L as a function of m and S, with its derivatives.

    Parameters
    ----------
    joint : LogJoint
    expectation : {"bound", "normal"}, default="normal"
        Of the log likelihood, as in :func:`variational`.
    """

    def __init__(self, joint: LogJoint, expectation: Expectation = "normal") -> None:
        self.joint, self.expectation = joint, expectation
        self.V, P, A = joint.prior.quadratic_form()
        self.G, self.linear = joint.data.features @ P, joint.data.features @ A
        nodes, weights = hermegauss(20)
        self.nodes = torch.as_tensor(nodes, device=P.device)[:, None]
        self.node_weights = torch.as_tensor(weights / weights.sum(), device=P.device)[:, None]

    def __call__(self, m: Tensor, precision: Tensor) -> Trial:
        """L at q = N(m, S), with S^-1 in units of the prior's precision."""
        prior = self.joint.prior
        factor = torch.linalg.cholesky(precision)
        unit = torch.eye(len(m), dtype=m.dtype, device=m.device)
        inverse = torch.linalg.solve_triangular(factor, unit, upper=False)
        root = prior.precision.rsqrt()[:, None] * inverse.T
        slopes = 2 * (self.G * (self.V @ m)) @ self.V + self.linear
        mean, variance = self.moments(m, root, slopes)
        with torch.enable_grad():
            mean, variance = mean.detach().requires_grad_(), variance.detach().requires_grad_()
            fit = self.fit(mean, variance)
            s, by_variance = torch.autograd.grad(fit, (mean, variance))
        fit, w = fit.detach(), -2 * by_variance
        distance = prior.precision * ((m - prior.location) ** 2 + (root**2).sum(dim=1))
        divergence = 0.5 * (distance - 1).sum() + factor.diagonal().log().sum()
        twin, twin_slope, apart = self.twin(m, precision)
        value = fit - divergence + twin
        return Trial(m, precision, factor, root, slopes, s, w, apart, twin_slope, value)

    def moments(self, m: Tensor, root: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of nu at each row of the data."""
        spread = self.V @ root
        K = spread @ spread.T
        mean = self.G @ (K.diagonal() + (self.V @ m) ** 2) + self.linear @ m
        variance = ((slopes @ root) ** 2).sum(dim=1) + 2 * ((self.G @ K**2) * self.G).sum(dim=1)
        return mean, variance.clamp_min(_LEAST_VARIANCE)  # rounding may fall below zero

    def twin(self, m: Tensor, precision: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """T, its derivative by delta, and the vector S_ww^-1 w."""
        prior, zero = self.joint.prior, m.new_zeros(())
        if prior.n_twins == 1:
            return zero, zero, torch.zeros_like(m)
        scale = prior.precision[:-1].sqrt()
        w, cross = scale * m[:-1], precision[:-1, -1]
        apart = precision[:-1, :-1] @ w - cross * (cross @ w) / precision[-1, -1]
        delta = (w @ apart).clamp_min(_LEAST_VARIANCE)
        z, weights = self.nodes[:, 0], self.node_weights[:, 0]
        evidence = 2 * (delta + delta.sqrt() * z)
        share = math.log(2) - weights @ torch.nn.functional.softplus(-evidence)
        slope = weights @ (torch.sigmoid(-evidence) * (2 + z / delta.sqrt()))
        return share, slope, torch.nn.functional.pad(scale * apart, (0, 1))

    def fit(self, mean: Tensor, variance: Tensor) -> Tensor:
        """The expected log likelihood given mean and variance of each nu, as a scalar in nats.

        Raises
        ------
        ValueError
            If a bound is asked for and the likelihood knows none.
        """
        likelihood, data = self.joint.likelihood, self.joint.data
        if self.expectation == "bound" or likelihood.exact_expectation:
            fit = likelihood.expected_log_density(mean, variance, data)
            if fit is None:
                raise ValueError(
                    f'no bound is known for {likelihood!r}: expected expectation="normal", got '
                    '"bound"'
                )
            return fit
        # Gauss and Hermite's rule: each datum once at each node, with the node's weight.
        nu = (mean + self.nodes * variance.sqrt()).flatten()
        targets = data.targets.repeat(len(self.nodes))
        weights = (self.node_weights * data.weights).flatten()
        return likelihood.log_density(nu, Observations(data.features, targets, weights))

    def derivatives(self, q: Trial) -> tuple[Tensor, Tensor]:
        """dL/dm and S^-1 - 2 dL/dS: E_q of gradient and Hessian (11), and the twin's part."""
        prior, V, G = self.joint.prior, self.V, self.G
        weighted, spread = q.w[:, None] * q.slopes, V @ q.root
        turn = 2 * (((G.T @ weighted) @ q.root) * spread).sum(dim=1)
        gradient = q.slopes.T @ q.s - V.T @ turn - prior.precision * (q.m - prior.location)
        # The curvature and the quartic term are both sandwiches of V.
        inner = 4 * (G.T @ (q.w[:, None] * G)) * (spread @ spread.T)
        inner.diagonal().sub_(2 * (G.T @ q.s))
        hessian = torch.diag(prior.precision) + q.slopes.T @ weighted + V.T @ inner @ V
        # The twin's share: d delta / dm = 2 S_ww^-1 w, d delta / dS_ww = -(S_ww^-1 w)(...)^T.
        pull = 2 * q.twin_slope * q.apart
        return gradient + pull, hessian + torch.outer(pull, q.apart)


def variational(
    prior: SourcePrior,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    *,
    sample_weight: Tensor | None = None,
    start: Tensor | None = None,
    expectation: Expectation = "normal",
    max_iter: int = 200,
) -> Posterior:
    """Approximate the posterior of Gamma by the Gaussian with the highest bound on the evidence.

    Parameters
    ----------
    prior, likelihood, x, y, sample_weight, start
        As for :func:`~bayesloss.learning.inference.laplace.laplace`, at whose mode the search
        begins.
    expectation : {"normal", "bound"}, default="normal"
        How the log likelihood is averaged over nu(x_n). With Gaussian noise it is exact. Otherwise
        "normal" takes each nu(x_n) for normal, with its exact mean and variance, and integrates by
        20 Gauss-Hermite nodes: for any likelihood, near the truth, and no bound. "bound" takes the
        likelihood's own ``expected_log_density``, with labels and the log loss Jaakkola and
        Jordan's: a bound from below, whose Gaussian is too narrow.
    max_iter : int, default=200
        The largest number of steps, of Newton's method and then of this one.

    Returns
    -------
    Posterior
        Its ``mode`` is the mean m of the Gaussian, its ``covariance`` S. ``log_evidence`` is the
        highest L, and ``evidence_bound`` what is certainly a bound: the same with Gaussian noise or
        "bound"; otherwise the bound that this Gaussian gives by ``expected_log_density``, or NaN.
        Both contain the share of the twin at -w. ``least_curvature`` is that of E_q[H], and
        ``n_iter`` counts the steps after Newton's.

    Raises
    ------
    ValueError
        As for ``laplace``; or if the expectation is not known by name or by the likelihood.

    Warns
    -----
    ConvergenceWarning
        If the bound did not settle, or settled where it still bends upwards: on a saddle.

    Notes
    -----
    The bound never falls from step to step. A Gaussian stands for one mode and its twin; where the
    posterior has other modes, the bound stays below the evidence by what they hold.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import ISGP, Gaussian, TrigonometricKernel, laplace, variational
    >>> x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    >>> y = x**3 + 0.1 * torch.sin(50 * x)
    >>> problem = ISGP(TrigonometricKernel(a=1.2, c=0.25, n_basis=16)), Gaussian(alpha=200.0), x, y
    >>> posterior = variational(*problem)
    >>> posterior.mean(x[[4, 36]]).round(decimals=1).tolist()
    [-0.5, 0.6]
    >>> posterior.log_evidence > laplace(*problem).evidence_bound
    True
    """
    if expectation not in get_args(Expectation):
        raise ValueError(f"expected an expectation of {get_args(Expectation)}, got {expectation!r}")
    x, y, sample_weight = check_data(x, y, sample_weight)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y, sample_weight))
    mode = find_mode(joint, prior.start(x) if start is None else start, max_iter=max_iter)
    posterior, trouble = nearest(joint, mode, expectation, max_iter)
    if trouble:
        warn_caller(f"{trouble}; raise max_iter={max_iter} or begin elsewhere", ConvergenceWarning)
    return posterior


@torch.no_grad()
def nearest(
    joint: LogJoint,
    mode: Mode,
    expectation: Expectation = "normal",
    max_iter: int = 200,
    bound_of: Callable[[LogJoint, Expectation], GaussianBound] = GaussianBound,
) -> tuple[Posterior, str]:
    """The Gaussian that the search finds from where Newton's method ended, and what went wrong.

    Parameters and what is returned as for :func:`variational`; the text is empty where all is well.
    ``bound_of`` makes what is maximised: a subclass may add terms to it.
    """
    bound = bound_of(joint, expectation)
    begin = bound(mode.Gamma, _positive(joint.curvature(mode.Gamma)))
    q, n_iter, gain, bend = _climb(bound, begin, max_iter)
    trouble = ""
    if gain > max(_SETTLED, 1e-12 * abs(float(q.value))):
        trouble = f"the bound did not settle in {n_iter} steps: the next would gain {gain:.2g} nats"
    elif bend <= 0:
        trouble = f"the bound settled on a saddle: its last step found a curvature of {bend:.2g}"
    moments = bound.moments(q.m, q.root, q.slopes)
    certain = joint.likelihood.expected_log_density(*moments, joint.data)
    posterior = Posterior(
        prior=joint.prior,
        likelihood=joint.likelihood,
        mode=q.m,
        root=q.root,
        log_evidence=float(q.value),
        evidence_bound=math.nan
        if certain is None
        else float(q.value - bound.fit(*moments) + certain),
        least_curvature=float(torch.linalg.eigvalsh(q.precision)[0]),
        converged=not trouble,
        n_iter=n_iter,
    )
    return posterior, trouble


def _positive(curvature: Tensor) -> Tensor:
    """The curvature, where Newton's method ended on a saddle that of a bowl as steep."""
    if int(torch.linalg.cholesky_ex(curvature)[1]) == 0:
        return curvature
    values, vectors = torch.linalg.eigh(curvature)
    return (vectors * values.abs().clamp_min(1e-3)) @ vectors.T


def _climb(bound: GaussianBound, q: Trial, max_iter: int) -> tuple[Trial, int, float, float]:
    """Ascend in the coordinates of q itself: the best q, steps, gain left, last step's curvature.

    A step (a, B) takes m to m + R a and S^-1 to R^-T (1 + B + B^2 / 2) R^-1, in which form it stays
    positive definite (Lin, Schmidt and Khan 2020). The gradient in these coordinates, where q has
    the metric of the identity, is a = R^T E_q[grad] and B = R^T E_q[H] R - 1.
    """
    size, unit = len(q.m), torch.eye(len(q.m), dtype=q.m.dtype, device=q.m.device)

    def uphill(q: Trial) -> Tensor:
        gradient, hessian = bound.derivatives(q)
        # Half the squared norm of B is that of a vector: the metric of S.
        B = (q.root.T @ hessian @ q.root - unit) / math.sqrt(2)
        return torch.cat([q.root.T @ gradient, B.flatten()])

    slope, pairs, n_iter, bend = uphill(q), list[tuple[Tensor, Tensor]](), 0, 1.0
    while True:
        step = _corrected(slope, pairs)
        gain = 0.5 * float(step @ slope)
        if gain < _SETTLED or n_iter == max_iter:
            break
        fraction, rounding = 1.0, 1e-14 * abs(float(q.value))
        while fraction > _LEAST_STEP:
            a, B = (fraction * step).split([size, size**2])
            B = math.sqrt(2) * B.view(size, size)
            new = q.factor @ (unit + B + 0.5 * B @ B) @ q.factor.T
            new = 0.5 * (new + new.T)
            # Far out rounding errors leave it indefinite.
            if int(torch.linalg.cholesky_ex(new)[1]) == 0:
                moved = bound(q.m + q.root @ a, new)
                if moved.value >= q.value + 2e-4 * fraction * gain - rounding:
                    break
            fraction /= 2
        else:
            if not pairs:
                break
            pairs = []  # earlier steps mislead: once more without them
            continue
        q, before, n_iter = moved, slope, n_iter + 1
        slope = uphill(q)
        taken, fallen = fraction * step, before - slope
        bend = float(taken @ fallen / (taken @ taken))
        if bend > 1e-3:
            pairs = [*pairs, (taken, fallen)][-_MEMORY:]
    return q, n_iter, gain, bend


def _corrected(slope: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The slope times the inverse curvature that the pairs (step, fall of the slope) tell.

    The two-loop recursion of L-BFGS (Nocedal 1980).
    """
    step, shares = slope, []
    for taken, fallen in reversed(pairs):
        shares.append((taken @ step) / (taken @ fallen))
        step = step - shares[-1] * fallen
    if pairs:
        taken, fallen = pairs[-1]
        step = step * ((taken @ fallen) / (fallen @ fallen))
    for (taken, fallen), share in zip(pairs, reversed(shares), strict=True):
        step = step + (share - (fallen @ step) / (taken @ fallen)) * taken
    return step
