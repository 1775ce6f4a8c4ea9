"""Which penalties are tried, from the strongest on, and which of them is taken.

They are told apart by regressions with the fixed link: by the log loss of held-out labels, row by
row. The loss under a curve of the scores would not do. The curve makes up for scores that are too
large, so that too weak a penalty looks harmless, and does its harm in later rounds. And where there
is nothing to learn, a flat curve makes all penalties alike.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from bayesloss.arrays import Array, Numbers
from bayesloss.warnings import warn_caller

PATIENCE = 2  # how many weaker penalties in a row are tried that are no better


def strengths(C: Numbers | Literal["auto"]) -> Array:
    """The values of C to choose from, ascending, or the one that is given."""
    values = np.geomspace(1e-4, 1e4, 10) if isinstance(C, str) else np.sort(np.atleast_1d(C))
    values = values.astype(np.float64)
    if values.ndim != 1 or len(values) == 0 or not (values > 0).all():
        raise ValueError(f"expected positive values of C, got C={C!r}")
    return values


def strongest_of_the_best(
    losses: Float[Tensor, "Cs n"], weight: Float[Tensor, " n"], n_cases: float
) -> int:
    """The first whose loss is within one standard error of the least, row by row compared.

    The rule of Breiman et al. (1984, section 3.4.3), with the error of the difference: what makes a
    row hard at every C tells none from another.
    """
    total = weight.sum()
    best = int((losses @ weight).argmin())
    difference = losses - losses[best]
    mean = difference @ weight / total
    variance = (difference - mean[:, None]).square() @ weight / total
    near = mean <= (variance / n_cases).sqrt()
    return int(near.nonzero()[0])


def warn_at_the_end(Cs: Array, losses: Sequence[float]) -> None:
    """Warn if the least loss of several penalties is that of the first or the last of them."""
    if len(Cs) == 1:
        return
    best = Cs[np.nanargmin(losses)]
    if Cs[0] < best < Cs[-1]:
        return
    which = "strongest" if best == Cs[0] else "weakest"
    warn_caller(
        f"the best penalty of those tried, C={best:.3g}, is the {which}: there may be better "
        "ones beyond; give others as a list, C=[...]"
    )
