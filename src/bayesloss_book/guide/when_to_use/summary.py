"""What the stored fits of `when_to_use` say: who is best on which kind of table, and at what cost.

Splits of a real table share data: the standard error of a mean of J differences is Nadeau and
Bengio's (2003, section 3), error^2 = (1/J + n_test / n_train) s^2. A method is called better than
another on a table if it is so by a margin in *every* split.
"""

import numpy as np
import pandas as pd

from bayesloss_book.guide.when_to_use.methods import CLASSIFIERS, REGRESSORS
from bayesloss_book.guide.when_to_use.tables import CLASSIFICATION, REGRESSION

MARGIN = 3e-3  # nats: smaller differences do not count


def averages(results: pd.DataFrame, measure: str) -> pd.DataFrame:
    """The mean of a measure over seeds: a row a table, a column a method."""
    table = results.groupby(["data", "method"], sort=False)[measure].mean().unstack("method")
    order = [m for m in dict.fromkeys([*CLASSIFIERS, *REGRESSORS]) if m in table]
    return table.reindex(results["data"].unique())[order].dropna(axis=1, how="all")


def behind_best(results: pd.DataFrame, measure: str = "log_loss") -> pd.DataFrame:
    """How far each method is behind the best: log losses are subtracted, errors divided."""
    table = averages(results, measure)
    best = table.min(axis=1)
    return table.div(best, axis=0) - 1 if measure == "rmse" else table.sub(best, axis=0)


def group(data: str, rows: int) -> str:
    """The kind of data that a table stands for."""
    if data in CLASSIFICATION:
        size = "under 1,000" if rows < 1_000 else "1,000 and more"
        return f"real, {size} rows"
    if data in REGRESSION:
        return "real"
    kind, *_, size = data.split(", ")
    if "x" in size:
        link = "straight" if kind == "straight" else "not straight"
        return f"link {link}, {int(size.partition('x')[0]):,} rows"
    hard = kind in ("step", "skewed_inputs", "far_input")
    return "step, skewed or far inputs" if hard else f"smooth curve, {size} rows"


def by_group(results: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The median of a table of `averages` or `behind_best`, and the number of tables, by group."""
    rows = results.groupby("data")["rows"].first()
    grouped = table.groupby([group(data, rows[data]) for data in table.index], sort=False)
    out = grouped.median()
    out.insert(0, "tables", grouped.size())
    return out


def contest(
    results: pd.DataFrame, ours: str = "linkgistic", rival: str = "logistic CV"
) -> pd.DataFrame:
    """The log loss of one method less another's, by table; better or worse in every split."""
    wide = results.pivot(index=["data", "seed"], columns="method", values="log_loss")
    groups = (wide[ours] - wide[rival]).groupby("data", sort=False)
    out = groups.agg(mean="mean", least="min", most="max").reindex(results["data"].unique())
    # n_test / n_train
    overlap = pd.Series(np.where(out.index.isin(list(CLASSIFICATION)), 0.5, 0.0), out.index)
    out["error"] = np.sqrt(1 / groups.size() + overlap) * groups.std()
    out.insert(0, "rows", results.groupby("data")["rows"].first())
    better = out["most"] < -MARGIN
    worse = out["least"] > MARGIN
    out["verdict"] = np.select([better, worse], ["better", "worse"], "level")
    return out


def seconds(results: pd.DataFrame) -> pd.DataFrame:
    """Seconds of a fit with its predictions, as `by_group`."""
    return by_group(results, averages(results, "seconds"))
