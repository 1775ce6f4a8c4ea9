"""The bound on the evidence of a Gaussian over sources, and its derivatives (beyond W&N 4.1).

For a Gaussian q = N(m, S) the evidence has the lower bound

    L(q) = E_q[log p(D | nu)] - KL(q || prior)  <=  log p(D).

The first term depends on each nu's mean and variance (``LogJoint.moments``), with derivatives s_n
by the mean and -w_n / 2 by the variance, and with labels on the rest of its law, too
(``source_law``). With V, P, A and K as in ``priors``, slopes the derivative of nu at m and
G = features P, by Bonnet's and Price's theorems

    dL/dm = E_q[grad log p(D, Gamma)],
    E_q[grad] = slopes^T s - 2 V^T diag(G^T w slopes S V^T) - precision (m - location),
    dL/dS = (S^-1 - E_q[H]) / 2,
    E_q[H] = precision + slopes^T w slopes - curvature(features^T s) + 4 V^T ((G^T w G) o K) V,

the Hessian (11) and a last, new term, to which labels add what the shape of their laws does.

If the ISGP's posterior has a twin at -w, q is half N(m, S), half its mirror image. Its entropy
grows by at least what a draw's w tells of its half: with delta = w^T S_ww^-1 w, the information of
a binary signal in Gaussian noise, between 0 and log 2,

    T(delta) = log 2 - E_z log(1 + exp(-2 (delta + sqrt(delta) z))),   z ~ N(0, 1).

All this is derived in book/beyond/variational; *The twin* there has T(delta). The bound that
Laplace's Gaussian has for the same, ``LogJoint.twin_bound``, is lower, and closed.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.interpolate import make_interp_spline
from torch import Tensor

from bayesloss.learning.evidence.source_law import SourceLaw, functionals
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint, Matrix, Rows, Scalar, Vector
from bayesloss.proper_losses import LogLoss
from bayesloss.quadrature import gauss_hermite

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
    prior = joint.prior
    data = joint.data
    root = prior.precision.rsqrt().diag()
    x = (data.features @ prior.mean_coefficients(prior.location, root)).cpu().numpy()
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
        pull, bend = self.by_shape(root, J, G, law.directions, by_g, by_M)
        return Fit(value=value, s=s, w=w, pull=pull, bend=bend)

    def by_shape(
        self,
        root: Matrix,
        J: Float[Tensor, "k D"],
        G: Float[Tensor, "k T"],
        directions: Float[Tensor, "D r"],
        by_g: Float[Tensor, "k r"],
        by_M: Float[Tensor, "k r r"],
    ) -> tuple[Vector, Matrix]:
        """The pull dL/dm and the bend -2 dL/dS of the laws' shape, by its derivatives at k rows.

        Nu at row n has g = R^T J_n and M = R^T V^T diag(G_n) V R, of which its law knows Q^T g and
        Q^T M Q, with Q the directions, which span R^T W of the functionals W. Where m moves by dm,
        and R to R (1 + E),

            dg = 2 R^T V^T diag(G_n) V dm + E^T g,   dM = E^T M + M E,   dQ = (1 - Q Q^T) E^T Q,
            dL = sum_n by_g_n . d(Q^T g) + by_M_n . d(Q^T M Q) = pull . dm + X . E.

        S moves by R (E + E^T) R^T, so that X is symmetric, and the bend is -R^-T X R^-1. As M is
        zero beyond Q, dQ counts only with g, and X is the symmetric part of

            sum_n (2 g - Q Q^T g) (Q by_g_n)^T + 2 M Q by_M_n Q^T.
        """
        V, _, _ = self.joint.prior.quadratic_form()
        V_R_Q = V @ root @ directions
        pull = 2 * V.T @ (G * (by_g @ V_R_Q.T)).sum(dim=0)
        weighted_M = (G.T @ by_M.flatten(1)).view(len(G.T), *by_M.shape[1:])
        inner = (V_R_Q[:, None] @ weighted_M)[:, 0]  # sum_n diag(G_n) V R Q by_M_n
        back = torch.linalg.solve_triangular(root.T, directions, upper=False)  # R^-T Q
        # R^-T X R^-1, before it is made symmetric; R^-T g is J_n.
        of_g = 2 * J.T @ by_g - back @ ((J @ root @ directions).T @ by_g)
        bend = -(of_g + 2 * V.T @ inner) @ back.T
        return pull, 0.5 * (bend + bend.T)

    def twin(self, m: Vector, precision: Matrix) -> Twin:
        """What the mode at -w adds, T(delta), if there is one."""
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
        V_R = V @ q.root
        turn = 2 * (((G.T @ weighted) @ q.root) * V_R).sum(dim=1)
        gradient = q.slopes.T @ q.s - V.T @ turn - prior.precision * (q.m - prior.location)
        # The curvature and the quartic term are both sandwiches of V.
        inner = 4 * (G.T @ (q.w[:, None] * G)) * (V_R @ V_R.T)
        inner.diagonal().sub_(2 * (G.T @ q.s))
        hessian = torch.diag(prior.precision) + q.slopes.T @ weighted + V.T @ inner @ V
        # The twin's share: d delta / dm = 2 S_ww^-1 w, d delta / dS_ww = -(S_ww^-1 w)(...)^T.
        pull = 2 * q.twin_slope * q.apart
        gradient = gradient + q.pull + pull
        hessian = hessian + q.bend + torch.outer(pull, q.apart)
        return gradient, hessian
