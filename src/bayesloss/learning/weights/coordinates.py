"""Coordinates of weights and offsets in which all matter alike.

The curvature of the penalised mean log probability in the weights is close to a multiple of the
inputs' covariance, plus the penalty's. Where that matrix, estimated from a sample, is the identity,
few steps suffice, whatever the units. With many data, a Hessian for each problem does better. A
softmax is one problem; what its weights have in common over classes is a coordinate apart.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.data.inputs import Inputs
from bayesloss.learning.weights.hessian_roots import gram

MOST_COLUMNS = 2048  # beyond which their scales have to do: the covariance would cost d^3
_SAMPLE = 2048  # data from which the covariance is estimated
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
        cls,
        inputs: Inputs,
        weight: Float[Tensor, " n"],
        centre: Float[Tensor, " d"],
        levels: Float[Tensor, " k"],
        ridge: float,
    ) -> "Coordinates":
        """Coordinates from the covariance of inputs, for problems with these mean curvatures."""
        level, total = float(levels.mean()), float(weight.sum())
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
        return cls(
            scale=scale,
            vectors=vectors,
            class_scale=(levels.mean() / levels).sqrt()[:, None],
            offset_scale=levels.rsqrt()[:, None],
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
        own = {}
        if self.vectors is not None and self.vectors.ndim == 3:
            own = {"vectors": self.vectors[rows], "offset_coupling": self.offset_coupling[rows]}
        return replace(
            self, class_scale=self.class_scale[rows], offset_scale=self.offset_scale[rows], **own
        )

    def blocks(self, n_joint: int) -> int:
        """How many rows of coordinates make up a problem of so many rows of weights."""
        return len(self.offset_scale) if n_joint > 1 else 1

    def weights(self, coordinates: Float[Tensor, "b d1"], n_joint: int) -> Float[Tensor, "w d1"]:
        """Weights and offsets, these last, from coordinates."""
        rows = coordinates.unflatten(0, (-1, len(self.offset_scale)))
        beta, last = rows[..., :-1], rows[..., -1:]
        beta = self.class_scale * self.scale * _turned(self.vectors, beta)
        beta = beta + self.offset_coupling * last
        rows = torch.cat([beta, self.offset_scale * last], dim=2).flatten(0, 1)
        blocks = self.blocks(n_joint)
        if blocks == n_joint:
            return rows
        rows = rows.unflatten(0, (-1, blocks))
        own, common = rows[:, :-1], rows[:, -1:] / math.sqrt(n_joint)
        return (own - own.mean(1, keepdim=True) + common).flatten(0, 1)

    def slopes(self, gradient: Float[Tensor, "w d1"], n_joint: int) -> Float[Tensor, "b d1"]:
        """Slopes along the coordinates from a gradient by weights and offsets: the adjoint."""
        if self.blocks(n_joint) > n_joint:
            rows = gradient.unflatten(0, (-1, n_joint))
            mean = rows.mean(1, keepdim=True)
            common = mean * math.sqrt(n_joint)
            gradient = torch.cat([rows - mean, common], dim=1).flatten(0, 1)
        rows = gradient.unflatten(0, (-1, len(self.offset_scale)))
        beta, last = rows[..., :-1], rows[..., -1:]
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
