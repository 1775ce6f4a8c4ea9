import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayesloss import LinkCalibrator
from bayesloss_book.beyond.calibration import summary


def made_up(losses, n=200):
    """Wide rows as a store has them, from {(data, task, model): {method: [loss by draw]}}."""
    rows = []
    for (data, task, model), by_method in losses.items():
        for number in range(len(next(iter(by_method.values())))):
            row = {"data": data, "task": task, "model": model, "n": n, "number": number}
            for method, values in by_method.items():
                row |= {f"{method}: log_loss": values[number], f"{method}: brier": 0.1}
            rows.append(row | {"seconds": 1.0})
    return pd.DataFrame(rows)


LOSSES = {
    ("mnist", "odd", "boosting"): {"link": [1.0, 2.0], "sigmoid": [2.0, 3.0], "none": [4.0, 4.0]},
    ("mnist", "3", "boosting"): {"link": [1.0, 1.0], "sigmoid": [0.5, 0.5], "none": [1.5, 1.5]},
    ("votes", "curve", "curve"): {"link": [1.0, 1.0], "sigmoid": [1.0, 1.0], "none": [2.0, 2.0]},
}


def test_stores_are_joined_by_draw_and_marked():
    first = made_up({key: {"link": v["link"]} for key, v in LOSSES.items()})
    second = made_up({key: {"none": v["none"]} for key, v in LOSSES.items()})
    rows = summary.long(first, second.iloc[:-1])  # one draw is not yet measured
    assert len(rows) == 2 * 5
    assert set(rows["method"]) == {"link", "none"}
    assert set(rows.loc[rows["data"] == "votes", "kind"]) == {"curve"}
    assert rows.loc[rows["tuned"], "data"].unique() == ["mnist"]
    assert rows["tuned"].sum() == 4  # the odd digits by boosting


def test_excess_is_over_the_best_of_the_row_by_the_mean_over_draws():
    found = summary.excess(summary.long(made_up(LOSSES)))
    assert list(found) == ["link", "none", "sigmoid"]  # in the order of METHODS
    row = found.loc[("mnist", "odd", "boosting", 200)]
    assert row.to_dict() == {"link": 0.0, "sigmoid": 1.0, "none": 2.5}
    assert found.loc[("mnist", "3", "boosting", 200), "link"] == 0.5


def test_copies_of_a_set_tell_nothing_new():
    index = [(f"d{i}", "t", "m") for i in range(7)]
    twice = [(d, t, m + again) for again in ("", "'") for d, t, m in index]
    values = np.random.default_rng(0).normal(size=7)
    one, two = (
        summary.mean_and_error(pd.Series(v, index=pd.MultiIndex.from_tuples(i, names=summary.SET)))
        for v, i in ((values, index), (np.tile(values, 2), twice))
    )
    assert two["error"] == pytest.approx(one["error"])


def test_win_rates_count_the_methods_beaten_and_ties_half():
    rates = summary.win_rates(summary.long(made_up(LOSSES)))[200]
    # link beats both, then none alone, then ties with one and beats the other.
    assert rates["link"] == pytest.approx((1 + 0.5 + 0.75) / 3)
    assert rates["none"] == 0
    assert rates.mean() == pytest.approx(0.5)


def test_the_best_rival_is_the_one_with_the_lowest_mean():
    row = summary.against(summary.long(made_up(LOSSES))).loc[200]
    assert row["rival"] == "sigmoid"
    assert row["mean"] == pytest.approx((-1 + 0.5 + 0) / 3)
    assert row["sets"] == 3


def test_the_part_of_the_draws_is_their_standard_error():
    """Two sets with gaps of variance 4 and 1 over many draws: sqrt(4 / n + 1 / n) / 2."""
    rng = np.random.default_rng(0)
    losses = {
        (data, "curve", "curve"): {"link": rng.normal(5, sd, 4_000), "none": np.zeros(4_000)}
        for data, sd in (("votes", 2), ("concave", 1))
    }
    found = summary.draws_part(summary.long(made_up(losses)), 200, "none")
    assert found == pytest.approx(np.sqrt(5 / 4_000) / 2, rel=0.05)  # 1.1 % a variance


def test_the_readme_says_what_is_stored():
    """Mean excess log loss of ours and of the next best, in thousandths of a nat."""
    root = Path(__file__).resolve().parents[4]
    rows = summary.everything(root / "data" / "results")
    means = 1e3 * summary.table(rows).xs("mean", axis=1, level=1)[[200, 1_000, 5_000, 20_000]]
    ours = means.loc["link"]
    rivals = means.drop("link").min()
    said = re.sub(r" ± [\d.]+", "", (root / "README.md").read_text(encoding="utf-8"))
    assert "| cases to calibrate on | 200 | 1,000 | 5,000 | 20,000 |" in said
    for name, values in (("`LinkCalibrator`", ours), ("the next best", rivals)):
        assert " | ".join([f"| {name}", *(f"{value:.1f}" for value in values)]) + " |" in said
    sets = rows[["data", "task", "model", "n"]].drop_duplicates().groupby("n").size().loc[:20_000]
    data = rows.groupby("n")["data"].nunique()[[200, 1_000, 5_000, 20_000]]
    assert f"{sets.min()} to {sets.max()} sets of scores for each size" in said
    assert f"for each size, from {data.min()} to {data.max()} data sets" in said


def test_the_harm_that_is_told_is_what_is_stored():
    """On how many sets ours is worse, and by how much there, in the docstring."""
    root = Path(__file__).resolve().parents[4]
    excess = 1e3 * summary.excess(summary.everything(root / "data" / "results"))
    told = " ".join(LinkCalibrator.__doc__.split())
    for n in (200, 1_000):
        at = excess.xs(n, level="n")
        for rival in ("sigmoid", "none"):
            gap = at["link"] - at[rival]
            worse = gap[gap > 0]
            part = f"{len(worse) / len(gap):.0%}".replace("%", " %")
            by = f"{worse.mean():.1f}", f"at most {worse.max():.1f}"
            assert re.search(rf"on {part} \((by )?{by[0]}( millinats on average)?, {by[1]}\)", told)
            if n == 200:
                assert f"Of {len(gap)} stored sets" in told
