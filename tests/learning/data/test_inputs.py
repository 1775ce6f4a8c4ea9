"""Tests of sparse inputs, against the same numbers as a dense array."""

import tracemalloc

import numpy as np
import pytest
import torch
from scipy import sparse

from bayesloss import LinkgisticClassifier
from bayesloss.learning.data.inputs import DenseInputs, SparseInputs, canonical, equal_rows

pytestmark = pytest.mark.filterwarnings("ignore:not converged")
FORMS = [sparse.csr_array, sparse.csc_matrix]


def drawn(n=120, d=30, density=0.15, seed=0):
    """Sparse inputs with a column of zeros and one that is nearly constant, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    X[:, 3] = 0.0
    X[:, 4] = 5.0 + 1e-3 * X[:, 4]
    slope = rng.normal(size=d) * 3
    return X, (rng.random(n) < 1 / (1 + np.exp(-(X - X.mean(0)) @ slope))).astype(int)


def test_equal_rows_are_those_of_the_dense_matrix():
    rng = np.random.default_rng(0)
    X = rng.integers(-1, 2, (80, 3)) * 0.1  # some rows differ by signs alone
    same = (X[:, None] == X[None]).all(2)
    codes = equal_rows(canonical(sparse.csr_array(X)))
    assert ((codes[:, None] == codes[None]) == same).all()


@pytest.mark.parametrize("form", FORMS)
def test_a_fit_is_that_of_the_dense_matrix(form):
    X, y = drawn()
    weight = np.random.default_rng(2).integers(0, 3, len(y))
    for how in ({}, {"sample_weight": weight}, {"groups": np.arange(len(y)) // 2}):
        model = LinkgisticClassifier(tol=1e-8, max_iter=2, C=0.5)
        dense = model.fit(X, y, **how)
        coef = dense.coef_
        p = dense.predict_proba(X)
        model.fit(form(X), y, **how)
        np.testing.assert_allclose(model.coef_, coef, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(model.predict_proba(form(X)), p, rtol=1e-6)
        np.testing.assert_allclose(model.scores(form(X)), model.scores(X), atol=1e-9)


@pytest.mark.filterwarnings("ignore:the best penalty of those tried")
def test_many_classes_and_the_path_of_penalties():
    X, _ = drawn(n=90, d=8, density=0.4)
    y = np.digitize(X[:, 0] - X[:, 1], [-0.5, 0.5])
    for model in (
        LinkgisticClassifier(max_iter=1, tol=1e-8),
        LinkgisticClassifier(C=[0.1, 1.0], max_iter=1, tol=1e-8),
    ):
        p = model.fit(X, y).predict_proba(X)
        held = getattr(model, "scores_", None)
        model.fit(sparse.csr_array(X), y)
        np.testing.assert_allclose(model.predict_proba(sparse.csr_array(X)), p, atol=1e-6)
        if held is not None:
            np.testing.assert_allclose(model.scores_, held, atol=1e-6)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("sum", ["weight"]),
        ("squares_about", ["centre", "weight"]),
        ("scores", ["beta"]),
        ("pull_back", ["slopes"]),
        ("along", ["directions", "centre"]),
    ],
)
def test_each_operation_is_that_of_the_dense_matrix(operation, arguments):
    """With weights from 0.5 to 3 and a centre that is not the mean; up to rounding."""
    X, _ = drawn()
    n, d = X.shape
    generator = torch.Generator().manual_seed(0)
    shapes = {"centre": (d,), "beta": (3, d), "slopes": (3, n), "directions": (d, 2)}
    given = {
        name: torch.randn(shape, dtype=torch.float64, generator=generator)
        for name, shape in shapes.items()
    }
    given["weight"] = 0.5 + 2.5 * torch.rand(n, dtype=torch.float64, generator=generator)
    results = [
        getattr(inputs, operation)(*(given[name] for name in arguments))
        for inputs in (SparseInputs(sparse.csr_array(X)), DenseInputs(torch.from_numpy(X)))
    ]
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


def test_explicit_zeros_and_repeated_numbers_change_nothing():
    X, y = drawn(n=60, d=6, density=0.5)
    rows, columns = np.nonzero(np.ones_like(X))  # every zero is stored
    halves = np.concatenate([0.5 * X.ravel(), 0.5 * X.ravel()])
    where = (np.tile(rows, 2), np.tile(columns, 2))
    stored = sparse.coo_array((halves, where), shape=X.shape)
    ends = np.arange(0, X.size + 1, 6)
    with_zeros = sparse.csr_array((X.ravel(), columns, ends), shape=X.shape)
    model = LinkgisticClassifier(max_iter=1, tol=1e-8)
    coef = model.fit(X, y).coef_
    for given in (stored, with_zeros):
        np.testing.assert_allclose(model.fit(given, y).coef_, coef, atol=1e-6)
    assert with_zeros.nnz == X.size  # the user's matrix is as it was


def test_what_is_no_number_is_refused():
    X, y = drawn(n=40, d=5)
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        LinkgisticClassifier().fit(sparse.csr_array(X), y)
    with pytest.raises(ValueError, match="device='cpu'"):
        LinkgisticClassifier(device="meta").fit(sparse.csr_array(np.nan_to_num(X)), y)


def wide(n=1000, d=100_000, m=5, seed=0):
    """Whose dense form would take 800 MB; the first column tells the labels apart."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(1, d, (n, m))
    columns[:, 0] = np.where(rng.random(n) < 0.5, 0, columns[:, 0])
    X = sparse.csr_array((np.ones(n * m), (np.repeat(np.arange(n), m), columns.ravel())), (n, d))
    y = rng.random(n) < np.where(X[:, [0]].toarray().ravel() > 0, 0.8, 0.2)
    return X, y.astype(int)


def test_a_wide_matrix_is_never_made_dense():
    X, y = wide()
    tracemalloc.start()
    try:
        model = LinkgisticClassifier(max_iter=1).fit(X, y)
        p = model.predict_proba(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # NumPy's memory; PyTorch's is not traced, and is made only of what is checked here and weights.
    assert peak < 50e6
    assert np.mean(p.argmax(1) == y) > 0.75
    model.fit(X, y, groups=np.arange(len(y)) // 2)
