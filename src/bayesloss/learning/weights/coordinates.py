"""Coordinates of weights and offsets in which all matter alike.

The curvature of the penalised mean log probability in the weights is close to a multiple of the
inputs' covariance, plus the penalty's. Where that matrix, estimated from a sample, is the identity,
few steps suffice, whatever the units. With many data, a Hessian for each problem does better. A
softmax is one problem; what its weights have in common over classes is a coordinate apart.

A Hessian H = sum_n m_n (z_n - c) (z_n - c)^T is estimated without bias from rows drawn with
probabilities proportional to mass m_n times a preference, each of which stands for mass in inverse
proportion to these; its roots are H^-1 = R R^T.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bayesloss.learning.data.inputs import Inputs, PerColumn, PerRow
from bayesloss.threads import threads_for

MOST_COLUMNS = 2048  # beyond which their scales have to do: the covariance would cost d^3
_SAMPLE = 2048  # data from which the covariance is estimated
_ROWS = 4096  # in a block of which the products are summed
_HELD_BACK = 0.1  # without a penalty, the part of a column's mean curvature that is added to all


@dataclass(frozen=True)
class Coordinates:
    """Scales of the columns, and what turns and stretches scaled columns.

    (b, t) give weights class_scale * scale * vectors b + offset_coupling t, offset offset_scale t.
    """

    scale: Float[Tensor, " d"]
    vectors: Float[Tensor, "*r d d"] | None
    class_scale: Float[Tensor, "r 1"]
    offset_scale: Float[Tensor, "r 1"]
    offset_coupling: Float[Tensor, "*r d"]
    level: float  # the mean curvature expected at first
    damping: float  # of the penalty

    @classmethod
    def of(
        cls, inputs: Inputs, weight: PerRow, centre: PerColumn, levels: Tensor, ridge: float
    ) -> "Coordinates":
        """From the covariance of inputs, for problems whose mean curvatures are the levels."""
        level = float(levels.mean())
        total = float(weight.sum())
        variance = inputs.squares_about(centre, weight) / total
        constant = variance.sqrt() <= 1e-12 * centre.abs()
        # Without a penalty the optimum may lie at infinity. A search that is stopped on its way
        # there had better not run ahead in directions of which the data say little.
        damping = ridge or _HELD_BACK * level * float(variance.mean())
        scale = torch.where(constant, 0.0, (level * variance + damping).rsqrt())
        vectors = None
        if len(centre) <= MOST_COLUMNS:
            n = len(inputs)
            chosen = torch.linspace(0, n - 1, min(n, _SAMPLE)).long()
            share = level * (weight[chosen] / weight[chosen].sum())
            sample = (inputs.dense(chosen) - centre) * share.sqrt()[:, None] * scale
            curvature = gram(sample) + torch.diag(damping * scale**2)
            # Columns that vary, but not in the sample: on their own scale, which is 1.
            curvature.diagonal()[curvature.diagonal() < 0.1] += 1
            values, vectors = torch.linalg.eigh(curvature)
            vectors *= values.clamp_min(1e-12 * float(values[-1])).rsqrt()
        column = levels[:, None]
        return cls(
            scale=scale,
            vectors=vectors,
            class_scale=(levels.mean() / column).sqrt(),
            offset_scale=column.rsqrt(),
            offset_coupling=torch.zeros_like(centre),
            level=level,
            damping=damping,
        )

    def turned(self, roots: Float[Tensor, "r d1 d1"]) -> "Coordinates":
        """The same scales with a root for each row, its last row and column for the offset."""
        return replace(
            self,
            vectors=roots[:, :-1, :-1],
            class_scale=torch.ones_like(roots[:, :1, 0]),
            offset_scale=roots[:, -1, -1:],
            offset_coupling=self.scale * roots[:, :-1, -1],
        )

    def only(self, rows: list[int]) -> "Coordinates":
        """The coordinates of some of the rows."""
        vectors = self.vectors
        coupling = self.offset_coupling
        if vectors is not None and vectors.ndim == 3:  # a root for each row
            vectors = vectors[rows]
            coupling = coupling[rows]
        return replace(
            self,
            vectors=vectors,
            class_scale=self.class_scale[rows],
            offset_scale=self.offset_scale[rows],
            offset_coupling=coupling,
        )

    def blocks(self, n_joint: int) -> int:
        """How many rows of coordinates make up a problem of so many rows of weights."""
        return len(self.offset_scale) if n_joint > 1 else 1

    def weights(self, coordinates: Float[Tensor, "b d1"], n_joint: int) -> Float[Tensor, "w d1"]:
        """Weights and offsets, these last, from coordinates."""
        rows = coordinates.unflatten(0, (-1, len(self.offset_scale)))
        beta = rows[..., :-1]
        last = rows[..., -1:]
        beta = self.class_scale * self.scale * _turned(self.vectors, beta)
        beta = beta + self.offset_coupling * last
        rows = torch.cat([beta, self.offset_scale * last], dim=2).flatten(0, 1)
        blocks = self.blocks(n_joint)
        if blocks == n_joint:
            return rows
        rows = rows.unflatten(0, (-1, blocks))
        own = rows[:, :-1]
        common = rows[:, -1:] / math.sqrt(n_joint)
        return (own - own.mean(1, keepdim=True) + common).flatten(0, 1)

    def slopes(self, gradient: Float[Tensor, "w d1"], n_joint: int) -> Float[Tensor, "b d1"]:
        """Slopes along the coordinates from a gradient by weights and offsets: the adjoint."""
        if self.blocks(n_joint) > n_joint:
            rows = gradient.unflatten(0, (-1, n_joint))
            mean = rows.mean(1, keepdim=True)
            common = mean * math.sqrt(n_joint)
            gradient = torch.cat([rows - mean, common], dim=1).flatten(0, 1)
        rows = gradient.unflatten(0, (-1, len(self.offset_scale)))
        beta = rows[..., :-1]
        last = rows[..., -1:]
        vectors = None if self.vectors is None else self.vectors.mT
        along = _turned(vectors, self.class_scale * self.scale * beta)
        last = self.offset_scale * last + (self.offset_coupling * beta).sum(2, keepdim=True)
        return torch.cat([along, last], dim=2).flatten(0, 1)


def _turned(
    vectors: Float[Tensor, "*r d d"] | None, rows: Float[Tensor, "any r d"]
) -> Float[Tensor, "any r d"]:
    if vectors is None:
        return rows
    if vectors.ndim == 2:
        return rows @ vectors.T
    return (vectors @ rows.permute(1, 2, 0)).permute(2, 0, 1)


def sampled_hessian(
    inputs: Inputs,
    centre: PerColumn,
    mass: PerRow,
    size: int,
    preference: PerRow | None = None,
    *,
    scale: PerColumn | None = None,
    offset: bool = False,
    total: float = 1.0,
) -> Tensor:
    """The sum H above over the total, from so many rows, maybe scaled and with an offset."""
    rows, mass = sampled(mass, size, preference)
    roots = (mass / total).sqrt()
    width = len(centre) + offset
    H = torch.zeros((width, width), dtype=centre.dtype, device=centre.device)
    for chosen, root in zip(rows.split(_ROWS), roots.split(_ROWS), strict=True):
        part = inputs.dense(chosen).sub_(centre)
        if scale is not None:
            part.mul_(scale)
        part.mul_(root[:, None])
        if offset:
            part = torch.cat([part, root[:, None]], dim=1)
        H += gram(part)
    return H


def inverse_root(H: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """A triangular R with R R^T = H^-1, or NaN where there is none: no wait for a device."""
    factor, failed = torch.linalg.cholesky_ex(H)
    factor = torch.where(failed == 0, factor, math.nan)
    identity = torch.eye(len(H), dtype=H.dtype, device=H.device)
    return torch.linalg.solve_triangular(factor, identity, upper=False).T


def gram(rows: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """rows^T rows; on a processor NumPy computes one half of it."""
    if rows.device.type != "cpu":
        return rows.T @ rows
    array = rows.numpy()
    with threads_for(array.shape[1], *array.shape):
        return torch.from_numpy(array.T @ array)


def sampled(
    mass: PerRow, size: int, preference: PerRow | None = None
) -> tuple[Int[Tensor, " m"], Float[Tensor, " m"]]:
    """Draw rows evenly along the sum of mass times preference, with the mass of each."""
    if len(mass) <= size:
        return torch.arange(len(mass), device=mass.device), mass
    upto = mass.cumsum(0) if preference is None else (mass * preference).cumsum_(0)
    steps = torch.arange(0.5, size, dtype=mass.dtype, device=mass.device) / size
    rows = torch.searchsorted(upto, steps * upto[-1]).clamp_max(len(mass) - 1)
    mass = mass[rows]
    drawn = mass if preference is None else mass * preference[rows]
    return rows, torch.where(drawn > 0, mass * upto[-1] / (size * drawn), 0.0)
