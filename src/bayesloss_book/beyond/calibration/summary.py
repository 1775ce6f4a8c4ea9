"""What the stored cells say: how far above the best, how often ahead, in which family.

Score sets of the same data share their cases, so their results go up and down together. Standard
errors are those of a mean over clusters, one for each data set.
"""

import numpy as np
import pandas as pd

from bayesloss_book.beyond.calibration.rivals import MANY, METHODS, OURS
from bayesloss_book.data.score_sets import TUNED, kind
from paperledger.stores.results import Folder, load_results

SET = ["data", "task", "model"]
KEYS = [*SET, "n", "number"]


def long(*stores: pd.DataFrame) -> pd.DataFrame:
    """A row a draw and method, of the draws that all stores have, with ``kind`` and ``tuned``."""
    wide = stores[0].drop(columns="seconds")
    for store in stores[1:]:
        wide = wide.merge(store.drop(columns="seconds"), on=KEYS, validate="one_to_one")
    wide = wide.set_index(KEYS)
    wide.columns = wide.columns.str.split(": ", expand=True).set_names(["method", None])
    rows = wide.stack("method").reset_index()
    rows["kind"] = rows["data"].map(kind)
    rows["tuned"] = [key in TUNED for key in rows[SET].itertuples(index=False, name=None)]
    return rows


def everything(folder: Folder) -> pd.DataFrame:
    """All stored cells of two classes, as `long` has them."""
    stores = (
        ("calibrators", "calibrators_extra"),
        ("calibrators_more", "calibrators_more_extra"),
        ("calibrators_tables",),
    )
    parts = [long(*(load_results(folder, name) for name in names)) for names in stores]
    return pd.concat(parts, ignore_index=True)


def excess(rows: pd.DataFrame, measure: str = "log_loss") -> pd.DataFrame:
    """Mean over draws of a measure, less that of the best method: a row a set and size."""
    means = rows.groupby([*SET, "n", "method"])[measure].mean().unstack("method")
    return means.sub(means.min(axis=1), axis=0)[_known(means)]


def mean_and_error(values: pd.Series) -> pd.Series:
    """The mean over score sets, its standard error over data sets, and the number of sets."""
    gaps = (values - values.mean()).groupby(level="data").sum()
    k = len(gaps)
    inflation = k / (k - 1) if k > 1 else np.nan
    error = np.sqrt(inflation * (gaps**2).sum()) / len(values)
    return pd.Series({"mean": values.mean(), "error": error, "sets": len(values)})


def table(rows: pd.DataFrame, measure: str = "log_loss") -> pd.DataFrame:
    """Mean excess over the best of the row: a row a method, columns (n, mean or error)."""
    found = excess(rows, measure)
    parts = {
        n: part.apply(mean_and_error).T[["mean", "error"]] for n, part in found.groupby(level="n")
    }
    return pd.concat(parts, axis=1, names=["n"]).astype(np.float64)


def against(rows: pd.DataFrame, measure: str = "log_loss") -> pd.DataFrame:
    """Ours less the rival with the lowest mean at each size, which favours the rival a little."""
    out = {}
    for n, part in excess(rows, measure).groupby(level="n"):
        rival = part.drop(columns=OURS).mean().idxmin()
        out[n] = {"rival": rival} | mean_and_error(part[OURS] - part[rival]).to_dict()
    return pd.DataFrame(out).T.rename_axis("n")


def draws_part(rows: pd.DataFrame, n: int, rival: str) -> float:
    """Of the standard error of ours less a rival, what comes from the draws of the same sets."""
    wide = rows[rows["n"] == n].pivot(index=[*SET, "number"], columns="method", values="log_loss")
    gap = (wide[OURS] - wide[rival]).groupby(level=SET)
    return float(np.sqrt((gap.var() / gap.size()).sum()) / len(gap))


def seconds(rows: pd.DataFrame) -> pd.DataFrame:
    """Median processor seconds: a row a method, columns ("fit" or "predict", n)."""
    names = {"fit_seconds": "fit", "predict_seconds": "predict"}
    found = rows.rename(columns=names).groupby(["method", "n"])[list(names.values())].median()
    return found.unstack("n").pipe(lambda table: table.loc[_known(table.T)])


def win_rates(rows: pd.DataFrame, measure: str = "log_loss") -> pd.DataFrame:
    """CalArena's win rate, by method and size: the share of other methods beaten, ties half."""
    wide = rows.pivot(index=KEYS, columns="method", values=measure)
    ranks = wide.rank(axis=1, ascending=False)  # 1 for the worst; ties share
    share = (ranks - 1) / (wide.shape[1] - 1)
    return share.groupby(level="n").mean().T.loc[_known(wide)]


def improvement(rows: pd.DataFrame, measure: str = "log_loss") -> pd.DataFrame:
    """CalArena's post-hoc improvement, by method and size: what calibration takes off a loss."""
    wide = rows.pivot(index=KEYS, columns="method", values=measure)
    gain = -wide.sub(wide["none"], axis=0)
    return gain.groupby(level="n").mean().T.loc[_known(wide)]


def by_family(rows: pd.DataFrame, other: str = "sigmoid") -> pd.DataFrame:
    """Log loss of ours less that of another: a row a classifier, columns (n, mean or error)."""
    found = excess(rows)
    gap = found[OURS] - found[other]
    parts = gap.groupby(level=["model", "n"]).apply(mean_and_error).unstack()
    return parts[["mean", "error"]].unstack("n").swaplevel(axis=1).sort_index(axis=1)


def by_data(rows: pd.DataFrame, rival: str) -> pd.DataFrame:
    """Log loss of ours less a rival's, the mean over sets: a row a data set, a column a size."""
    found = excess(rows)
    return (found[OURS] - found[rival]).groupby(level=["data", "n"]).mean().unstack("n")


def beaten(rows: pd.DataFrame, *, by: float) -> pd.DataFrame:
    """Data sets and sizes where the best of all rivals is ahead of ours, by how many nats."""
    found = excess(rows)
    lead = -found.drop(columns=OURS).sub(found[OURS], axis=0).groupby(level=["data", "n"]).mean()
    best = pd.DataFrame({"rival": lead.idxmax(axis=1), "lead": lead.max(axis=1)})
    return best[best["lead"] > by].sort_values("lead", ascending=False)


def coverage(rows: pd.DataFrame) -> pd.DataFrame:
    """The share of test scores whose true probability our 95 % band holds: curves by sizes."""
    ours = rows[(rows["method"] == OURS) & (rows["kind"] == "curve")]
    return ours.groupby(["data", "n"])["coverage"].mean().unstack("n")


def _known(table: pd.DataFrame) -> list[str]:
    return [method for method in dict.fromkeys((*METHODS, *MANY)) if method in table]
