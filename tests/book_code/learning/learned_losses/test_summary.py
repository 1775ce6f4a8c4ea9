import numpy as np
import pandas as pd
import pytest

from bayesloss_book.learning.learned_losses import summary
from bayesloss_book.learning.learned_losses.table_2 import BLOCKS, METHODS, TRONS

READING = {"mnist": "0 vs 8", "fashion-mnist": "odd vs even"}


def made_up(offset=0.0, budget="default", holdout=0.1):
    """Results that are the paper's plus an offset in points, the same without each block."""
    rows = []
    for data, task in READING.items():
        for method, value in summary.printed()[data].items():
            auc = (value + offset) / 100
            rows.append(
                {
                    "data": data,
                    "task": task,
                    "method": method,
                    "penalty": 0.0 if method in TRONS else 1.0,
                    "budget": budget,
                    "seed": 0,
                    "auc": auc,
                    "auc_score": auc + (0.001 if method == "GP" else 0),
                    "log_loss": 0.1 - offset,
                    "converged": True,
                    "holdout": holdout if method in TRONS else np.nan,
                    **{f"without_{b:02d}": auc + 0.001 * (-1) ** b for b in range(BLOCKS)},
                }
            )
    return pd.DataFrame(rows)


def test_columns_and_distances():
    results = made_up(offset=-0.3)
    auc, error = summary.columns(results, "mnist")
    assert auc["0 vs 8"].tolist() == pytest.approx((summary.printed()["mnist"] - 0.3).tolist())
    # Deviations are all 0.1 points: sqrt((B - 1) / B * B) of them.
    assert error["0 vs 8"].tolist() == pytest.approx([0.1 * (BLOCKS - 1) ** 0.5] * len(METHODS))
    assert auc["odd vs even"].isna().all()
    table = summary.distances(results)
    assert len(table) == 2 and (table["rows"] == len(METHODS)).all()
    assert table[["all", "trons", "largest"]].astype(float).to_numpy() == pytest.approx(
        np.full((2, 3), 0.3)
    )
    # The GP's scores are 0.1 points better than its probabilities: off by 0.3, 0.3 and 0.2.
    assert table["linear"].astype(float).tolist() == pytest.approx([(0.22 / 3) ** 0.5] * 2)
    assert table["order"].astype(float).tolist() == pytest.approx([1, 1])
    few = summary.distances(results[~results["method"].isin(TRONS)])
    assert (few["rows"] == 3).all() and few["order"].isna().all()


def test_trons_are_chosen_by_their_hold_out():
    both = pd.concat(
        [made_up(-0.3, "default", holdout=0.05), made_up(0.5, "short", holdout=0.1)],
        ignore_index=True,
    )
    chosen = summary.trained(both)
    trons = chosen[chosen["method"].isin(TRONS)]
    assert len(trons) == 2 * len(TRONS) and (trons["budget"] == "default").all()
    auc, _ = summary.columns(both, "mnist", budget="short")
    gap = auc["0 vs 8"] - summary.printed()["mnist"]
    assert gap["GLMTron"] == pytest.approx(-0.3)
    assert gap["ISGP"] == pytest.approx(0.5)


def test_gaps():
    table = summary.gaps(made_up(), [("ISGP", "logistic"), ("ISGP", "GP")])
    table = table.set_index(["data", "pair"])
    assert table.loc[("fashion-mnist", "ISGP − logistic"), "gap"] == pytest.approx(0.7)
    assert table.loc[("fashion-mnist", "ISGP − GP"), "gap"] == pytest.approx(0.1)
    # The parts move together: nothing is left in the difference.
    assert table["error"].max() < 1e-9
    assert set(table["penalty"]) == {1.0} and set(table["budget"]) == {"default"}


def test_beside_the_print_stands_what_was_measured_without_a_penalty():
    results = made_up(offset=-0.5)
    results["penalty"] = 0.0
    table = summary.beside_print(results, READING)
    assert list(table.index) == list(METHODS)
    for data in READING:
        gap = table[f"{data}, here"].astype(float) - table[f"{data}, in print"].astype(float)
        assert gap.to_numpy() == pytest.approx(-0.5, abs=0.11)  # both are rounded to a tenth
