"""How far weights go after an M-step, and which round is kept.

In the paper's EM weights go where the M-step ends. With held-out scores, which weights do not see,
scores may then outgrow the kernel's period, or rounds go in circles: so there steps are damped.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.weights.weight_search import WeightFit

_ANYWHERE = 3  # rounds in which weights go all the way
_TURN = 0.5  # cosine of the angle below which the way to the next fit turns
_SHORTER = 0.7  # part of the way before up to which it is shorter
T = TypeVar("T")


class FullSteps:
    """Weights, a row a problem, that go all the way to where each M-step ends, as in the paper."""

    def __init__(
        self, beta: Float[Tensor, "k d"], scores: Float[Tensor, "k n"], weight: Float[Tensor, " n"]
    ) -> None:
        self.beta, self.scores, self._weight = beta, scores, weight
        self.strength = torch.ones_like(beta[:, 0])  # factors of the penalties
        # The same at the last fits, and the fractions of the way that steps go.
        self.fit_strength, self.fraction = self.strength.clone(), self.strength.clone()
        self.moved = torch.full_like(self.strength, math.inf)  # relative to the scores' size

    def take(self, active: list[int], fit: WeightFit, number: int) -> Float[Tensor, " a"]:
        """Go towards the fit of a round; return the factor of its weights."""
        self.beta[active], self.scores[active] = fit.beta, fit.scores
        return torch.ones_like(fit.objective)


class DampedSteps(FullSteps):
    """Weights whose scores keep their size, and that slow down where their path turns.

    They are divided by their scores' growth, and the penalty multiplied by its square: the same
    objective. Steps that turn and are hardly shorter go only 2/3 of the way, then 1/2, 2/5, ...
    """

    _ahead: Tensor | None = None  # no way as yet

    def take(self, active: list[int], fit: WeightFit, number: int) -> Float[Tensor, " a"]:
        scores = some_rows(self.scores, active)
        size = self._size(scores)
        factor = size / self._size(fit.scores)
        factor = torch.where((factor > 0) & factor.isfinite(), factor, 1.0)
        ahead = fit.scores.mul_(factor[:, None]).sub_(scores)
        way = self._size(ahead)
        if number > _ANYWHERE and self._ahead is not None:
            before = some_rows(self._ahead, active)
            way_before = self._size(before)
            turns = (ahead * before) @ self._weight < _TURN * way * way_before
            step = self.fraction[active]
            slower = step / (1 + step / 2)
            self.fraction[active] = torch.where(turns & (way > _SHORTER * way_before), slower, step)
        step = self.fraction[active]
        self.moved[active] = torch.where(size > 0, step * way / size, 0.0)
        self.fit_strength[active] = self.strength[active] / factor**2
        self.strength[active] *= factor ** (-2 * step)
        self.beta[active] += step[:, None] * (factor[:, None] * fit.beta - self.beta[active])
        for k, part, row in zip(active, step, ahead, strict=True):
            self.scores[k].addcmul_(part, row)
        if number >= _ANYWHERE:  # from then on the next way is compared with it
            if self._ahead is None:
                self._ahead = torch.zeros_like(self.scores)
            self._ahead[active] = ahead
        return factor

    def _size(self, scores: Tensor) -> Tensor:
        return (scores.square() @ self._weight).sqrt()


@dataclass
class BestRound(Generic[T]):
    """The round with the highest evidence; others are worse if below it plus ``margin`` nats."""

    margin: float
    evidence: float = -math.inf
    kept: T | None = None
    n_worse: int = 0

    def look(self, evidence: float, state: Callable[[], T]) -> None:
        """Keep the state of a round whose evidence is higher than all before."""
        self.n_worse = self.n_worse + 1 if evidence < self.evidence + self.margin else 0
        if evidence > self.evidence:
            self.evidence, self.kept = evidence, state()


def some_rows(rows: Tensor, chosen: list[int]) -> Tensor:
    """Some of the rows: themselves if all are chosen, else a copy."""
    return rows if len(chosen) == len(rows) else rows[chosen]
