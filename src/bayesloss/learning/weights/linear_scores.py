r"""Scores that are linear in the inputs, and coordinates in which all weights matter alike.

x_nk = beta_k . (z_n - centre) + offset_k is the score of datum n for problem k: one-vs-rest
problems share their inputs, so that all their scores are one matrix product. Of what is maximised,

    mean_n log p(y_nk given x_nk) - (beta_k . beta_k) / (2 C n),

the curvature is close to a multiple of the inputs' covariance, plus the penalty's. In coordinates
in which that matrix, estimated from a sample, is the identity, a few steps suffice where the plain
method takes many, whatever the units of the columns. Where data are many, a sample of them says,
class by class, more: see :meth:`LinearScores.adapted`.

Problems may also be one, of which the log probability depends on all its scores: a softmax. Its
Hessian is far from one block a class in one respect: what all weights of a class have in common
changes little or nothing, whatever the blocks say. So this part has coordinates of its own.
"""

import copy
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from bayesloss.learning.data.inputs import DenseInputs, Inputs, as_inputs

__all__ = [
    "LinearScores",
    "Slopes",
    "by_parts",
    "factor_of",
    "gram",
    "mean_curvature",
    "sampled",
]

_SAMPLE = 2048  # data from which the covariance is estimated
_HESSIAN = 4096  # data from which a Hessian is
_GLANCES = 16  # random directions that tell which data have large leverages
_WIDE = 2048  # columns beyond which their scales have to do: the covariance would cost d^3
_SPARE = 2**23  # numbers that Hessians may take whatever the size of the inputs: 64 megabytes
_PART = 2**14  # numbers that a function is asked of at a time: what it makes on its way is small
_HELD_BACK = 0.1  # without a penalty, the part of a column's mean curvature that is added to all

# Of the log probabilities of the labels 0 and 1: a tensor of shape (2, ...), or its two rows.
Slopes: TypeAlias = Tensor | tuple[Tensor, ...]


