"""What every fit of linkgistic regression comes to, and what it says of itself."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.warnings import warn_unconverged

FIXED_LINK = "the fit with the fixed link"  # in the list of what did not settle


@dataclass(frozen=True)
class LinkgisticFit:
    """K rows of weights and their links, with the history of the fit.

    ``held_out_loss`` is the log loss of held-out labels, in nats a case, and ``losses`` are those
    of each C that was to be tried; NaN where nothing was held out or tried.
    """

    joint: bool
    C: float
    beta: Float[Tensor, "K d"]
    centre: Float[Tensor, " d"]
    links: Sequence[Any]
    history: dict[str, Float[ndarray, "rounds problems"]]
    unsettled: tuple[str, ...]
    held_out_loss: float = math.nan
    losses: tuple[float, ...] = (math.nan,)


def side_by_side(columns: Sequence[Sequence[float]]) -> Float[ndarray, "rounds problems"]:
    """Columns of several lengths as a table that ends in NaN."""
    table = np.full((max(map(len, columns)), len(columns)), np.nan)
    for k, values in enumerate(columns):
        table[: len(values), k] = values
    return table


def warn_of_unsettled(unsettled: Sequence[str], max_iter: int) -> None:
    """Say what did not converge, if anything, and how to mend it."""
    if not unsettled:
        return
    rounds = ""
    if list(unsettled) != [FIXED_LINK]:  # in which rounds have no part
        rounds = f"raise max_iter={max_iter}, "
    warn_unconverged(
        f"not converged: {'; '.join(unsettled)}. To mend it: {rounds}scale the inputs, or lower C"
    )


def warn_if_separable(data: LinearScores, scores: Float[Tensor, "K n"], tol: float) -> None:
    """Say where no penalty keeps weights finite."""
    if data.ridge:
        return
    zeros = torch.where(data.labels == 0, scores, -math.inf).amax(dim=1)
    ones = torch.where(data.labels == 1, scores, math.inf).amin(dim=1)
    apart = (zeros < ones).tolist()
    if any(apart):
        warn_unconverged(
            f"{sum(apart)} of {len(apart)} problems can be separated without an error: their "
            f"likelihood is largest at infinite weights, and what tol={tol} stopped at is no "
            "maximum. A finite C has one"
        )
