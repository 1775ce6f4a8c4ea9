"""Stored rows of code that has changed since, until they are made anew.

What they measured is no longer what the code does. Pages say so where they show them, and
`paperledger.stores.verify` leaves them out and says so. A companion lists them where its setting
``stale`` says; whoever makes them anew takes them off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paperledger.configuration import configuration
from paperledger.stores.tables import Row


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


def stale_rows(name: str) -> Stale | None:
    """Which rows of a store are to be made anew, if any."""
    listed: Mapping[str, Stale] = configuration().named("stale") or {}
    return listed.get(name)


def is_stale(name: str, row: Row) -> bool:
    """Whether a row of a store is to be made anew."""
    stale = stale_rows(name)
    return stale is not None and stale.has(row)
