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
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from bayesloss.arrays import as_array
from bayesloss.threads import one_thread, threads_for

Utility = Callable[[Any, Any, Any], Any]

_ROUNDING = 1e-9  # part of the utility's size: smaller differences may be rounding errors


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
    pos_label: Any = None,
) -> JointDecision:
    """Choose among m cases so that the expected utility of the choice is largest.

    Of the :class:`JointDecision`, the choice is the best one where the bound is reached, as it is
    wherever the utility is linear in the hits. Expectations are over the draws given: that of the
    choice is too high if they are few.

    Parameters
    ----------
    draws : array-like of shape (n_draws, m)
        Labels of all cases, of two kinds, drawn *jointly* from their posterior predictive
        distribution, such as by ``GPClassifier.sample_labels``. Columns drawn one by one would lose
        how errors go together.
    utility : callable, optional
        ``utility(hits, chosen, positives)`` of integer arrays that broadcast: of the ``chosen``
        cases ``hits`` are positive, of all cases ``positives`` are. Linear or convex in ``hits``.
        With a budget of k cases, for instance, ``lambda hits, chosen, positives: hits``; the
        F-measure if None.
    k : int, optional
        How many cases are to be chosen; any number if None.
    sample_weight : array-like of shape (n_draws,), optional
        Of the draws; equal if None.
    pos_label : int, float, bool or str, default=None
        The positive label; None for 1, with labels {0, 1} or {-1, 1}.

    Raises
    ------
    ValueError
        If draws are not of the positive label and another one, weights are negative or all zero, k
        is not in 0, ..., m, or the utility is not finite, or neither linear nor convex.

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
    read = _read(draws, sample_weight, pos_label)
    utility = utility or f_measure
    m = read.labels.shape[1]
    if k is not None and not 0 <= k <= m:
        raise ValueError(f"expected k between 0 and the number of cases, {m}, got {k}")
    sizes = np.arange(m + 1) if k is None else np.array([k])
    ranked = _rank(read, utility, sizes)
    bound = float(ranked.bounds.max())
    rounding = _ROUNDING * max(1.0, float(np.abs(ranked.bounds).max()))

    chosen = np.zeros(m, dtype=bool)
    reached = -np.inf
    for i in np.argsort(-ranked.bounds, kind="stable"):
        if ranked.bounds[i] <= reached + rounding:
            break
        candidate = np.isin(np.arange(m), ranked.best_first[i, : sizes[i]])
        hits = read.hits(candidate)
        mean_utility = float(read.weight @ utility(hits, sizes[i], read.positives))
        if mean_utility > reached:
            reached = mean_utility
            chosen = candidate
    if reached < bound - rounding:
        reached = _improve(
            chosen, read, utility, any_number=k is None, reached=reached, rounding=rounding
        )
    return JointDecision(chosen, reached, max(bound, reached))


@dataclass(frozen=True)
class _Draws:
    """Labels 0 and 1, weights that sum to one, and how many labels of each draw are 1."""

    labels: Float[np.ndarray, "n m"]
    weight: Float[np.ndarray, " n"]
    positives: Int[np.ndarray, " n"]

    def hits(self, chosen: Bool[np.ndarray, " m"]) -> Int[np.ndarray, " n"]:
        """How many of the chosen cases are positive in each draw."""
        return (self.labels @ chosen).astype(np.int64)


def _read(draws: ArrayLike, sample_weight: ArrayLike | None, pos_label: Any) -> _Draws:
    given = as_array(draws)
    if given.ndim != 2 or given.size == 0:
        raise ValueError(f"expected draws of shape (n_draws, n_cases), got {given.shape}")
    kinds = set(given.ravel().tolist())
    if pos_label is None and not (kinds <= {0, 1} or kinds <= {-1, 1}):
        shown = given.ravel()[:3].tolist()
        raise ValueError(
            "expected draws of labels 0 and 1, or -1 and 1, or else the pos_label, got values such "
            f"as {shown}"
        )
    if len(kinds | {pos_label}) > 2 and pos_label is not None:
        raise ValueError(
            f"expected draws of pos_label={pos_label!r} and one other label, got {len(kinds)} kinds"
        )
    labels = given == (1 if pos_label is None else pos_label)
    weight = np.ones(len(labels))
    if sample_weight is not None:
        weight = as_array(sample_weight).astype(float)
        _, exponent = np.frexp(weight.max(initial=0.0))
        weight = np.ldexp(weight, -exponent)  # exact, so that sums of any weights are numbers
    if weight.shape != labels.shape[:1] or not (weight >= 0).all() or not 0 < weight.sum() < np.inf:
        raise ValueError("expected a weight a draw, none negative and not all zero")
    labels = labels.astype(float)
    return _Draws(
        labels=labels,
        weight=weight / weight.sum(),
        positives=labels.sum(axis=1).astype(np.int64),
    )


@dataclass(frozen=True)
class _Ranking:
    """For each number of cases to choose, the cases in order, and a bound on the mean utility."""

    best_first: Int[np.ndarray, "k m"]
    bounds: Float[np.ndarray, " k"]


def _rank(draws: _Draws, utility: Utility, sizes: Int[np.ndarray, " k"]) -> _Ranking:
    """The sorts of the module's docstring, by the chords of the utility."""
    m = draws.labels.shape[1]
    counts, group = np.unique(draws.positives, return_inverse=True)
    mass = np.bincount(group, draws.weight)
    rows = np.arange(len(group))
    label_mass = csr_array((draws.weight, (group, rows))) @ draws.labels  # w y, summed by P
    level, slope = _chords(utility, sizes[:, None], counts, m)
    with threads_for(len(sizes), len(counts), m):
        gains = slope @ label_mass  # of each case among so many chosen
    best_first = np.argsort(-gains, axis=1, kind="stable")
    chosen = np.arange(m) < sizes[:, None]
    chosen_gains = np.take_along_axis(gains, best_first, 1) * chosen
    return _Ranking(best_first=best_first, bounds=level @ mass + chosen_gains.sum(axis=1))


