"""What the store says: log losses by data set, and differences to the temperature."""

import numpy as np
import pandas as pd

from bayesloss_book.beyond.multiclass.benchmark import IMAGES, METHODS

_KEYS = ["data", "n", "C"]


def settings(rows: pd.DataFrame) -> list[tuple[str, int, float]]:
    """Data set, size and penalty, in the order of the store but images last and by size."""
    found = {(str(d), int(n), float(c)) for d, n, c in rows[_KEYS].itertuples(index=False)}
    order = ["iris", "wine", "digits", *IMAGES]
    return sorted(found, key=lambda s: (order.index(s[0]), s[1], s[2]))


def losses(rows: pd.DataFrame, measure: str = "loss") -> pd.DataFrame:
    """A measure averaged over splits: a row a setting, a column a method."""
    columns = {f"{method}: {measure}": method for method in METHODS}
    return rows.groupby(_KEYS)[list(columns)].mean().rename(columns=columns).loc[settings(rows)]


def differences(rows: pd.DataFrame) -> pd.DataFrame:
    """Log loss less the temperature's, in nats; the error over splits, of few over test cases."""
    parts = {}
    for method in METHODS:
        less = rows[f"{method}: loss"] - rows["temperature: loss"]
        grouped = less.groupby([rows[key] for key in _KEYS])
        count = grouped.count()
        over_splits = grouped.std() / np.sqrt(count)
        over_cases = rows.groupby(_KEYS)[f"{method}: less"].mean()
        parts[method, "mean"] = grouped.mean()
        parts[method, "error"] = over_splits.where(count >= 3, over_cases)
    return pd.DataFrame(parts).loc[settings(rows)]
