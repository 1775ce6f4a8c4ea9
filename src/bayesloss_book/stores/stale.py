"""Stored rows of code that has changed since, until they are made anew.

What they measured is no longer what the library does. Pages say so where they show them, `make
verify` leaves them out and says so, and whoever makes them anew takes them off this list.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bayesloss_book.stores.tables import Row


@dataclass(frozen=True)
class Stale:
    """Which rows of a store, by columns and values of each; all if there are none."""

    commit: str  # the last one whose code made them
    why: str
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def has(self, row: Row) -> bool:
        """Whether a row is one of these."""
        return all(row[column] in values for column, values in self.where.items())

    def __str__(self) -> str:
        return f"of commit {self.commit}, to be made anew"


_LINK = "linkgistic regression fitted links to approximate leave-one-out scores"
_OURS = {"method": ("linkgistic", "one against the rest")}
_HELD_OUT = {"method": ("held-out ISGP",)}

STALE: dict[str, Stale] = {
    "calibration_methods": Stale("d978bc930", _LINK, _HELD_OUT),
    "fit_cost": Stale("d978bc930", _LINK, _OURS),
    "fit_cost_sparse": Stale("d978bc930", _LINK, _OURS),
    "fit_cost_ten": Stale("d978bc930", _LINK, _OURS),
    "learning_curves": Stale("d978bc930", _LINK, _HELD_OUT),
    "multiclass": Stale("d978bc930", _LINK),
    "penalties": Stale("d978bc930", _LINK),
    "when_to_use": Stale("d978bc930", _LINK, {"method": ("linkgistic", "linkgistic CV")}),
}


def is_stale(name: str, row: Row) -> bool:
    """Whether a row of a store is to be made anew."""
    return name in STALE and STALE[name].has(row)
