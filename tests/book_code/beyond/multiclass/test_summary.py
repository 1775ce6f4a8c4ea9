"""Differences of methods, and their errors."""

import numpy as np
import pandas as pd
import pytest

from bayesloss_book.beyond.multiclass import summary
from bayesloss_book.beyond.multiclass.benchmark import METHODS


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    cells = [("kmnist", 10_000, 0.1, 0), *(("iris", 0, 1.0, seed) for seed in range(4))]
    found = pd.DataFrame(cells, columns=["data", "n", "C", "seed"])
    for method in METHODS:
        found[f"{method}: loss"] = rng.uniform(0.1, 0.2, 5)
        found[f"{method}: less"] = 0.01
    return found


def test_differences(rows):
    """Errors over splits where there are some, over test cases else."""
    found = summary.differences(rows)
    less = (rows["joint: loss"] - rows["temperature: loss"])[1:]
    row = found.loc[("iris", 0, 1.0), "joint"]
    assert row["mean"] == pytest.approx(less.mean())
    assert row["error"] == pytest.approx(less.std(ddof=1) / 2)
    assert found.loc[("kmnist", 10_000, 0.1), ("joint", "error")] == 0.01
