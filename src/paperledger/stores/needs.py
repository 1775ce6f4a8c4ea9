"""What it takes to measure stored cells again: packages and data files."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from paperledger.configuration import Extra, configuration


class DataMissing(RuntimeError):
    """Data that a cell needs are not on this machine, and cannot be had."""


def extra_of(store: str) -> Extra | None:
    """Return the extra that a store needs, None if the usual environment has all."""
    return next((extra for extra in configuration().extras if store in extra.stores), None)


def missing_modules(store: str) -> list[str]:
    """Return the modules that a store needs and that are not installed."""
    extra = extra_of(store)
    return [name for name in extra.modules if find_spec(name) is None] if extra else []


def files(cell: Mapping[str, Any]) -> dict[str, bool]:
    """Return the data files that a cell needs, and whether they are on this machine."""
    asked = configuration().named("files")
    return dict(asked(cell)) if asked else {}


def missing_data(cell: Mapping[str, Any]) -> str:
    """Return what a cell needs and is not on this machine, in words; "" if it has all."""
    absent = sorted(name for name, at_hand in files(cell).items() if not at_hand)
    return f"the files of {', '.join(absent)}" if absent else ""
