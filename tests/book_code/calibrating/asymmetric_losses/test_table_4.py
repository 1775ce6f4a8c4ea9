import numpy as np
import pandas as pd
import pytest
import torch

from bayesloss import CostMatrix
from bayesloss_book.calibrating.asymmetric_losses import table_4 as experiment

SMALL = {"n_sets": 6, "n_test": 40, "n_chains": 2, "n_draws": 300, "n_points": 256}


def test_a_cell_is_its_own_function_and_small_in_error():
    cell = {"repetition": 1, "test": "u_02_12", "threshold": 0.1625}
    one = experiment.measure(**cell, **experiment.KERNEL, **SMALL)
    experiment._with_references.cache_clear()
    assert one == experiment.measure(**cell, **experiment.KERNEL, **SMALL)
    assert one["settled"] == 1 and one["rounds"] >= 1
    assert one["hard"] <= 6
    assert one["laplace"] == pytest.approx(one["laplace_importance"], abs=0.02)


def test_map_has_the_whole_table():
    found = experiment.measure_map(
        length_scale=0.3, amplitude=2.0, n_sets=5, n_test=20, n_points=64
    )
    assert len(found) == 46
    assert all(0 <= v <= 1 for name, v in found.items() if name != "importance_size")


def test_thresholds_are_linear_and_costs_round_to_the_print():
    assert np.diff(list(experiment.THRESHOLDS.values())) == pytest.approx([-0.1125] * 4)
    for row, threshold in experiment.THRESHOLDS.items():
        costs = experiment.costs_at(threshold)
        assert costs.threshold == pytest.approx(threshold)
        assert f"{costs.c_plus:.2f}" == row


def frame(difference):
    rows = []
    for repetition in range(10):
        row = {"repetition": repetition, "test": "u_00_10", "threshold": 0.05}
        row |= {"laplace": 0.2 + 0.01 * repetition, "ep": 0.0}
        row["loss_em"] = row["laplace"] - difference(repetition)
        rows.append(row | {f"{m}_error": 0.01 for m in experiment.METHODS})
    return pd.DataFrame(rows)


def test_table_and_its_test():
    always = experiment.table(frame(lambda r: 1e-4 * (r + 1)))
    row = always.loc[("0.05", "u_00_10", "loss_em")]
    assert row["better"] == "loss_em"
    assert row["p"] == pytest.approx(2 / 1024)  # two-sided, all ten of one sign
    assert row["error"] == pytest.approx(0.01 / 10**0.5)
    # Of ten repetitions 0.01 apart: a standard deviation, of 9 degrees, and no error of a mean.
    assert always.loc[("0.05", "u_00_10", "laplace")]["sd"] == pytest.approx(
        0.01 * np.sqrt(sum((r - 4.5) ** 2 for r in range(10)) / 9)
    )
    assert always.loc[("0.05", "u_00_10", "laplace"), "mean"] == pytest.approx(0.245)
    assert (experiment.table(frame(lambda r: 1e-4 * (r + 1) * (-1) ** r))["better"] == "").all()
    assert (experiment.table(frame(lambda r: 0.0))["p"] == 1).all()


def test_the_references_error_is_that_of_a_mean_over_chains():
    """Chains whose losses of one wrong decision spread as known: their deviation over sqrt(16)."""
    generator = torch.Generator().manual_seed(0)
    alone = 0.6 + 0.02 * torch.randn(16, 2, 1, generator=generator, dtype=torch.float64)
    p = torch.full((2, 1), 0.6, dtype=torch.float64)
    costs = CostMatrix(1.0, 1.0)
    wrong = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    hard = torch.tensor([True, True])
    alone[:, 1] = 0.6
    # Where the best of two decisions is not taken, all of its worth is lost: a ratio of 1.
    ones = experiment._reference_error(wrong, p, alone, costs, hard)
    assert ones == pytest.approx(0, abs=1e-15)
    # Two points in one set, one of them wrong: the ratio is advantage_1 / (advantage_1 + 0.2).
    pair = torch.cat([alone[:, :1], alone[:, 1:]], dim=-1)
    found = experiment._reference_error(wrong.T, p.T, pair, costs, torch.tensor([True]))
    advantage = 2 * alone[:, 0, 0].numpy() - 1
    ratio = advantage / (advantage + 0.2)
    assert found == pytest.approx(ratio.std(ddof=1) / 4, rel=1e-9)


def test_beside_the_print_stand_its_45_numbers_in_ten_thousandths():
    rows = [
        {"repetition": k, "test": test, "threshold": threshold}
        | {method: value + 0.01 * k for method, value in values.items()}
        | {f"{method}_error": 0.0 for method in values}
        for k in (0, 1)
        for test in experiment.TESTS
        for threshold in experiment.THRESHOLDS.values()
        for values in [{"laplace": 0.3, "loss_em": 0.2, "ep": 0.1}]
    ]
    table = experiment.beside_print(pd.DataFrame(rows))
    assert table.shape == (15, 9)
    row = table.loc[("0.05", "U(0, 1)")]
    assert row["Laplace, in print"] == "1891"
    assert (row["Laplace, here"], row["EP, here"]) == ("3050.0", "1050.0")
    assert row["EP, ± here"] == "50.0"  # half of the difference of two repetitions
