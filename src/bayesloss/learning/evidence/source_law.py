"""The law of nu(x) under a Gaussian q, and what labels say of it, without draws or bounds.

For Gamma = m + R z with z standard normal, nu is a quadratic form, nu = nu(m) + g^T z + z^T M z. In
the eigenvectors of M, with eigenvalues lambda and l for g, its characteristic function is closed,
as in Imhof (1961). About the mean mu, with the variance v = sum_k (l_k^2 + 2 lambda_k^2), it is

    log phi(t) = -v t^2 / 2 + sum_k [ t^2 (l_k^2 + 2 lambda_k^2) / 2 - i t lambda_k
                                      - log(1 - 2 i t lambda_k) / 2
                                      - t^2 l_k^2 / (2 (1 - 2 i t lambda_k)) ],

where each term begins with t^3: directions of small lambda may be left out, and count as normal.
With H(t) = -pi t / sinh(pi t), the Fourier transform of (log sigma)'',

    E log sigma(nu) = log sigma(mu) + (1 / pi) Re int_0^inf H(t) e^(i t mu) (1 - phi(t)) / t^2 dt.

Its derivatives by mu and v are again such integrals, as are those by l and M.
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


def functionals(
    V: Float[Tensor, "T D"], squares: Float[Tensor, "n T"], precision: Float[Tensor, " D"]
) -> Float[Tensor, "D r"]:
    """The combinations of Gamma whose squares matter to nu, under the prior; the last need not."""
    spread = V * precision.rsqrt()
    # M grows with x from zero, so that the widest difference of two bounds all others.
    traces = squares @ (spread**2).sum(dim=1)
    ends = squares[[int(traces.argmax()), int(traces.argmin())]]
    ends = ends * torch.stack([traces.max() > 0, traces.min() < 0])[:, None]
    values, vectors = torch.linalg.eigh(spread.T @ ((ends[0] - ends[1])[:, None] * spread))
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
    axes: Float[Tensor, "n r r"]  # of M within these directions
    l: Float[Tensor, "n r"]
    eigenvalues: Float[Tensor, "n r"]

    @classmethod
    def normal(cls, mean: Float[Tensor, " n"], variance: Float[Tensor, " n"]) -> "SourceLaw":
        """The normal law, with no such direction."""
        none = mean.new_zeros((len(mean), 0))
        return cls(mean, variance, none[:0], none[:, None, :0], none, none)

    @classmethod
    def of(
        cls, moments: tuple[Tensor, ...], g: Tensor, squares: Tensor, spread: Tensor, turned: Tensor
    ) -> "SourceLaw":
        """From moments, g (n, D), G (n, T) and V R (T, D) of M = (V R)^T diag(G_n) V R, and R^T W.

        W are the :func:`functionals`, whose directions among z are those of R^T W.
        """
        (mean, variance), directions = moments, torch.linalg.qr(turned)[0]
        within = spread @ directions
        size = within.shape[1]
        pairs = (within[:, :, None] * within[:, None]).flatten(1)
        eigenvalues, axes = torch.linalg.eigh((squares @ pairs).view(len(g), size, size))
        l = ((g @ directions)[:, None] @ axes)[:, 0]
        return cls(mean, variance, directions, axes, l, eigenvalues)

    def expected_log_sigmoid(self) -> Expectation:
        """E log sigma(nu) and its derivatives, to 1e-8 at each point."""
        # The wider nu, the more nodes; points that need as many lie side by side.
        n_nodes = 10 + 3.5 * self.mean.abs() + 5 * self.variance.sqrt()
        n_nodes = (8 * (n_nodes / 8).ceil()).clamp_max(_NODES).int()
        order = n_nodes.argsort()
        parts = [self.by_nodes(rows, int(n_nodes[rows[-1]])) for rows in order.split(_ROWS)]
        back = order.argsort()
        return Expectation(*(torch.cat(each)[back] for each in zip(*parts, strict=True)))

    def by_nodes(self, rows: Int[Tensor, " k"], n_nodes: int) -> Expectation:
        """The same at some points, by so many nodes."""
        mean, variance = self.mean[rows], self.variance[rows]
        axes, l, lam = self.axes[rows], self.l[rows, None], self.eigenvalues[rows, None]
        # Nodes at the scale of 1 / nu near zero, and wider apart beyond.
        width = 1 / (1 + variance.sqrt())[:, None]
        nodes, shares = (each.to(mean.device) for each in gauss_legendre(n_nodes))
        half = torch.asinh(_END / width) / 2
        t = width * torch.sinh((nodes + 1) * half)  # (n, t)
        share = shares * half * torch.sqrt(width**2 + t**2)
        # With z = 1 / (1 - i a) = (1 + i a) d, and z - 1 = (-a^2 + i a) d.
        a = 2 * t[..., None] * lam  # (n, t, r)
        d, squares = 1 / (1 + a**2), (t[..., None] * l) ** 2
        ad = a * d
        size = (a**2 / 4 - torch.log1p(a**2) / 4 + squares * a * ad / 2).sum(dim=-1)
        angle = (torch.atan(a) - a - squares * ad).sum(dim=-1) / 2
        size = (size - t**2 * variance[:, None] / 2).clamp_min(-60.0)  # no denormal numbers
        kernel = torch.polar(-share / (t * torch.sinh(math.pi * t)), t * mean[:, None])
        rest = 2 * torch.sin(angle / 2) ** 2 - torch.expm1(size) * torch.cos(angle)
        phi = torch.polar(size.exp(), angle)
        missing = kernel * torch.complex(rest, -phi.imag)  # kernel (1 - phi)
        pull = -kernel * phi * t**2  # times d log phi / t^2
        turned = -(pull.real[:, None] @ (a * ad) + pull.imag[:, None] @ ad)  # Re pull (z - 1)
        x, y = (t * pull.imag)[..., None], -(t * pull.real)[..., None]  # of -i t pull
        left = torch.cat([x * d - y * ad, -x * ad - y * d], dim=1)
        by_M = (l.mT * l) * (left.mT @ torch.cat([d, ad], dim=1))
        by_M = by_M - torch.diag_embed((2 * lam * turned)[:, 0])
        return Expectation(
            value=torch.nn.functional.logsigmoid(mean) + missing.real.sum(dim=1),
            by_mean=torch.sigmoid(-mean) - (t * missing.imag).sum(dim=1),
            by_variance=-0.5 * pull.real.sum(dim=1),
            by_g=(axes @ (-l * turned).mT)[..., 0],
            by_M=axes @ by_M @ axes.mT,
        )
