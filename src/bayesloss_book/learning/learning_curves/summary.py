"""What stored cells of Figure 2 say: curves, and differences between methods with their errors.

Methods share the test images. So the error of a difference comes from differences over ten parts of
the test set, after averaging over seeds.
"""

import numpy as np
import pandas as pd

from bayesloss_book.learning.learning_curves.figure_2 import BLOCKS, SETTING
from bayesloss_book.rivals.baselines import HELD_OUT

# Each accuracy, and what its values on the parts of the test set are called.
WHOLE = {"ovr_accuracy": "ovr_part", "accuracy": "part"}

LEARNED = ("ISGP", HELD_OUT)  # links fitted to training scores, and to held-out scores

_KEYS = ["data", "size", *SETTING]


def in_setting(results: pd.DataFrame) -> pd.DataFrame:
    """The cells of the curves: those in the setting that all of them share."""
    same = [results[name] == value for name, value in SETTING.items()]
    return results[np.logical_and.reduce(same)]


def curves(results: pd.DataFrame, measure: str) -> pd.DataFrame:
    """One measure in the curves' setting: ``mean`` and ``error`` over seeds."""
    grouped = in_setting(results).groupby(["data", "method", "size"])[measure]
    return pd.DataFrame({"mean": grouped.mean(), "error": grouped.sem()})


def gains(
    results: pd.DataFrame, measure: str, better: str = "ISGP", worse: str = "logistic"
) -> pd.DataFrame:
    """How much more accurate one method is than another, wherever both were measured."""
    parts = [f"{WHOLE[measure]}_{b}" for b in range(BLOCKS)]
    pair = [
        results[results["method"] == method].set_index([*_KEYS, "seed"])[parts]
        for method in (better, worse)
    ]
    difference = 100 * (pair[0] - pair[1]).dropna()
    over_seeds = difference.groupby(_KEYS, sort=False)
    mean = over_seeds.mean()
    return pd.DataFrame(
        {"gain": mean.mean(axis=1), "error": mean.sem(axis=1), "seeds": over_seeds.size()}
    )


def settings_table(results: pd.DataFrame, size: int, data: str) -> pd.DataFrame:
    """What each method reaches by setting, on one data set at one size, with seed 0."""
    here = results[(results["size"] == size) & (results["data"] == data) & (results["seed"] == 0)]
    wide = here.set_index([*list(SETTING), "method"]).unstack()
    out = pd.DataFrame(index=wide.index)
    for measure, name in (("ovr_accuracy", "one-vs-rest"), ("accuracy", "ten classes")):
        out[f"{name}, logistic"] = 100 * wide[measure, "logistic"]
        for method in LEARNED:
            found = gains(here, measure, method).droplevel(["data", "size"])
            out[f"{name}, gain of {method}"] = found["gain"]
            out[f"{name}, error of {method}"] = found["error"]
    for method in ("logistic", *LEARNED):
        out[f"log loss, {method}"] = wide["log_loss", method]
        out[f"converged, {method}"] = wide["converged", method]
    return out.dropna()
