"""Ratios and wins of the benchmark, by hand on a small store."""

import numpy as np
import pandas as pd
import pytest

from bayesloss_book.beyond.sparse_means import summary

STORED = pd.DataFrame(
    {
        "kind": ["line"] * 3 + ["cars"] * 3,
        "shift": [2.0] * 3 + [0.0] * 3,
        "k": [7] * 3 + [10] * 3,
        "seed": [0, 1, 2] * 2,
        "least KL: d_L": [1.0, 2.0, 4.0, 1.0, 1.0, 1.0],
        "other: d_L": [0.1, 0.2, 8.0, 1.0, 2.0, 4.0],
        "other: error": [9.0] * 6,
        "zero: d_L": [5.0] * 6,
        "posterior mean: d_L": [0.0] * 6,
    }
)


def test_ratios_are_geometric_means():
    found = summary.ratios(STORED).loc["line", 2.0, 7]
    logs = np.log([0.1, 0.1, 2.0])
    assert found.loc["other", "ratio"] == pytest.approx(np.exp(logs.mean()))
    error = logs.std(ddof=1) / np.sqrt(3)
    assert found.loc["other", "high"] == pytest.approx(np.exp(logs.mean() + error))
    assert found.loc["least KL", "ratio"] == found.loc["least KL", "low"] == 1
    assert set(found.index) == {"least KL", "other"}


def test_wins_are_strict():
    found = summary.wins(STORED, "other")
    assert found["line", 2.0, 7] == pytest.approx(2 / 3) and found["cars", 0.0, 10] == 0
