"""Scores that are linear in the inputs, for problems that share them.

x_nk = beta_k . (z_n - centre) + offset_k is the score of datum n for problem k, such as one class
against the rest, so that all scores are one matrix product.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from bayesloss.learning.data.inputs import Inputs, PerRow, as_inputs
from bayesloss.learning.weights.coordinates import (
    MOST_COLUMNS,
    Coordinates,
    inverse_root,
    sampled_hessian,
)

_HESSIAN = 4096  # data from which a Hessian is estimated
_GLANCES = 16  # random directions that tell which data have large leverages
_SPARE = 2**23  # numbers that Hessians may take whatever the size of the inputs: 64 megabytes
_ROUNDING = 1e-12  # least part of a column's curvature that is added to it
_PART = 2**14  # numbers that a function is asked of at a time: what it makes on its way is small

# Of the log probabilities of the labels 0 and 1: a tensor of shape (2, ...), or its two rows.
Slopes: TypeAlias = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True)
class LinearScores:
    """The data of K problems, and the coordinates in which their weights are sought."""

    inputs: Inputs
    labels: Shaped[Tensor, "k n"]  # 0 or 1
    weight: Float[Tensor, " n"]
    total: float
    ridge: float  # the penalty on a mean, 1 / (C total)
    centre: Float[Tensor, " d"]
    coordinates: Coordinates
    n_joint: int = 1  # so many rows of weights in turn make up one problem

    @classmethod
    def of(
        cls, Z: Tensor | Inputs, labels: Shaped[Tensor, "k n"], weight: PerRow, C: float
    ) -> "LinearScores":
        """Problems with scikit-learn's inverse strength C of the L2 penalty; infinite for none."""
        inputs = as_inputs(Z)
        total = float(weight.sum())
        centre = inputs.sum(weight) / total
        ridge = 1 / (C * total)
        ones = (labels.to(weight.dtype) @ weight) / total
        # sigma'(x) is p (1 - p) before anything is learned, and falls as the labels are told apart.
        levels = (ones * (1 - ones) / 4).clamp_min(1e-6)
        return cls(
            inputs=inputs,
            labels=labels,
            weight=weight,
            total=total,
            ridge=ridge,
            centre=centre,
            coordinates=Coordinates.of(inputs, weight, centre, levels, ridge),
        )

    @property
    def wide(self) -> bool:
        """Whether a matrix with a row for each column would cost too much."""
        return len(self.centre) > MOST_COLUMNS

    @property
    def adaptable(self) -> bool:
        """Whether a Hessian for each problem is affordable, in time and in memory."""
        affordable = max(_SPARE, self.inputs.stored // 4)
        return not self.wide and len(self.labels) * len(self.centre) ** 2 <= affordable

    @property
    def C(self) -> float:
        """The inverse strength of the penalty, as scikit-learn counts it for these data."""
        return math.inf if self.ridge == 0 else 1 / (self.ridge * self.total)

    def only(self, problems: list[int]) -> "LinearScores":
        """The same inputs for some of the problems."""
        if problems == list(range(len(self.labels))):
            return self
        coordinates = self.coordinates.only(problems)
        return replace(self, labels=self.labels[problems], coordinates=coordinates)

    def joined(self) -> "LinearScores":
        """The problems as one, whose objective is the sum of theirs."""
        return replace(self, n_joint=len(self.labels))

    def centred_on(self, rows: Bool[Tensor, " n"]) -> "LinearScores":
        """The same problems in coordinates made for some of the rows."""
        some = self.of(self.inputs.rows(rows), self.labels[:, rows], self.weight[rows], self.C)
        return replace(self, centre=some.centre, coordinates=some.coordinates)

    def every(self, step: int) -> "LinearScores":
        """The same problems with each step-th datum; the penalty on a mean is unchanged."""
        if step == 1:
            return self
        every = slice(None, None, step)
        weight = self.weight[every].contiguous()
        return replace(
            self,
            inputs=self.inputs.rows(every),
            labels=self.labels[:, every].contiguous(),
            weight=weight,
            total=float(weight.sum()),
        )

    def adapted(self, curvature: Float[Tensor, "r n"]) -> "LinearScores":
        """In coordinates with Hessians near the identity, from curvatures (r = K + 1 if joint)."""
        preference = None
        if len(self.inputs) > _HESSIAN:
            preference = self.leverages
        d = len(self.centre)
        roots = self.centre.new_empty((len(curvature), d + 1, d + 1))
        for root, row in zip(roots, curvature, strict=True):
            root.copy_(self._root(row, preference))
        if not bool(roots.isfinite().all()):
            raise torch.linalg.LinAlgError(
                "expected Hessians that are positive definite, got one without a finite root: look "
                "for inputs or scores that are not finite"
            )
        return replace(self, coordinates=self.coordinates.turned(roots))

    @cached_property
    def leverages(self) -> Float[Tensor, " n"]:
        """Rough leverages of the data under one covariance for all problems, with mean 1."""
        scale = self.coordinates.scale
        vectors = self.coordinates.vectors
        generator = torch.Generator().manual_seed(0)
        shape = (len(self.centre), _GLANCES)
        directions = torch.randn(shape, dtype=self.centre.dtype, generator=generator)
        directions = directions.to(self.centre.device)
        if vectors is not None:
            directions = vectors @ directions
        directions *= scale[:, None]
        squares = self.inputs.squared_lengths(directions, self.centre, 1)[0]
        # None is so small that its weight would be large.
        return squares.div_(squares.mean().clamp_min(1e-300)).mul_(0.8).add_(0.2)

    def _root(self, curvature: Tensor, preference: Tensor | None) -> Tensor:
        """A triangular R with R R^T the Hessian's inverse, for scaled columns and the offset."""
        scale = self.coordinates.scale
        damping = self.coordinates.damping
        H = sampled_hessian(
            self.inputs,
            self.centre,
            self.weight * curvature,
            _HESSIAN,
            preference,
            scale=scale,
            offset=True,
            total=self.total,
        )
        diagonal = H.diagonal()
        # Columns that vary, but not in the sample, have a curvature that varies as the others'.
        usual = diagonal[-1] / self.coordinates.level * (1 - damping * scale**2)
        usual = torch.where(scale > 0, usual, 1.0)
        diagonal[:-1] += torch.where(diagonal[:-1] < 0.1 * usual, usual, 0.0)
        diagonal[:-1] += (damping * scale**2).clamp_min(_ROUNDING)
        diagonal[-1] += 1e-6  # no label may be left to tell the offset
        return inverse_root(H)

    def scores(
        self, beta: Float[Tensor, "k d"], offset: Float[Tensor, " k"] | None = None
    ) -> Float[Tensor, "k n"]:
        """The scores of weights and offsets, which are zero if none are given."""
        shift = -beta @ self.centre
        if offset is not None:
            shift = offset + shift
        return self.inputs.scores(beta).add_(shift[:, None])

    def pull_back(self, slopes: Float[Tensor, "k n"]) -> Float[Tensor, "k d"]:
        """The gradient with respect to beta from slopes with respect to the scores."""
        return self.inputs.pull_back(slopes) - slopes.sum(1, keepdim=True) * self.centre


def mean_curvature(slopes: Slopes) -> Tensor:
    """Minus the second derivative of a log probability, for labels with a mean slope of zero."""
    return (-slopes[0]).mul_(slopes[1]).clamp_min_(0)


def by_parts(function: Callable[..., Sequence[Tensor]], *rows: Tensor) -> tuple[Tensor, ...]:
    """A function of numbers, applied on a processor to blocks that fit its cache."""
    if rows[0].device.type != "cpu" or rows[0].numel() <= _PART:
        return tuple(function(*rows))
    flat = [row.reshape(-1) for row in rows]
    results: tuple[Tensor, ...] = ()
    for begin in range(0, rows[0].numel(), _PART):
        block = slice(begin, begin + _PART)
        values = function(*(row[block] for row in flat))
        if not results:
            results = tuple(torch.empty(rows[0].shape, dtype=value.dtype) for value in values)
        for result, value in zip(results, values, strict=True):
            result.view(-1)[block] = value
    return results
