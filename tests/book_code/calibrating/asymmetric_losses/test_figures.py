"""The summaries of the page on Table 4, on numbers whose answer is known."""

import numpy as np
import pandas as pd
import pytest

from bayesloss_book.calibrating.asymmetric_losses import figures
from bayesloss_book.calibrating.asymmetric_losses import table_4 as experiment
from bayesloss_book.probit_references import by_importance_sampling


def test_differences_do_not_see_a_common_excess():
    printed = experiment.printed()
    assert figures.over_ep(printed + 0.01).to_numpy() == pytest.approx(
        figures.over_ep(printed).to_numpy()
    )


def test_distance_of_the_print_to_itself():
    printed = experiment.printed()
    row = {f"{method}_{c}_{test}": value for (c, test, method), value in printed.items()}
    double = {
        name: 2 * value - row["ep_" + name.split("_", 1)[1].removeprefix("em_")]
        if not name.startswith("ep")
        else value
        for name, value in row.items()
    }
    mapped = pd.DataFrame(
        [
            {"length_scale": 0.1, "amplitude": 1.0, **row},
            {"length_scale": 0.1, "amplitude": 2.0, **double},
        ]
    )
    found = figures.distances(mapped)["factor"]
    assert found.iloc[0] == pytest.approx(1)
    assert found.iloc[1] == pytest.approx(2)


def test_misses_and_med_are_about_the_same_data():
    here = experiment.trial(0.3, 3.0, 6, 50, seed=0)
    reference = by_importance_sampling(here.prior, here.y, here.ep, n_draws=512, seed=0)
    lost = figures.misses(here, "u_00_10", 0.05, reference)
    assert (lost["positives"] == (here.y > 0).sum(-1).numpy()).all()
    table = figures.med_comparison(here, prices=(1.0,), rows=("0.05",))
    # Both average Laplace's criterion over all data sets, one with 1024 points, one with 512.
    assert table.loc["0.05", "Laplace"] == pytest.approx(lost["laplace"].mean(), abs=0.02)
    assert (np.array(table) >= 0).all()
