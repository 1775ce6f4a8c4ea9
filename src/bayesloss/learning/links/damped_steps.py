"""What becomes of weights after an M-step, and which round counts in the end.

The paper's EM goes all the way to where an M-step ends. With held-out scores, where links see one
set of scores and weights another, that neither keeps the scores within the period of the kernel nor
always comes to rest: there steps keep the size of the scores, and are damped.
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
    """Weights, a row a problem, that go to where each M-step ends, as in the paper.

    ``strength`` says how many times their penalty counts, ``fit_strength`` how many times where the
    last fits ended, ``fraction`` which part of the way there they went, and ``moved`` how far, as a
    part of the scores' size.
    """

    def __init__(self, beta: Float[Tensor, "k d"], scores: Float[Tensor, "k n"]) -> None:
        self.beta, self.scores = beta, scores
        self.strength = torch.ones_like(beta[:, 0])
        self.fit_strength, self.fraction = self.strength.clone(), self.strength.clone()
        self.moved = torch.full_like(self.strength, math.inf)

    def take(self, active: list[int], fit: WeightFit, number: int) -> Float[Tensor, " a"]:
        """Go from a round by its number towards a fit; what its weights are multiplied by."""
        self.beta[active], self.scores[active] = fit.beta, fit.scores
        return torch.ones_like(fit.objective)


class DampedSteps(FullSteps):
    """Weights whose scores keep their size, and that go a shorter part of the way where it turns.

    A link that is fitted to held-out scores is flatter than the training scores ask for, and
    weights would grow against it. So they are divided by what their scores grew by, and their
    penalty counts that much squared the more: the same objective in other units of the score. And
    where the way ahead turns, and is hardly shorter, a problem goes only 2/3 of it from then on,
    then 1/2, 2/5, ...: rounds may go in circles otherwise. The first few may go anywhere.
    """

    def __init__(
        self,
        beta: Float[Tensor, "k d"],
        scores: Float[Tensor, "k n"],
        weight: Float[Tensor, " n"],
    ) -> None:
        super().__init__(beta, scores)
        self._weight, self._ahead = weight, scores[:, :0]  # no way as yet

    def take(self, active: list[int], fit: WeightFit, number: int) -> Float[Tensor, " a"]:
        """Go from a round by its number towards a fit; what its weights are multiplied by."""
        scores = _some(self.scores, active)
        size = self._size(scores)
        factor = size / self._size(fit.scores)
        factor = torch.where((factor > 0) & factor.isfinite(), factor, 1.0)
        ahead = fit.scores.mul_(factor[:, None]).sub_(scores)
        way = self._size(ahead)
        if number > _ANYWHERE:
            before = _some(self._ahead, active)
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
            if not self._ahead.numel():
                self._ahead = torch.zeros_like(self.scores)
            self._ahead[active] = ahead
        return factor

    def _size(self, scores: Tensor) -> Tensor:
        return (scores.square() @ self._weight).sqrt()


@dataclass
class BestRound(Generic[T]):
    """The round with the highest evidence, and how many in a row since were worse.

    With held-out scores no objective rises in every round, and the fixed point that rounds lead to
    can be worse than where they began; the held-out evidence knows. Worse is a round that does not
    come up to the best before by ``margin`` nats.
    """

    margin: float
    evidence: float = -math.inf
    kept: T | None = None
    n_worse: int = 0

    def look(self, evidence: float, state: Callable[[], T]) -> None:
        """Keep the state of a round whose evidence is higher than all before."""
        self.n_worse = self.n_worse + 1 if evidence < self.evidence + self.margin else 0
        if evidence > self.evidence:
            self.evidence, self.kept = evidence, state()


def _some(rows: Tensor, chosen: list[int]) -> Tensor:
    """Some of the rows: themselves where all are chosen, else a copy."""
    return rows if len(chosen) == len(rows) else rows[chosen]
