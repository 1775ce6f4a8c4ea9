"""The choice of a kernel against finite differences, grids, and changes of units."""

import numpy as np
import pytest
import torch

from bayesloss.calibrating.kernel_matrices.kernel_evidence import (
    choose_kernel,
    column_scales,
    kernel_evidence,
    stratified_rows,
)
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.laplace import laplace_probit
from bayesloss.calibrating.probit.whitened_gp import WhitenedGP
from bayesloss.kernels import SquaredExponential

INFERENCES = {"ep": expectation_propagation, "laplace": laplace_probit}


def data(n=40, columns=1, n_sets=1, seed=0):
    """Inputs of unequal units; labels that follow a sine of the first column, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, columns)) * 10.0 ** np.arange(columns)
    p = 0.5 + 0.45 * np.sin(6 * X[:, 0])
    return X, np.where(rng.uniform(size=(n_sets, n)) < p, 1.0, -1.0)


def value(X, y, length_scales, amplitude, inference):
    """The log evidence, without the module, for length scales of the columns or a stack of such."""
    inputs = torch.from_numpy(X / np.atleast_2d(length_scales)[:, None])
    prior = WhitenedGP.at(SquaredExponential(a=1.0, b=amplitude**2), inputs, batch_dims=1)
    labels = (torch.from_numpy(row).expand(len(inputs), -1) for row in y)
    found = sum(INFERENCES[inference](prior.features, row).log_evidence for row in labels)
    return found.numpy().squeeze()[()]


def objective(X, y, length_scales, amplitude, inference):
    """Evidence and the log-normal priors of amplitude and, if shared, multiple: what is sought."""
    multiple = length_scales[..., 0] / X[:, 0].std() / X.shape[1] ** 0.5
    off = np.log(amplitude / 3) ** 2 + np.log(multiple) ** 2
    return value(X, y, length_scales, amplitude, inference) - 0.5 * off / 1.5**2


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("amplitude", [0.7, 5.0])
def test_gradient_is_that_of_finite_differences(inference, amplitude):
    """Two sets of labels, three columns, far from the origin."""
    X, y = data(25, columns=3, n_sets=2)
    lengths = np.array([0.4, 7.0, 30.0])
    found = kernel_evidence(
        torch.from_numpy(X / lengths), torch.from_numpy(y), amplitude, inference=inference
    )
    assert found.value == pytest.approx(value(X, y, lengths, amplitude, inference), abs=1e-9)
    h = 1e-4  # central differences are good to h^2, and to 1e-10 / h in rounding

    def slope(log_steps, log_step):
        up, down = (
            value(
                X, y, lengths * np.exp(s * log_steps), amplitude * np.exp(s * log_step), inference
            )
            for s in (h, -h)
        )
        return (up - down) / (2 * h)

    expected = [slope(direction, 0.0) for direction in np.eye(3)]
    assert found.by_log_length.numpy() == pytest.approx(expected, abs=2e-6)
    assert found.by_log_amplitude == pytest.approx(slope(np.zeros(3), 1.0), abs=2e-6)


def test_far_from_the_origin_the_gradient_is_the_same():
    X, y = data(20, columns=2)
    here, there = (
        kernel_evidence(torch.from_numpy(X + far), torch.from_numpy(y), 2.0, inference="ep")
        for far in (0.0, 1e6)
    )
    # Inputs near 1e6 carry rounding errors of 1e-10.
    assert (here.by_log_length - there.by_log_length).abs().max() < 1e-7


@pytest.mark.parametrize("inference", INFERENCES)
def test_no_grid_point_is_better(inference):
    X, y = data(40)
    found = choose_kernel(X, y, inference=inference)
    assert found.converged
    at = objective(X, y, found.length_scales, found.amplitude, inference)
    lengths = np.geomspace(0.02, 5, 8)[:, None]
    amplitudes = np.geomspace(0.1, 90, 7)
    grid = [objective(X, y, lengths, amplitude, inference) for amplitude in amplitudes]
    # L-BFGS stops when the value rises by less than 1e-9 of itself.
    assert np.shape(grid) == (7, 8) and np.max(grid) <= at + 1e-6


def test_what_is_given_stays():
    X, y = data(30, columns=2)
    given = np.array([0.3, 8.0])
    found = choose_kernel(X, y, inference="ep", length_scales=given)
    assert (found.length_scales == given).all()
    near = [objective(X, y, given, found.amplitude * f, "ep") for f in (0.97, 1.0, 1.03)]
    assert near[1] == max(near)
    found = choose_kernel(X, y, inference="ep", amplitude=1.5)
    assert found.amplitude == 1.5
    near = [objective(X, y, found.length_scales * f, 1.5, "ep") for f in (0.97, 1.0, 1.03)]
    assert near[1] == max(near)
    # One multiple of the columns' standard deviations.
    assert np.ptp(found.length_scales / X.std(0)) < 1e-9


def test_a_column_of_its_own_length_scale():
    """With "ard" columns that play no role get long length scales, and the evidence rises."""
    X, y = data(120, columns=3)
    shared = choose_kernel(X, y, inference="ep")
    each = choose_kernel(X, y, inference="ep", ard=True)
    plain, better = (value(X, y, k.length_scales, k.amplitude, "ep") for k in (shared, each))
    assert better > plain + 1
    relative = each.length_scales / X.std(0)
    assert relative[1:].min() > 3 * relative[0]


def test_scales_of_columns():
    X = np.random.default_rng(0).normal(size=(50, 2))
    X[:, 1] = 0.1  # its computed standard deviation is not quite zero
    assert column_scales(X) == pytest.approx([X[:, 0].std(), 1.0])
    assert column_scales(X * 1e300)[0] == pytest.approx(X[:, 0].std() * 1e300)
    # Subnormal numbers have three digits here.
    assert column_scales(X * 1e-320)[0] == pytest.approx(X[:, 0].std() * 1e-320, rel=1e-2)
    assert (column_scales(np.zeros((3, 2))) == 1).all()


def test_rows_of_a_search():
    """As many as asked for, each class with its share, and the same ones again."""
    y = np.where(np.arange(1000)[None] < 100, 1.0, -1.0)
    rows = stratified_rows(y, 250)
    assert len(np.unique(rows)) == 250 and (rows == stratified_rows(y, 250)).all()
    assert abs((y[0, rows] > 0).sum() - 25) <= 1
    assert (stratified_rows(y[:, :30], 250) == np.arange(30)).all()


def test_many_rows_are_searched_in_part():
    X, y = data(700)
    rows = stratified_rows(y, 500)
    given = X.std(0)
    found = choose_kernel(X, y, inference="laplace", length_scales=given)
    part = choose_kernel(X[rows], y[:, rows], inference="laplace", length_scales=given)
    # L-BFGS stops when the value rises by less than 1e-9 of itself.
    assert found.amplitude == pytest.approx(part.amplitude, rel=1e-3)


def test_nothing_is_sought_where_all_is_given():
    X, y = data(10)
    found = choose_kernel(X, y, inference="ep", length_scales=np.array([0.3]), amplitude=2.0)
    assert (found.length_scales[0], found.amplitude, found.converged) == (0.3, 2.0, True)
