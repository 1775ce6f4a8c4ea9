r"""Which rows are held out together: decided by what the rows hold, by neither order nor chance.

Rows are dealt out to folds in the order of their class and, within it, of the probability that a
logistic regression with C = 1 gives it. So each fold has its share of every class, of easy rows and
of hard ones, whatever order they came in. Up to ``ONE_BY_ONE`` rows each is a fold of its own:
where data are few, what leaves a row out must not move half of the others to other folds.

Oversampling, bagging and repeated measures repeat a row; its copies must not see each other. But
where columns take few values rows are equal by nature, and to hold all of them out at once would
leave nothing to learn their kind from. What tells these apart is that labels of copies agree, while
those of rows equal by nature differ as often as chance has it. With p_k the probabilities of the
classes, the regression's, and where there are many rows of a kind rather their shares in it,

    rho = 1 - #(pairs of equal rows whose labels differ) / sum over pairs of (1 - sum_k p_k^2),

cut off at 0 and 1, is the part that is copies: the intraclass correlation. Rows equal in inputs and
class are merged, and m of them become 1 + (m - 1) (1 - rho) parts, which are dealt out like rows.
Groups that are given, such as the rows of one patient, stay whole.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from bayesloss.learning.data.inputs import merge_duplicates

ONE_BY_ONE = 200  # parts, at most, that are held out one by one: as many fits of few rows are cheap
MANY_FOLDS = 10  # of more parts; five cost a fifth less, and change a fit to 300 rows twice as much
_AS_STRONG = 10.0  # rows of a kind, against which the model's probabilities of its classes count
_DIGITS = 6  # of log odds: what lies below may differ between processors
NEVER = -1  # the fold of what is never held out: the only row of a class


@dataclass(frozen=True)
class Folds:
    """Parts of rows, and the folds that they are held out with.

    Attributes
    ----------
    rows : int array of shape (m,)
        The row that each part is of; a row with copies may have several.
    weight : array of shape (m,)
        How much each part counts.
    fold : int array of shape (m,)
        From 0 to ``n_folds`` - 1, or ``NEVER``.
    n_folds : int
    power : float, default=1.0
        How much of its weight a part counts as an observation: below 1 where rows have copies.
    groups : int array of shape (m,) or None, default=None
        Which parts belong together, as given.
    """

    rows: Int[ndarray, " m"]
    weight: Float[ndarray, " m"]
    fold: Int[ndarray, " m"]
    n_folds: int
    power: float = 1.0
    groups: Int[ndarray, " m"] | None = None

    def in_fewer(self, n_folds: int) -> "Folds":
        """The same parts in so many folds at most: of those that are held out one by one, too."""
        fold = np.where(self.fold == NEVER, NEVER, self.fold % n_folds)
        return replace(self, fold=fold, n_folds=min(n_folds, self.n_folds))


def no_folds(weight: Float[ndarray, " n"]) -> Folds:
    """Where nothing is held out, since no row can move its own score."""
    n = len(weight)
    return Folds(np.arange(n), weight, np.full(n, NEVER), 0)


def content_folds(
    kinds: Int[ndarray, " n"],
    classes: Int[ndarray, " n"],
    weight: Float[ndarray, " n"],
    probabilities: Float[ndarray, "n K"],
    *,
    spread: bool = True,
) -> Folds:
    """The folds of rows, from the probabilities of a logistic regression.

    Rows of one kind, numbered from 0, have equal inputs. Where it is functions of these very
    probabilities that are held out, do not spread them: each fold would have their distribution in
    every class, and confirm what a function makes of it. Rows of a class are then dealt out in the
    order of their kinds' numbers.
    """
    merged, total = merge_duplicates(kinds, weight, classes)
    rho = agreement(kinds, classes, weight, probabilities)
    n_cases = np.maximum(1, np.rint(1 + (total - 1) * (1 - rho)))
    n_parts = np.minimum(n_cases, MANY_FOLDS).astype(np.int64)
    order = np.lexsort((kinds[merged], classes[merged]))
    if spread:
        order = _order(classes[merged], probabilities[merged], kinds[merged])
    rows = np.repeat(merged[order], n_parts[order])
    part_weight = np.repeat((total / n_parts)[order], n_parts[order])
    n_folds = MANY_FOLDS
    if n_cases.sum() <= ONE_BY_ONE:
        n_folds = len(rows)
    fold = np.arange(len(rows)) % n_folds
    fold = _without_lonely(fold, classes[rows], np.arange(len(rows)))
    back = np.argsort(rows, kind="stable")
    power = min(1.0, float(n_cases.sum() / total.sum()))
    return Folds(rows[back], part_weight[back], fold[back], n_folds, power)


def _without_lonely(
    fold: Int[ndarray, " m"], classes: Int[ndarray, " m"], groups: Int[ndarray, " m"]
) -> Int[ndarray, " m"]:
    """The same folds, but a class that is in one part or group alone is never held out."""
    pairs = np.unique(np.stack([classes, groups]), axis=1)
    n_places = np.bincount(pairs[0])
    return np.where(n_places[classes] == 1, NEVER, fold)


def agreement(
    kinds: Int[ndarray, " n"],
    classes: Int[ndarray, " n"],
    weight: Float[ndarray, " n"],
    probabilities: Float[ndarray, "n K"],
) -> float:
    """The part of the pairs of equal rows that are copies: rho above; 1 if no labels differ."""
    total = np.bincount(kinds, weight)
    same = np.zeros_like(total)
    for k in range(probabilities.shape[1]):
        same += np.bincount(kinds, weight * (classes == k)) ** 2
    n_differ = float((total**2 - same).sum()) / 2
    if n_differ <= 1e-9 * float((total**2).sum()):  # rounding of the squares
        return 1.0
    n_expected = 0.0
    for k in range(probabilities.shape[1]):
        expected = _AS_STRONG * np.bincount(kinds, weight * probabilities[:, k]) / total
        rate = (np.bincount(kinds, weight * (classes == k)) + expected) / (total + _AS_STRONG)
        n_expected += float((total * np.maximum(total - 1, 0)) @ (rate * (1 - rate))) / 2
    if n_expected == 0:
        return 0.0
    return float(np.clip(1 - n_differ / n_expected, 0, 1))


def _order(
    classes: Int[ndarray, " n"], probabilities: Float[ndarray, "n K"], kinds: Int[ndarray, " n"]
) -> Int[ndarray, " n"]:
    """Rows by class, then by how sure the regression is of it, then by their inputs."""
    tiny = np.finfo(np.float64).tiny
    own = probabilities[np.arange(len(classes)), classes]
    log_odds = np.log(np.maximum(own, tiny)) - np.log(np.maximum(1 - own, tiny))
    return np.lexsort((kinds, np.round(log_odds, _DIGITS), classes))


def group_folds(
    groups: Int[ndarray, " n"], classes: Int[ndarray, " n"], weight: Float[ndarray, " n"]
) -> Folds:
    """The folds of whole groups, numbered from 0."""
    fold = _deal_groups(classes, weight, groups)
    n_folds = int(fold.max()) + 1
    fold = _without_lonely(fold, classes, groups)
    return Folds(np.arange(len(classes)), weight, fold, n_folds, groups=groups)


def _deal_groups(
    classes: Int[ndarray, " n"], weight: Float[ndarray, " n"], groups: Int[ndarray, " n"]
) -> Int[ndarray, " n"]:
    """Whole groups, the largest first, each to the fold that has least of its classes."""
    n_groups = int(groups.max()) + 1
    n_classes = int(classes.max()) + 1
    held = np.zeros((n_groups, n_classes))
    np.add.at(held, (groups, classes), weight)
    if n_groups <= ONE_BY_ONE and len(groups) <= 10 * ONE_BY_ONE:
        return groups
    filled = np.zeros((MANY_FOLDS, n_classes))
    share = held / held.sum(axis=0)
    fold_of_group = np.zeros(n_groups, dtype=np.int64)
    for group in np.argsort(-held.sum(axis=1), kind="stable"):
        least = int(np.argmin(filled @ share[group]))
        fold_of_group[group] = least
        filled[least] += share[group]
    return fold_of_group[groups]
