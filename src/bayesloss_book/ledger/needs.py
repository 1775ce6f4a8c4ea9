"""The image files that a stored cell needs to be measured again."""

import re
from collections.abc import Mapping
from typing import Any

from bayesloss_book.data.data_sets import IMAGE_DATASETS, is_at_hand

_IMAGES = re.compile("|".join(IMAGE_DATASETS))


def images(cell: Mapping[str, Any]) -> dict[str, bool]:
    """The image data sets that a cell is about, by the names in it, and whether they are here."""
    text = " ".join(value for value in cell.values() if isinstance(value, str))
    return {name: is_at_hand(name) for name in _IMAGES.findall(text.lower())}