def _chords(
    utility: Utility, chosen: NDArray, positives: NDArray, m: int
) -> tuple[Float[np.ndarray, "k p"], Float[np.ndarray, "k p"]]:
    """Level and slope in the hits of the line through the utility's values at both ends."""
    least = np.maximum(0, chosen + positives - m)
    most = np.minimum(chosen, positives)
    between = (least + most) // 2
    low = np.asarray(utility(least, chosen, positives), dtype=float)
    middle = np.asarray(utility(between, chosen, positives), dtype=float)
    high = np.asarray(utility(most, chosen, positives), dtype=float)
    slope = (high - low) / np.maximum(most - least, 1)
    level = low - slope * least
    above = middle - (level + slope * between)
    if not np.isfinite(above).all():
        raise ValueError("expected a utility that is finite for all hits")
    if above.max() > _ROUNDING * max(1.0, float(np.abs(middle).max())):
        raise ValueError("expected a utility that is linear or convex in the hits")
    return np.broadcast_to(level, above.shape), np.broadcast_to(slope, above.shape)


@dataclass(frozen=True)
class _Change:
    """Cases to put in or out together, and the mean utility after that."""

    cases: list[int]
    utility: float


def _improve(
    chosen: Bool[np.ndarray, " m"],
    draws: _Draws,
    utility: Utility,
    *,
    any_number: bool,
    reached: float,
    rounding: float,
) -> float:
    """Put cases in or out, one or a pair at a time, while that helps; changes ``chosen``.

    Returns the mean utility of the choice, which has ``reached`` before. Without ``any_number``
    only pairs are exchanged, one in and one out.
    """
    while True:
        by_case = _after_one_change(chosen, draws, utility)
        changes = []
        if any_number:
            case = int(by_case.argmax())
            changes.append(_Change([case], float(by_case[case])))
        for cases in (chosen, ~chosen):  # that change first, before one of the others
            if cases.any():
                first = int(np.where(cases, by_case, -np.inf).argmax())
                changed = chosen.copy()
                changed[first] ^= True
                by_second = np.where(cases, -np.inf, _after_one_change(changed, draws, utility))
                second = int(by_second.argmax())
                changes.append(_Change([first, second], float(by_second[second])))
        if not changes:
            return reached
        # Of equally good changes the last in the order of cases.
        best = max(changes, key=lambda change: (change.utility, change.cases))
        if best.utility <= reached + rounding:
            return reached
        chosen[best.cases] ^= True
        reached = best.utility


def _after_one_change(
    chosen: Bool[np.ndarray, " m"], draws: _Draws, utility: Utility
) -> Float[np.ndarray, " m"]:
    """The mean utility with each case in turn put in or out."""
    hits = draws.hits(chosen)
    size = int(chosen.sum())
    by_case = np.full(len(chosen), -np.inf)
    for sign, cases in ((1, ~chosen), (-1, chosen)):
        if cases.any():
            labels = draws.labels[:, cases]
            # Where none of these cases is positive, or all are, the utility is asked for no other:
            # it may be undefined at hits that no choice can have.
            any_negative = ~labels.all(axis=1)
            any_positive = labels.any(axis=1)
            hits_if_negative = np.where(any_negative, hits, hits + sign)
            hits_if_positive = np.where(any_positive, hits + sign, hits)
            if_negative = utility(hits_if_negative, size + sign, draws.positives)
            if_positive = utility(hits_if_positive, size + sign, draws.positives)
            gain = draws.weight * (if_positive - if_negative)
            by_case[cases] = (draws.weight * if_negative).sum() + gain @ labels
    return by_case
