"""What the stored cells say: d_L against that of the least KL on the problem's own support."""

import numpy as np
import pandas as pd

BASE = "least KL"
KEYS = ["kind", "shift", "k"]


def long(stored: pd.DataFrame, measure: str = "d_L") -> pd.DataFrame:
    """One measure: a row a problem, indexed by `KEYS` and the seed, a column a method."""
    table = stored.set_index([*KEYS, "seed"])
    names = [name for name in table if name.endswith(f": {measure}")]
    return table[names].rename(columns=lambda name: name.removesuffix(f": {measure}"))


def ratios(stored: pd.DataFrame, base: str = BASE) -> pd.DataFrame:
    """Geometric means over seeds of d_L, as a part of the base's; low and high by one error."""
    logs = np.log(long(stored).drop(columns=["posterior mean", "zero"]))
    logs = logs.sub(logs[base], axis=0).rename_axis("method", axis=1).stack()
    grouped = logs.groupby(level=[*KEYS, "method"], sort=False)
    mean = grouped.mean()
    error = grouped.sem()
    return pd.DataFrame(
        {"ratio": np.exp(mean), "low": np.exp(mean - error), "high": np.exp(mean + error)}
    )


def wins(stored: pd.DataFrame, method: str, base: str = BASE) -> pd.Series:
    """The share of seeds in which a method's d_L is below the base's: a row a problem."""
    table = long(stored)
    return (table[method] < table[base]).groupby(level=KEYS, sort=False).mean()
