"""Names of classes and decisions, and the positions of labels among them."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def different_names(values: ArrayLike, n: int, what: str) -> NDArray[Any]:
    """The n names, all different, as an array that cannot be written to."""
    names = np.array(values)
    if names.shape != (n,) or len(set(names.tolist())) != n:
        raise ValueError(f"expected {n} different {what}, got {names.tolist()}")
    names.flags.writeable = False
    return names


def positions(names: NDArray[Any], values: NDArray[Any], what: str) -> NDArray[np.int64]:
    """Where among the names each value stands, of shape (n,); a ValueError for one unknown."""
    place = {name: i for i, name in enumerate(names.tolist())}
    found = np.array([place.get(value, -1) for value in values.tolist()], dtype=np.int64)
    unknown = found < 0
    if unknown.any():
        row = int(unknown.argmax())
        got = f"{values.tolist()[row]!r} in row {row}"
        raise ValueError(f"expected {what} among {names.tolist()}, got {got}")
    return found
