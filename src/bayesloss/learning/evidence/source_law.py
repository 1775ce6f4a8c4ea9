"""The law of nu(x) under a Gaussian q, and what labels say of it, without draws or bounds.

For Gamma = m + R z with z standard normal, nu is a quadratic form, nu = nu(m) + g^T z + z^T M z. In
the eigenvectors of M, with eigenvalues lambda_k and slopes g_k, its characteristic function is
closed, as in Imhof (1961). About the mean mu, with the variance v = sum_k (g_k^2 + 2 lambda_k^2):

    log phi(t) = -v t^2 / 2 + sum_k [ t^2 (g_k^2 + 2 lambda_k^2) / 2 - i t lambda_k
                                      - log(1 - 2 i t lambda_k) / 2
                                      - t^2 g_k^2 / (2 (1 - 2 i t lambda_k)) ],

where each term begins with t^3: directions of small lambda may be left out, and count as normal.
With H(t) = -pi t / sinh(pi t), the Fourier transform of (log sigma)'',

    E log sigma(nu) = log sigma(mu) + (1 / pi) Re int_0^inf H(t) e^(i t mu) (1 - phi(t)) / t^2 dt,

as derived in book/beyond/variational, *Labels: one integral, exactly*. Its derivatives are again
such integrals; for those by g and M, 1 - phi becomes -phi d log phi. At fixed mu and v, with
u_k = 1 / (1 - 2 i t lambda_k) and along the eigenvectors of M,

    d log phi / d g_k = -t^2 g_k (u_k - 1),
    d log phi / d M_jk = -i t^3 g_j g_k u_j u_k - 2 t^2 lambda_k (u_k - 1) [j = k].
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bayesloss.quadrature import gauss_legendre

LEAST = 1e-3  # lambda that is left out: 3e-5 nats of a thousand labels
_NODES = 256  # at most: nu between -50 and 50
_END = 7.0  # of the integrals, where H is 1e-8
_ROWS = 64  # at a time, whose numbers stay in a processor's cache
_LOG_LEAST = -60.0  # of |phi|, which is nothing by then; exp makes no denormal numbers, slow ones


def functionals(
    V: Float[Tensor, "T D"], squares: Float[Tensor, "n T"], precision: Float[Tensor, " D"]
) -> Float[Tensor, "D r"]:
    """The combinations of Gamma whose squares matter to nu, under the prior; the last need not."""
    spread = V * precision.rsqrt()
    # M grows with x from zero, so that the widest difference of two bounds all others.
    traces = squares @ (spread**2).sum(dim=1)
    highest = squares[int(traces.argmax())] * (traces.max() > 0)
    lowest = squares[int(traces.argmin())] * (traces.min() < 0)
    values, vectors = torch.linalg.eigh(spread.T @ ((highest - lowest)[:, None] * spread))
    return precision.sqrt()[:, None] * vectors[:, values.abs() > LEAST]


class Expectation(NamedTuple):
    """E log sigma(nu) at n points, and its derivatives."""

    value: Float[Tensor, " n"]
    by_mean: Float[Tensor, " n"]
    by_variance: Float[Tensor, " n"]
    by_g: Float[Tensor, "n r"]  # beyond what the variance says, in the law's directions
    by_M: Float[Tensor, "n r r"]


@dataclass(frozen=True)
class SourceLaw:
    """The law of nu at n points, along the r directions of z in which it is not normal."""

    mean: Float[Tensor, " n"]
    variance: Float[Tensor, " n"]
    directions: Float[Tensor, "D r"]  # orthonormal
    axes: Float[Tensor, "n r r"]  # the eigenvectors of M within these directions
    slopes: Float[Tensor, "n r"]  # g_k, along the axes
    eigenvalues: Float[Tensor, "n r"]  # lambda_k, of M

    @classmethod
    def normal(cls, mean: Float[Tensor, " n"], variance: Float[Tensor, " n"]) -> "SourceLaw":
        """The normal law, with no such direction."""
        nothing = mean.new_zeros((len(mean), 0))
        return cls(
            mean=mean,
            variance=variance,
            directions=nothing[:0],
            axes=nothing[:, None, :0],
            slopes=nothing,
            eigenvalues=nothing,
        )

    @classmethod
    def of(
        cls, moments: tuple[Tensor, ...], g: Tensor, squares: Tensor, spread: Tensor, turned: Tensor
    ) -> "SourceLaw":
        """From moments, g (n, D), G (n, T) and V R (T, D) of M = (V R)^T diag(G_n) V R, and R^T W.

        W are the :func:`functionals`, whose directions among z are those of R^T W.
        """
        mean, variance = moments
        directions = torch.linalg.qr(turned).Q
        within = spread @ directions
        size = within.shape[1]
        pairs = (within[:, :, None] * within[:, None]).flatten(1)
        M = (squares @ pairs).view(len(g), size, size)
        eigenvalues, axes = torch.linalg.eigh(M)
        return cls(
            mean=mean,
            variance=variance,
            directions=directions,
            axes=axes,
            slopes=((g @ directions)[:, None] @ axes)[:, 0],
            eigenvalues=eigenvalues,
        )

    def expected_log_sigmoid(self) -> Expectation:
        """E log sigma(nu) and its derivatives, to 1e-8 at each point."""
        # The wider nu, the more nodes: *How many nodes?* in book/beyond/variational has the errors.
        # Points that need as many are done together, and numbers of nodes are multiples of 8: few
        # rules are made, and kept.
        n_nodes = 10 + 3.5 * self.mean.abs() + 5 * self.variance.sqrt()
        n_nodes = (8 * (n_nodes / 8).ceil()).clamp_max(_NODES).int()
        order = n_nodes.argsort()
        blocks = [self.by_nodes(rows, int(n_nodes[rows[-1]])) for rows in order.split(_ROWS)]
        back = order.argsort()
        return Expectation(
            value=torch.cat([block.value for block in blocks])[back],
            by_mean=torch.cat([block.by_mean for block in blocks])[back],
            by_variance=torch.cat([block.by_variance for block in blocks])[back],
            by_g=torch.cat([block.by_g for block in blocks])[back],
            by_M=torch.cat([block.by_M for block in blocks])[back],
        )

    def by_nodes(self, rows: Int[Tensor, " k"], n_nodes: int) -> Expectation:
        """The same at some points, by so many nodes."""
        mean = self.mean[rows]
        variance = self.variance[rows]
        axes = self.axes[rows]
        g = self.slopes[rows, None]
        lam = self.eigenvalues[rows, None]
        t, share = _nodes(variance, n_nodes)  # (n, t)
        # u = 1 / (1 - 2 i t lambda) of each axis, with the real part 1 / (1 + (2 t lambda)^2).
        turn = 2 * t[..., None] * lam  # (n, t, r)
        u_real = 1 / (1 + turn**2)
        u_imag = turn * u_real
        squares = (t[..., None] * g) ** 2
        # log phi = size + i angle.
        size = (turn**2 / 4 - torch.log1p(turn**2) / 4 + squares * turn * u_imag / 2).sum(dim=-1)
        size = (size - t**2 * variance[:, None] / 2).clamp_min(_LOG_LEAST)
        angle = (torch.atan(turn) - turn - squares * u_imag).sum(dim=-1) / 2
        phi = torch.polar(size.exp(), angle)
        # 1 - phi, without cancellation where phi is near 1: rest_real - i phi.imag.
        rest_real = 2 * torch.sin(angle / 2) ** 2 - torch.expm1(size) * torch.cos(angle)
        kernel = torch.polar(-share / (t * torch.sinh(math.pi * t)), t * mean[:, None])
        missing = kernel * torch.complex(rest_real, -phi.imag)
        # The integrand moves by this times d log phi / t^2.
        pull = -kernel * phi * t**2
        # Re pull (u - 1), as u - 1 has the real part -turn u_imag. By g: -g times this.
        turned = -(pull.real[:, None] @ (turn * u_imag) + pull.imag[:, None] @ u_imag)
        # By M: Re factor u_j u_k g_j g_k, factor = -i t pull.
        factor_real = (t * pull.imag)[..., None]
        factor_imag = -(t * pull.real)[..., None]
        real = factor_real * u_real - factor_imag * u_imag  # of factor u
        less_imag = -factor_real * u_imag - factor_imag * u_real
        both = torch.cat([real, less_imag], dim=1)
        by_M = (g.mT * g) * (both.mT @ torch.cat([u_real, u_imag], dim=1))
        by_M = by_M - torch.diag_embed((2 * lam * turned)[:, 0])
        return Expectation(
            value=torch.nn.functional.logsigmoid(mean) + missing.real.sum(dim=1),
            by_mean=torch.sigmoid(-mean) - (t * missing.imag).sum(dim=1),
            by_variance=-0.5 * pull.real.sum(dim=1),
            by_g=(axes @ (-g * turned).mT)[..., 0],
            by_M=axes @ by_M @ axes.mT,
        )


def _nodes(
    variance: Float[Tensor, " n"], n_nodes: int
) -> tuple[Float[Tensor, "n t"], Float[Tensor, "n t"]]:
    """Nodes t between 0 and the end, and weights: at the scale of 1 / nu near zero, then wider."""
    width = 1 / (1 + variance.sqrt())[:, None]
    nodes, node_weights = gauss_legendre(n_nodes)
    nodes = nodes.to(variance.device)
    node_weights = node_weights.to(variance.device)
    # t = width sinh(s), and dt = (width^2 + t^2)^1/2 ds.
    half = torch.asinh(_END / width) / 2
    t = width * torch.sinh((nodes + 1) * half)
    return t, node_weights * half * torch.sqrt(width**2 + t**2)
