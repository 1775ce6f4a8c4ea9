"""Tables from the cells of Table 2: columns, distances of the readings, gaps. AUC in per cent."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from bayesloss_book.learning.learned_losses.budget import ITERATIONS
from bayesloss_book.learning.learned_losses.table_2 import DATA, METHODS, TASKS, TRONS, jackknife
from bayesloss_book.ledger.quoted import quoted

# Penalty and budget of logistic and linkgistic regression.
SETTINGS = [(1.0, "default"), (1.0, "short"), (1.0, "long")]
SETTINGS += [(0.0, "default"), (0.0, "short"), (0.0, "long")]


def printed() -> pd.DataFrame:
    """The paper's table: a row a method, a column a data set."""
    table = quoted("wn-table-2")
    values = {data: table[name] for data, name in zip(DATA, ("mnist", "fmnist"), strict=True)}
    return pd.DataFrame(
        {data: [column[key] for key in METHODS.values()] for data, column in values.items()},
        index=pd.Index(METHODS, name="method"),
    )


def trained(results: pd.DataFrame) -> pd.DataFrame:
    """The rows without those trons that did worse on their hold-out than under the other budget."""
    trons = results[results["method"].isin(TRONS)]
    best = trons.groupby(["data", "task", "method", "seed"])["holdout"].idxmin()
    return pd.concat([results[~results["method"].isin(TRONS)], trons.loc[best]])


def cell_of(results: pd.DataFrame, **cell: object) -> pd.Series | None:
    """The one row with these values; None if it is not there."""
    chosen = np.ones(len(results), dtype=bool)
    for name, value in cell.items():
        chosen &= (results[name] == value).to_numpy()
    rows = results[chosen]
    if len(rows) > 1:
        raise ValueError(f"expected one row of {cell}, got {len(rows)}")
    return None if rows.empty else rows.iloc[0]


def columns(
    results: pd.DataFrame, data: str, penalty: float = 1.0, budget: str = "default"
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measured AUC, and its standard errors: a row a method, a column a task."""
    chosen = trained(results[results["data"] == data])
    is_tron = chosen["method"].isin(TRONS)
    chosen = chosen[is_tron | ((chosen["penalty"] == penalty) & (chosen["budget"] == budget))]
    found = [
        (row["method"], row["task"], *(100 * value for value in jackknife(row)))
        for _, row in chosen.iterrows()
    ]
    frame = pd.DataFrame(found, columns=["method", "task", "auc", "error"])
    tasks = [task for task in TASKS if (results["task"] == task).any()]
    auc, error = (
        frame.pivot(index="method", columns="task", values=name).reindex(
            index=pd.Index(METHODS, name="method"), columns=tasks
        )
        for name in ("auc", "error")
    )
    return auc, error


def beside_print(results: pd.DataFrame, reading: Mapping[str, str]) -> pd.DataFrame:
    """The printed AUC, and ours without a penalty under a reading of the task, with errors."""
    columns_of = {}
    for data, task in reading.items():
        auc, error = columns(results, data, penalty=0.0)
        columns_of[f"{data}, in print"] = printed()[data].map("{:.1f}".format)
        columns_of[f"{data}, here"] = auc[task].map("{:.1f}".format)
        columns_of[f"{data}, ± here"] = error[task].map("{:.2f}".format)
    return pd.DataFrame(columns_of)


def distances(results: pd.DataFrame, penalty: float = 1.0, budget: str = "default") -> pd.DataFrame:
    """How far each reading's column is from the paper's, in points of AUC.

    Root mean squares over ``all`` rows, over the ``linear`` models by their scores, and the
    ``trons``; the ``largest`` and ``where`` it is; Spearman's ``order``; the number of ``rows``.
    """
    rows = {}
    for data in DATA:
        auc, _ = columns(results, data, penalty, budget)
        for task in auc:
            gap = (auc[task] - printed()[data]).dropna()
            if gap.empty:
                continue
            square = gap**2
            whole = len(gap) == len(METHODS)
            order = spearmanr(auc[task], printed()[data])[0] if whole else np.nan
            scores = _scores(results, data, str(task), penalty, budget)
            linear = (scores - printed()[data]).dropna() ** 2
            rows[(data, task)] = {
                "all": square.mean() ** 0.5,
                "linear": linear.mean() ** 0.5,
                "trons": square[square.index.isin(TRONS)].mean() ** 0.5,
                "largest": gap.abs().max(),
                "where": gap.abs().idxmax(),
                "order": order,
                "rows": len(gap),
            }
    return pd.DataFrame(rows).T.rename_axis(["data", "task"])


def _scores(results: pd.DataFrame, data: str, task: str, penalty: float, budget: str) -> pd.Series:
    """AUC of the linear scores of logistic and linkgistic regression, by method."""
    chosen = results[(results["data"] == data) & (results["task"] == task)]
    chosen = chosen[(chosen["penalty"] == penalty) & (chosen["budget"] == budget)]
    chosen = chosen[~chosen["method"].isin(TRONS)]
    return 100 * chosen.set_index("method")["auc_score"]


def gaps(results: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Differences in AUC points, and in nats, of pairs with the same penalty and budget."""
    rows = []
    for (data, task), group in results.groupby(["data", "task"], sort=False):
        for penalty, budget in SETTINGS:
            for first, second in pairs:
                same = {"penalty": penalty, "budget": budget}
                a, b = (cell_of(group, method=name, **same) for name in (first, second))
                if a is None or b is None:
                    continue
                gap, error = jackknife(a, b)
                rows.append(
                    {
                        "data": data,
                        "task": task,
                        **same,
                        "pair": f"{first} − {second}",
                        "gap": 100 * gap,
                        "error": 100 * error,
                        "log_loss": a["log_loss"] - b["log_loss"],
                        "converged": bool(a["converged"] and b["converged"]),
                    }
                )
    return pd.DataFrame(rows)


def paths(results: pd.DataFrame) -> pd.DataFrame:
    """AUC along the baseline's path: a row a data set, task and penalty; iterations and "end"."""
    index = ["data", "task", "penalty"]
    table = 100 * results.set_index(index)[[*(f"auc_{k:04d}" for k in ITERATIONS), "auc_end"]]
    table.columns = [*map(str, ITERATIONS), "end"]
    return table.sort_index()
