"""What the stored fits of `calibration_methods` say: paired differences, costs, verdicts."""

import numpy as np
import pandas as pd
from scipy.stats import t

from bayesloss_book.guide.calibration_methods.methods import METHODS
from bayesloss_book.guide.calibration_methods.problems import KINDS
from bayesloss_book.rivals.baselines import HELD_OUT

PROBLEM = ["data", "task", "size", "C"]  # what makes a problem, up to the seed
CALIBRATORS = ("logistic", "sigmoid", "isotonic", "beta")  # what people use
_TEST_SHARE = 0.5  # test over training data in the splits of an embedded set


def averages(results: pd.DataFrame, measure: str) -> pd.DataFrame:
    """The mean of a measure over seeds: a row a problem, a column a method."""
    table = results.groupby([*PROBLEM, "method"], sort=False)[measure].mean().unstack("method")
    return table.reindex(_problems(results))[[m for m in (*METHODS, "true link") if m in table]]


def differences(
    results: pd.DataFrame, measure: str = "log_loss", against: str = "logistic"
) -> pd.DataFrame:
    """Each method less another on the same training and test data, averaged over seeds.

    ``mean``, ``error``, ``n`` and ``clear``: whether a t test tells it from 0 at 1 %. The splits of
    an embedded set share data: there 1/J + test/train is in place of 1/J (Nadeau and Bengio 2003).
    """
    wide = results.pivot(index=[*PROBLEM, "seed"], columns="method", values=measure)
    paired = wide.sub(wide[against], axis=0).drop(columns=against)
    groups = paired.stack().dropna().groupby([*PROBLEM, "method"])
    out = groups.agg(mean="mean", sd="std", n="count")
    shared = np.array([KINDS[name] == "embedded" for name in out.index.get_level_values("data")])
    out["error"] = out["sd"] * np.sqrt(1 / out["n"] + np.where(shared, _TEST_SHARE, 0.0))
    out["clear"] = out["mean"].abs() > t.ppf(0.995, out["n"] - 1) * out["error"]
    order = [(*p, m) for p in _problems(results) for m in (*METHODS, "true link")]
    return out.reindex([key for key in order if key in out.index])[["mean", "error", "n", "clear"]]


def learned_against_calibrated(
    results: pd.DataFrame, learned: str = HELD_OUT, measure: str = "log_loss"
) -> pd.DataFrame:
    """A learned link less the best of logistic and its calibrations, by problem."""
    rivals = averages(results, measure).reindex(columns=list(CALIBRATORS)).idxmin(axis=1)
    tables = {rival: differences(results, measure, rival) for rival in rivals.unique()}
    rows = {problem: tables[rival].loc[(*problem, learned)] for problem, rival in rivals.items()}
    out = pd.DataFrame(rows).T.rename_axis(PROBLEM)
    out.insert(0, "rival", rivals)
    sign = np.where(out["mean"].astype(float) < 0, "better", "worse")
    out["verdict"] = np.where(out["clear"].astype(bool), sign, "not clear")
    return out


def costs(results: pd.DataFrame) -> pd.DataFrame:
    """Median seconds of logistic regression by kind and size, and other methods' ratios to it."""
    rows = results[(results["C"] == 1) & (results["method"] != "base rate")]
    rows = rows.assign(kind=rows["data"].map(KINDS))
    keys = ["kind", "size", "data", "task"]
    median = rows.groupby([*keys, "method"], sort=False)["seconds"].median().unstack("method")
    ratio = median.div(median["logistic"], axis=0).groupby(["kind", "size"], sort=False).median()
    first = median["logistic"].groupby(["kind", "size"], sort=False).median()
    order = [m for m in METHODS if m in ratio and m != "logistic"]
    return ratio[order].assign(seconds=first)[["seconds", *order]]


def label(problem: tuple[str, str, int, float]) -> str:
    """A short name of a problem, for the rows of tables and figures."""
    data, task, _, C = problem
    return f"{data}, {task}" + ("" if C == 1 else f", C = {C:g}")


def _problems(results: pd.DataFrame) -> pd.MultiIndex:
    return pd.MultiIndex.from_frame(results[PROBLEM].drop_duplicates())
