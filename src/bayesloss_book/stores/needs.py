"""What it takes to measure stored cells again: packages and image files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from bayesloss_book.data import IMAGE_DATASETS, is_at_hand

_IMAGES = re.compile("|".join(IMAGE_DATASETS))


@dataclass(frozen=True)
class Extra:
    """An extra of the distribution, and those of its modules by which a measure calls it."""

    name: str
    modules: tuple[str, ...]


_RIVALS = Extra("calibrators", ("probmetrics", "splinecalib", "venn_abers", "cir_model"))
# What stores need beyond the book's environment.
EXTRAS = {
    **dict.fromkeys(("calibrators_extra", "calibrators_more_extra"), _RIVALS),
    **dict.fromkeys(("calibrators_shuffled", "calibrators_tables"), _RIVALS),
    "calibrators_many_extra": Extra("calibrators", ("probmetrics",)),
    "long_chains": Extra("chains", ("numpyro",)),
}


def missing_modules(store: str) -> list[str]:
    """Return the modules that a store needs and that are not installed."""
    extra = EXTRAS.get(store)
    return [name for name in extra.modules if find_spec(name) is None] if extra else []


def images(cell: Mapping[str, Any]) -> set[str]:
    """Return the image data sets that a cell is about, by the names in it."""
    text = " ".join(value for value in cell.values() if isinstance(value, str))
    return set(_IMAGES.findall(text.lower()))


def missing_data(cell: Mapping[str, Any]) -> str:
    """Return what a cell needs and is not on this machine, in words; "" if it has all."""
    absent = sorted(name for name in images(cell) if not is_at_hand(name))
    if absent:
        return f"the image files of {', '.join(absent)}"
    return ""
