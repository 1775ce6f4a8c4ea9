"""The log probabilities of labels, two classes or many, given curves of their scores.

With one row of values nu the label 1 has the log odds nu; with K rows they are logits:

    log p(y = 1) = log sigmoid(nu),   log p(y = k) = nu_k - log sum_j exp nu_j.
"""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

_PART = 2**14  # numbers in a block: a cache holds what is made of them

# Takes scores of shape (F, K, n) to the curves' values nu there, and to their slopes.
Curves = Callable[[Tensor], tuple[Tensor, Tensor]]


def label_log_probabilities(
    nu: Float[Tensor, "F K n"], labels: Float[Tensor, "K n"]
) -> tuple[Float[Tensor, "F K n"], Float[Tensor, "F K n"]]:
    """The log probabilities of the labels, in the rows of their classes, and slopes in nu."""
    if len(labels) == 1:
        signs = 2 * labels - 1
        turned = signs * nu
        return torch.nn.functional.logsigmoid(turned), signs * torch.sigmoid(-turned)
    log_p = nu - nu.logsumexp(1, keepdim=True)
    return log_p * labels, labels - log_p.exp()


def counted_log_probabilities(
    scores: Float[Tensor, "F K n"],
    curves: Curves,
    labels: Float[Tensor, "K n"],
    counted: Float[Tensor, "F n"],
) -> tuple[Float[Tensor, "F K n"], Float[Tensor, "F K n"]]:
    """The same under curves, block by block, for F fits in which each row counts so much.

    Slopes are in the scores.
    """
    values = torch.empty_like(scores)
    slopes = torch.empty_like(scores)
    for fits, rows in _blocks(scores):
        block = (fits, slice(None), rows)
        nu, steepness = curves(scores[block])
        log_p, residual = label_log_probabilities(nu, labels[:, rows])
        number = counted[fits, None, rows]
        values[block] = log_p.mul_(number)
        slopes[block] = residual.mul_(number).mul_(steepness)
    return values, slopes


def _blocks(scores: Float[Tensor, "F K n"]) -> Iterator[tuple[slice, slice]]:
    """Fits and rows of blocks of about as many numbers as a cache holds; on a device, all."""
    if scores.device.type != "cpu":
        yield slice(None), slice(None)
        return
    n_fits, K, n = scores.shape
    width = min(n, max(1, _PART // K))
    height = max(1, _PART // (K * n))
    for fit in range(0, n_fits, height):
        for row in range(0, n, width):
            yield slice(fit, fit + height), slice(row, row + width)
