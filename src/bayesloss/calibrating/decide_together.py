r"""Decisions that are judged together: which of m cases to choose, where the utility is of the set.

LHG section 6 leave open losses that do not split into one for each decision. Here the utility
:math:`u(t, k, P)` of choosing k cases is a function of how many of them are positive, t, and how
many are in all, P: a budget, an F-measure, costs that saturate. What is to be known about the
labels are joint draws from their posterior predictive distribution, with weights :math:`w_s`.

Where u is linear in t, :math:`u = a(k, P) + b(k, P)\, t`, the best k cases are those of the largest

.. math:: \sum_s w_s\, b(k, P_s)\, y_{si} ,

for each k a sort (Ye et al. 2012 and Waegeman et al. 2014 for the F-measure). Where u is convex in
t, the chord over the possible t lies above it, so that the same sorts give the sets to try and a
bound on what any set can reach; changes of one or two cases at a time follow.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from bayesloss.threads import one_thread, threads_for

Utility = Callable[[Any, Any, Any], Any]

_ROUNDING = 1e-9  # of the utility's size: improvements below are none


class JointDecision(NamedTuple):
    """Which cases are chosen, the expected utility of that, and a bound on that of any choice."""

    chosen: Bool[np.ndarray, " m"]
    utility: float
    bound: float


def f_measure(hits: Any, chosen: Any, positives: Any) -> Any:
    """Twice the hits over chosen plus positives; 1 where nothing is chosen and nothing positive."""
    return np.where(chosen + positives > 0, 2 * hits / np.maximum(chosen + positives, 1), 1.0)


@one_thread()
def decide_together(
    draws: ArrayLike,
    utility: Utility | None = None,
    *,
    k: int | None = None,
    sample_weight: ArrayLike | None = None,
) -> JointDecision:
    """Choose among m cases so that the expected utility of the choice is largest.

    Of the :class:`JointDecision`, the choice is the best one where the bound is reached, as it is
    wherever the utility is linear in the hits. Expectations are over the draws given: that of the
    choice is too high if they are few.

    Parameters
    ----------
    draws : array-like of shape (n_draws, m)
        Labels 0 and 1 of all cases, drawn *jointly* from their posterior predictive distribution,
        such as by ``GPClassifier.sample_labels``. Columns drawn one by one would lose how errors
        go together.
    utility : callable, optional
        ``utility(hits, chosen, positives)`` of integer arrays that broadcast: of the ``chosen``
        cases ``hits`` are positive, of all cases ``positives`` are. Linear or convex in ``hits``.
        With a budget of k cases, for instance, ``lambda hits, chosen, positives: hits``; the
        F-measure if None.
    k : int, optional
        How many cases are to be chosen; any number if None.
    sample_weight : array-like of shape (n_draws,), optional
        Of the draws; equal if None.

    Raises
    ------
    ValueError
        If draws are not 0 and 1, weights are negative or all zero, k is not in 0, ..., m, or the
        utility is not finite, or neither linear nor convex.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import decide_together
    >>> draws = [[1, 1, 0], [1, 1, 0], [1, 1, 0], [0, 0, 1]]  # the first two go together
    >>> decide_together(draws).chosen
    array([ True,  True, False])
    >>> saturating = lambda hits, chosen, positives: -np.minimum(chosen + positives - 2 * hits, 2)
    >>> round(decide_together(draws, saturating, k=1).utility, 3)
    -1.25
    """
    labels, weight = _read(draws, sample_weight)
    utility = utility or f_measure
    m = labels.shape[1]
    if k is not None and not 0 <= k <= m:
        raise ValueError(f"expected k between 0 and the number of cases, {m}, got {k}")
    positives = labels.sum(axis=1).astype(np.int64)
    counts, group = np.unique(positives, return_inverse=True)
    mass = np.bincount(group, weight)
    by_count = csr_array((weight, (group, np.arange(len(group))))) @ labels  # w y, summed by P
    sizes = np.arange(m + 1) if k is None else np.array([k])
    level, slope = _chords(utility, sizes[:, None], counts, m)
    with threads_for(len(sizes), len(counts), m):
        gains = slope @ by_count  # of each case among so many chosen
    best_first = np.argsort(-gains, axis=1, kind="stable")
    inside = np.arange(m) < sizes[:, None]
    bounds = level @ mass + (np.take_along_axis(gains, best_first, 1) * inside).sum(axis=1)

    room = _ROUNDING * max(1.0, float(np.abs(bounds).max()))
    found, reached = np.zeros(m, dtype=bool), -np.inf
    for at in np.argsort(-bounds, kind="stable"):
        if bounds[at] <= reached + room:
            break
        some = np.isin(np.arange(m), best_first[at, : sizes[at]])
        here = float(weight @ utility(labels @ some, sizes[at], positives))
        if here > reached:
            reached, found = here, some
    bound = float(bounds.max())
    if reached < bound - room:
        reached = _improve(found, (labels, weight, positives), utility, k is None, reached, room)
    return JointDecision(found, reached, max(bound, reached))


def _read(draws: ArrayLike, sample_weight: ArrayLike | None) -> tuple[NDArray, NDArray]:
    labels = np.asarray(draws)
    if labels.ndim != 2 or labels.size == 0 or not np.isin(labels, (0, 1)).all():
        raise ValueError(
            "expected draws of labels 0 and 1, of shape (n_draws, n_cases), got shape "
            f"{labels.shape} and values such as {labels.ravel()[:3].tolist()}"
        )
    weight = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, float)
    if weight.shape != labels.shape[:1] or not (weight >= 0).all() or not 0 < weight.sum() < np.inf:
        raise ValueError("expected a weight a draw, none negative and not all zero")
    return labels.astype(float), weight / weight.sum()


def _chords(
    utility: Utility, chosen: NDArray, positives: NDArray, m: int
) -> tuple[Float[np.ndarray, "k p"], Float[np.ndarray, "k p"]]:
    """Level and slope in the hits of the line through the utility's values at both ends."""
    least, most = np.maximum(0, chosen + positives - m), np.minimum(chosen, positives)
    low, high = (np.asarray(utility(t, chosen, positives), dtype=float) for t in (least, most))
    middle = np.asarray(utility((least + most) // 2, chosen, positives), dtype=float)
    slope = (high - low) / np.maximum(most - least, 1)
    level = low - slope * least
    above = middle - (level + slope * ((least + most) // 2))
    if not np.isfinite(above).all():
        raise ValueError("expected a utility that is finite for all hits")
    if above.max() > _ROUNDING * max(1.0, float(np.abs(middle).max())):
        raise ValueError("expected a utility that is linear or convex in the hits")
    return np.broadcast_to(level, above.shape), np.broadcast_to(slope, above.shape)


def _improve(
    found: NDArray, data: Any, utility: Utility, free: bool, reached: float, room: float
) -> float:
    """Put cases in or out, one or a pair at a time, while that helps; changes ``found``."""
    labels, weight, positives = data

    def flipped(now: NDArray) -> NDArray:
        """The expected utility with each case in turn put in or out."""
        hits, size, out = labels @ now, int(now.sum()), np.full(len(now), -np.inf)
        for sign, those in ((1, ~now), (-1, now)):
            if those.any():
                same, other = (utility(hits + t, size + sign, positives) for t in (0, sign))
                # A case that is not positive changes the number chosen alone.
                same = np.where(hits <= size + sign, same, other)
                out[those] = (weight * same).sum() + (weight * (other - same)) @ labels[:, those]
        return out

    while True:
        once = flipped(found)
        tries = [(float(once.max()), [int(once.argmax())])] if free else []
        for those in (found, ~found):
            if those.any():
                first = int(np.where(those, once, -np.inf).argmax())
                now = found.copy()
                now[first] ^= True
                twice = np.where(those, -np.inf, flipped(now))
                tries.append((float(twice.max()), [first, int(twice.argmax())]))
        best, moved = max(tries, default=(-np.inf, []))
        if best <= reached + room:
            return reached
        found[moved] ^= True
        reached = best
