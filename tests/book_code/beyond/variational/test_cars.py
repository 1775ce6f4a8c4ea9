"""Cars by Laplace and by variation: one fit by hand."""

import pytest

from bayesloss_book.beyond.variational import cars


def test_the_bound_rises_and_predictions_make_sense():
    cell = {"input": "weight", "size": "small", "split": 0, "n_basis": 6}
    found = {method: cars.measure(method=method, **cell) for method in cars.METHODS}
    assert found["variational"]["bound"] > found["laplace"]["bound"]
    for row in found.values():
        assert 10 < row["mse"] < 30  # the variance of mileage is 61, Table 1 has about 18
        # The training set is a fifth of 392 cars: four binomial errors of the others.
        assert row["covered"] == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / 314) ** 0.5)
