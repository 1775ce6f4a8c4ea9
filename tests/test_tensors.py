import math

import numpy as np
import pandas as pd
import pytest
import torch

from bayesloss.tensors import (
    as_canonical_scores,
    as_float64,
    as_labels,
    as_number,
    as_points,
    as_probabilities,
    as_scalar,
)


@pytest.mark.parametrize(
    "values",
    [[1, 2], np.array([2, 1])[::-1], np.array([1, 2], dtype=np.float32), pd.Series([1, 2])],
)
def test_numbers_of_any_kind_become_float64(values):
    out = as_float64(values)
    assert out.dtype == torch.float64
    assert out.tolist() == [1, 2]


@pytest.mark.parametrize("values", [1j, [1j], np.array([1j]), torch.tensor([1j])])
def test_complex_numbers_are_refused(values):
    with pytest.raises(ValueError, match="expected real numbers, got complex ones"):
        as_float64(values)


def test_a_read_only_array_is_copied():
    values = np.array([1.0, 2.0])
    values.flags.writeable = False
    as_float64(values)[0] = 5
    assert values[0] == 1


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (as_probabilities, [[0.0, 0.5, 1.0]], [-1e-9, 1 + 1e-9, math.nan]),
        (as_labels, [[-1.0, 1.0]], [0, 2, math.nan]),
        (as_canonical_scores, [[-math.inf, 0.0, math.inf]], [math.nan]),
    ],
)
def test_the_first_value_out_of_place_is_told(read, good, bad):
    assert read(good).tolist() == good
    for value in bad:
        with pytest.raises(ValueError, match=rf"^expected .*, got {value}"):
            read([*good[0], value, math.nan])


def test_gradients_are_kept():
    x = torch.tensor(3.0, requires_grad=True)
    (as_float64(x) * as_scalar(x)).backward()
    assert x.grad == 6
    assert as_number(x) == 3
    assert type(as_number(x)) is float


def test_points_have_one_dimension():
    for dtype in (torch.int64, torch.float32, torch.float64):
        assert as_points(torch.tensor([1, 2], dtype=dtype)).dtype == torch.float64
    with pytest.raises(ValueError, match=r"expected scores of shape \(n,\), got \(1, 2\)"):
        as_points(torch.zeros(1, 2), "scores")
