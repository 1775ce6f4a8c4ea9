from functools import cache

import numpy as np
import pytest

from bayesloss_book.beyond.sparse_means import problems
from bayesloss_book.beyond.sparse_means.problems import KINDS

draw = cache(problems.draw)


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_fit(kind):
    problem = draw(kind, 2.0, 5, 0)
    assert len(set(problem.support)) == 5
    assert problem.points.shape[1:] == problem.fresh.shape[1:] == problem.model.x.shape[1:]
    assert problem.outcomes.shape == problem.fresh.shape[:1]
    assert problem.weights is None or float(problem.weights.sum()) == pytest.approx(1)


@pytest.mark.parametrize("kind", ["plane", "four inputs"])
def test_test_inputs_lie_where_they_should(kind):
    problem = draw(kind, 2.0, 5, 0)
    for inputs in (problem.points, problem.fresh):
        error = 4 / len(inputs) ** 0.5  # standard errors of a mean of variance below 1
        assert abs(float(inputs[:, 0].mean()) - 2) < error
        assert float(inputs[:, 1:].mean(dim=0).abs().max()) < error
    same = draw(kind, 0.0, 5, 0)
    assert float(same.fresh.std()) == pytest.approx(1.2, rel=0.05)
    assert float(same.model.x.std()) == pytest.approx(1.2, rel=0.05)


def test_outcomes_are_the_function_that_data_come_from():
    """The posterior mean of 2,000 data is near it: 0.04 of noise, 1 of prior variance."""
    problem = draw("plane", 0.0, 5, 1)
    gap = problem.model.action(problem.fresh, problem.model.mean) - problem.outcomes
    assert float((gap**2).median()) < 0.004


@pytest.mark.parametrize(("kind", "rows"), [("cars", 392), ("diabetes", 442)])
def test_tables_are_split_and_sorted(kind, rows):
    problem = draw(kind, 2.0, 5, 0)
    parts = [problem.model.x, problem.points, problem.fresh]
    assert sum(map(len, parts)) == rows
    assert len(np.unique(np.vstack(parts), axis=0)) > rows - 10  # nearly all rows are different
    column = 3 if kind == "cars" else 2
    assert float(problem.fresh[:, column].mean()) > float(problem.model.x[:, column].mean())
    assert float(problem.model.y.mean()) == pytest.approx(0, abs=1e-12)
    assert abs(len(draw(kind, 0.0, 5, 0).model.y) - rows / 2) < 4 * (rows / 4) ** 0.5
