"""Tests of what a fit says of itself."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from bayesloss.learning.estimators.linkgistic_fit import (
    FIXED_LINK,
    side_by_side,
    warn_if_separable,
    warn_of_unsettled,
)
from bayesloss.learning.weights.linear_scores import LinearScores


def test_columns_of_several_lengths():
    np.testing.assert_array_equal(side_by_side([(1.0, 2.0), (3.0,)]), [[1.0, 3.0], [2.0, np.nan]])


def test_rounds_are_advised_where_they_have_a_part():
    with pytest.warns(ConvergenceWarning, match="EM. To mend it: raise max_iter=7, scale"):
        warn_of_unsettled(["EM"], 7)
    with pytest.warns(ConvergenceWarning, match="fixed link. To mend it: scale the inputs, or"):
        warn_of_unsettled([FIXED_LINK], 7)


@pytest.mark.filterwarnings("error")
def test_nothing_to_say():
    warn_of_unsettled([], 7)


@pytest.mark.parametrize("C", [1.0, np.inf])
def test_classes_that_can_be_told_apart_without_a_penalty(C, recwarn):
    X = torch.tensor([[-1.0], [0.0], [1.0], [2.0]], dtype=torch.float64)
    labels = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1]])
    data = LinearScores.of(X, labels, torch.ones(4, dtype=torch.float64), C)
    warn_if_separable(data, X.T.repeat(2, 1), 0.1)
    told = [str(warning.message) for warning in recwarn]
    assert len(told) == (np.inf == C)
    assert all(message.startswith("1 of 2 problems can be separated") for message in told)
