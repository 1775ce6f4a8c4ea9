"""Multinomial logistic regression: the fixed link of many classes in one model."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.weights.label_likelihood import counted_log_probabilities
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import LogProbability, WeightFit, adapted_fit

_STEPS = 1000  # L-BFGS iterations


def fit_softmax(
    data: LinearScores, tol: float, start: WeightFit | None = None
) -> tuple[WeightFit, LinearScores]:
    """A regression, and the data in the coordinates that suited it best, as one problem.

    What the weights of all classes have in common changes no probability. It is taken away from a
    start that is given, so that its slope is zero throughout.
    """
    if start is not None:
        start = replace(
            start,
            beta=start.beta - start.beta.mean(0),
            offset=start.offset - start.offset.mean(),
        )
    return adapted_fit(
        data.joined(), _likelihood, _curvatures, tol=tol, max_iter=_STEPS, start=start
    )


def _likelihood(data: LinearScores) -> LogProbability:
    labels = data.labels.to(data.weight.dtype)
    every = torch.ones_like(data.weight)[None]

    def log_probability(scores: Tensor) -> tuple[Tensor, Tensor]:
        values, slopes = counted_log_probabilities(scores[None], _straight, labels, every)
        return values[0], slopes[0]

    return log_probability


def _straight(scores: Tensor) -> tuple[Tensor, float]:
    return scores, 1.0


def _curvatures(scores: Float[Tensor, "K n"]) -> Float[Tensor, "r n"]:
    """Curvatures of -log p in each score, and one to expect of a common shift of all.

    Under straight lines that has none. Under curves it has some, and it counts as their mean here:
    a small one would let the first step along it go anywhere.
    """
    p = torch.softmax(scores, dim=0)
    own = p * (1 - p)
    return torch.cat([own, own.mean(0, keepdim=True)])