class LinearScores:
    """The inputs of K problems, and coordinates in which all weights matter alike.

    Parameters
    ----------
    Z : Tensor of shape (n, d), or Inputs
    labels : Tensor of integers of shape (K, n)
        0 or 1.
    weight : Tensor of shape (n,)
        How many times each datum counts; positive.
    C : float
        Inverse strength of the L2 penalty, as in scikit-learn; infinite for none.
    """

    def __init__(self, Z: Tensor | Inputs, labels: Tensor, weight: Tensor, C: float) -> None:
        self.inputs, self.labels, self.weight = as_inputs(Z), labels, weight
        self.total = float(weight.sum())
        self.centre = self.inputs.sum(weight) / self.total
        self.ridge = 1 / (C * self.total)
        ones = (labels.to(weight.dtype) @ weight) / self.total
        # sigma'(x) is p (1 - p) before anything is learned, and falls as the labels are told apart.
        self.level = (ones * (1 - ones) / 4).clamp_min(1e-6)
        self.scale, self.vectors = self._coordinates(float(self.level.mean()))
        self.stretch = (self.level.mean() / self.level).sqrt()[:, None]
        # What a unit of the last coordinate changes: the offsets, and the weights with them.
        self.shift, self.lean = self.level.rsqrt()[:, None], torch.zeros_like(self.centre)
        self.together = 1  # so many rows of weights in turn make up one problem
        self._leverages: Tensor | None = None  # in these coordinates

    def _coordinates(self, level: float) -> tuple[Tensor, Tensor | None]:
        """Scales of the columns, (d,), and what rotates and stretches scaled columns, (d, d)."""
        variance = self.inputs.squares_about(self.centre, self.weight) / self.total
        constant = variance.sqrt() <= 1e-12 * self.centre.abs()
        # Without a penalty the optimum may lie at infinity. A search that is stopped on its way
        # there had better not run ahead in directions of which the data say little.
        self.damping = damping = self.ridge or _HELD_BACK * level * float(variance.mean())
        scale = torch.where(constant, 0.0, (level * variance + damping).rsqrt())
        if self.wide:
            return scale, None
        n = len(self.inputs)
        chosen = torch.linspace(0, n - 1, min(n, _SAMPLE)).long()
        share = self.weight[chosen] / self.weight[chosen].sum()
        sample = (self.inputs.dense(chosen) - self.centre) * (level * share).sqrt()[:, None] * scale
        curvature = gram(sample) + torch.diag(damping * scale**2)
        # Columns that vary, but not in the sample: on their own scale, which is 1.
        curvature.diagonal()[curvature.diagonal() < 0.1] += 1
        values, vectors = torch.linalg.eigh(curvature)
        return scale, vectors * values.clamp_min(1e-12 * float(values[-1])).rsqrt()

    @property
    def Z(self) -> Tensor:
        """The inputs, of shape (n, d), where they are a tensor."""
        if not isinstance(self.inputs, DenseInputs):
            raise TypeError(f"expected dense inputs, got {type(self.inputs).__name__}")
        return self.inputs.Z

    @property
    def wide(self) -> bool:
        """Whether a matrix with a row for each column would cost too much."""
        return len(self.centre) > _WIDE

    @property
    def adaptable(self) -> bool:
        """Whether a Hessian for each problem is affordable, in time and in memory."""
        d = len(self.centre)
        affordable = max(_SPARE, self.inputs.stored // 4)
        return not self.wide and len(self.labels) * d**2 <= affordable

    def of(self, problems: list[int]) -> "LinearScores":
        """The same inputs for some of the problems."""
        if problems == list(range(len(self.labels))):
            return self
        some = copy.copy(self)
        for name in ("labels", "level", "stretch", "shift"):
            setattr(some, name, getattr(self, name)[problems])
        if self.vectors is not None and self.lean.ndim == 2:  # each has coordinates of its own
            some.lean, some.vectors = self.lean[problems], self.vectors[problems]
        return some

    def joined(self) -> "LinearScores":
        """The problems as one, whose objective is the sum of theirs."""
        one = copy.copy(self)
        one.together = len(self.labels)
        return one

    def centred_on(self, rows: Tensor) -> "LinearScores":
        """The same problems in coordinates made for some of the rows, a mask of shape (n,)."""
        C = math.inf if self.ridge == 0 else 1 / (self.ridge * self.total)
        some = LinearScores(self.inputs.rows(rows), self.labels[:, rows], self.weight[rows], C)
        other = copy.copy(self)
        other.centre, other.scale, other.vectors = some.centre, some.scale, some.vectors
        other._leverages = None
        return other

    def every(self, step: int) -> "LinearScores":
        """The same problems, seen by each step-th datum: the penalty on a mean is what it was."""
        if step == 1:
            return self
        few = copy.copy(self)
        every = slice(None, None, step)
        few.inputs, few.weight = self.inputs.rows(every), self.weight[every].contiguous()
        few._leverages = None
        few.labels = self.labels[:, every].contiguous()
        few.total = float(few.weight.sum())
        return few

    def adapted(self, curvature: Tensor) -> "LinearScores":
        """The same problems, in coordinates in which the Hessian of each is nearly the identity.

        The Hessian, offset included, is estimated from data that are drawn with probabilities
        proportional to the curvatures of their log probabilities.

        Parameters
        ----------
        curvature : Tensor of shape (K, n), or (K + 1, n) where problems are one
            Minus second derivatives of the log probabilities in the scores, not negative; the last
            of K + 1 along the direction in which all scores of a datum change by 1 / sqrt(K).

        Raises
        ------
        torch.linalg.LinAlgError
            If a Hessian is not positive definite.
        """
        preference = self.leverages() if len(self.inputs) > _HESSIAN else None
        other, d = copy.copy(self), len(self.centre)
        roots = self.centre.new_empty((len(curvature), d + 1, d + 1))
        for root, row in zip(roots, curvature, strict=True):
            root.copy_(self._factor(row, preference))
        if not bool(roots.isfinite().all()):
            raise torch.linalg.LinAlgError(
                "expected Hessians that are positive definite, got one without a finite root: look "
                "for inputs or scores that are not finite"
            )
        other.vectors, other._leverages = roots[:, :d, :d], None
        other.stretch = torch.ones_like(roots[:, :1, 0])
        other.shift, other.lean = roots[:, d, d:], self.scale * roots[:, :d, d]
        return other

    def leverages(self) -> Tensor:
        """About the data's leverages under one covariance for all problems, with mean 1: (n,)."""
        if self._leverages is not None:
            return self._leverages
        generator = torch.Generator().manual_seed(0)
        shape = (len(self.centre), _GLANCES)
        turned = torch.randn(shape, dtype=self.centre.dtype, generator=generator)
        turned = turned.to(self.centre.device)
        if self.vectors is not None:
            turned = self.vectors @ turned
        turned *= self.scale[:, None]
        squares = self.inputs.squared_lengths(turned, self.centre, 1)[0]
        # None is so small that its weight would be large.
        squares = squares.div_(squares.mean().clamp_min(1e-300)).mul_(0.8).add_(0.2)
        self._leverages = squares
        return squares

    def _factor(self, curvature: Tensor, preference: Tensor | None) -> Tensor:
        """A triangular R with R R^T the Hessian's inverse, for scaled columns and the offset."""
        rows, mass = sampled(self.weight * curvature, _HESSIAN, preference)
        root = (mass / self.total).sqrt()[:, None]
        inputs = (self.inputs.dense(rows) - self.centre).mul_(self.scale).mul_(root)
        inputs = torch.cat([inputs, root], dim=1)
        H = gram(inputs)
        diagonal = H.diagonal()
        # Columns that vary, but not in the sample, have a curvature that varies as the others'.
        usual = diagonal[-1] / self.level.mean() * (1 - self.damping * self.scale**2)
        usual = torch.where(self.scale > 0, usual, 1.0)
        diagonal[:-1] += torch.where(diagonal[:-1] < 0.1 * usual, usual, 0.0)
        diagonal[:-1] += self.damping * self.scale**2
        diagonal[-1] += 1e-6  # no label may be left to tell the offset
        factor = factor_of(H)
        identity = torch.eye(len(H), dtype=H.dtype, device=H.device)
        return torch.linalg.solve_triangular(factor, identity, upper=False).T

    def scores(self, beta: Tensor, offset: Tensor) -> Tensor:
        """The scores, of shape (K, n), for weights of shape (K, d) and offsets of shape (K,)."""
        return self.inputs.scores(beta).add_((offset - beta @ self.centre)[:, None])

    def pull_back(self, slopes: Tensor) -> Tensor:
        """The gradient with respect to beta, (K, d), from slopes with respect to the scores."""
        return self.inputs.pull_back(slopes) - slopes.sum(1, keepdim=True) * self.centre

    @property
    def blocks(self) -> int:
        """How many rows of coordinates make up a problem."""
        shared = self.together > 1 and self.lean.ndim == 2
        return self.together + 1 if shared else self.together

    def weights(self, coordinates: Tensor) -> Tensor:
        """Weights and offsets from coordinates, the offsets last.

        Parameters
        ----------
        coordinates : Tensor of shape (any * blocks, d + 1)

        Returns
        -------
        Tensor of shape (any * together, d + 1)
        """
        rows = coordinates.unflatten(0, (-1, len(self.shift)))
        beta, last = rows[..., :-1], rows[..., -1:]
        beta = self.stretch * self.scale * _turned(self.vectors, beta) + self.lean * last
        rows = torch.cat([beta, self.shift * last], dim=2).flatten(0, 1)
        if self.blocks == self.together:
            return rows
        rows = rows.unflatten(0, (-1, self.blocks))
        own, common = rows[:, :-1], rows[:, -1:] / math.sqrt(self.together)
        return (own - own.mean(1, keepdim=True) + common).flatten(0, 1)

    def slopes(self, gradient: Tensor) -> Tensor:
        """Slopes along the coordinates from a gradient by weights and offsets: the adjoint."""
        if self.blocks > self.together:
            rows = gradient.unflatten(0, (-1, self.together))
            mean = rows.mean(1, keepdim=True)
            common = mean * math.sqrt(self.together)
            gradient = torch.cat([rows - mean, common], dim=1).flatten(0, 1)
        rows = gradient.unflatten(0, (-1, len(self.shift)))
        beta, last = rows[..., :-1], rows[..., -1:]
        vectors = None if self.vectors is None else self.vectors.mT
        along = _turned(vectors, self.stretch * self.scale * beta)
        last = self.shift * last + (self.lean * beta).sum(2, keepdim=True)
        return torch.cat([along, last], dim=2).flatten(0, 1)


def _turned(vectors: Tensor | None, rows: Tensor) -> Tensor:
    """One matrix, (d, d), or one for each row in turn, (K, d, d), times rows (any, K, d)."""
    if vectors is None:
        return rows
    if vectors.ndim == 2:
        return rows @ vectors.T
    return (vectors @ rows.permute(1, 2, 0)).permute(2, 0, 1)


def mean_curvature(slopes: Slopes) -> Tensor:
    """Minus the second derivative of a log probability in its score, on average over the label.

    The label's probabilities are those that make the mean slope zero: it is -s_0 s_1.

    Parameters
    ----------
    slopes : Tensor of shape (2, ...), or two of shape (...)
        Of the log probabilities of the labels 0 and 1.
    """
    return (-slopes[0]).mul_(slopes[1]).clamp_min_(0)


def by_parts(function: Callable[..., Sequence[Tensor]], *rows: Tensor) -> tuple[Tensor, ...]:
    """What a function of numbers says: tensors like the first of those that it is given.

    On a processor it is asked of few at a time, which a cache holds, and no more memory is taken
    than for what it says.
    """
    if rows[0].device.type != "cpu" or rows[0].numel() <= _PART:
        return tuple(function(*rows))
    parts = zip(*(each.reshape(-1).split(_PART) for each in rows), strict=True)
    found: tuple[Tensor, ...] = ()
    for at, part in enumerate(parts):
        said = function(*part)
        found = found or tuple(torch.empty(rows[0].shape, dtype=each.dtype) for each in said)
        for whole, each in zip(found, said, strict=True):
            whole.view(-1)[at * _PART :][: len(each)] = each
    return found


def gram(inputs: Tensor) -> Tensor:
    """inputs^T inputs; on a processor NumPy computes one half of it."""
    if inputs.device.type != "cpu":
        return inputs.T @ inputs
    array = inputs.numpy()
    return torch.from_numpy(array.T @ array)


def factor_of(H: Tensor) -> Tensor:
    """The Cholesky factor of H, or NaN where there is none: the host need not wait to know."""
    factor, failed = torch.linalg.cholesky_ex(H)
    return torch.where(failed == 0, factor, math.nan)


def sampled(mass: Tensor, size: int, preference: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Draw data with probabilities proportional to their mass, by equal steps through its sum.

    Nothing is random: the order of the data is. Where there are no more than `size`, all are taken.

    Parameters
    ----------
    mass : Tensor of shape (n,)
        Not negative.
    size : int
    preference : Tensor of shape (n,), optional
        Positive; probabilities are proportional to mass times preference.

    Returns
    -------
    rows : Tensor of int64 of shape (m,)
    mass : Tensor of shape (m,)
        What each row stands for: sums weighted by it estimate those over all data.
    """
    if len(mass) <= size:
        return torch.arange(len(mass), device=mass.device), mass
    upto = mass.cumsum(0) if preference is None else (mass * preference).cumsum_(0)
    steps = torch.arange(0.5, size, dtype=mass.dtype, device=mass.device) / size
    rows = torch.searchsorted(upto, steps * upto[-1]).clamp_max(len(mass) - 1)
    mass = mass[rows]
    drawn = mass if preference is None else mass * preference[rows]
    return rows, torch.where(drawn > 0, mass * upto[-1] / (size * drawn), 0.0)
