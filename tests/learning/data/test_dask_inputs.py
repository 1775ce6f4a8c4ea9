"""Tests of inputs that Dask holds, against the same numbers in memory."""

import numpy as np
import pytest
import torch

from bayesloss import LinkgisticClassifier
from bayesloss.learning.data.dask_inputs import DaskInputs
from bayesloss.learning.data.inputs import DenseInputs

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
pytestmark = pytest.mark.filterwarnings("ignore:not converged")


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def drawn(n=300, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 1
    return X, (rng.random(n) < 1 / (1 + np.exp(-2 * (X[:, 0] - X[:, 1])))).astype(int)


def test_each_operation_is_that_of_one_array():
    X, _ = drawn(n=70)
    rng = np.random.default_rng(1)
    weight = torch.from_numpy(rng.random(70))
    centre = torch.from_numpy(X.mean(0))
    B = torch.from_numpy(rng.normal(size=(5, 4)))
    S = torch.from_numpy(rng.normal(size=(2, 70)))
    mask = torch.from_numpy(rng.random(70) < 0.3)
    one = DenseInputs(torch.from_numpy(X))
    # 24 blocks, so that sums have two levels; columns are in two blocks.
    many = DaskInputs.of(da.from_array(X, chunks=(3, 3)))
    assert many.shape == (70, 5) and many.stored == 350 and many.largest() == one.largest()
    asked = {
        "sum": (weight,),
        "squares_about": (centre, weight),
        "scores": (B.T,),
        "pull_back": (S,),
        "along": (B, centre),
        "squared_lengths": (B, centre, 2),
        "dense": (torch.tensor([65, 3, 3, 0]),),
    }
    for name, args in asked.items():
        expected = getattr(one, name)(*args)
        torch.testing.assert_close(getattr(many, name)(*args), expected, rtol=1e-12, atol=1e-12)
    repeated = torch.tensor([40, 2, 40, 69, 2, 7, 40])
    for chosen in (mask, slice(None, None, 7), torch.tensor([40, 2, 69, 7]), repeated):
        some = many.rows(chosen)
        expected = one.rows(chosen)
        assert some.shape == expected.shape
        few = torch.tensor([1, 0, 1])
        asked = {"scores": (B.T,), "pull_back": (S[:, : len(some)],)}
        for name, args in {**asked, "dense": (few,), "along": (B, centre)}.items():
            torch.testing.assert_close(getattr(some, name)(*args), getattr(expected, name)(*args))
        again = torch.tensor([2, 0])
        torch.testing.assert_close(some.rows(again).scores(B.T), expected.rows(again).scores(B.T))
    signs = np.random.default_rng(0).integers(-1, 2, (70, 3)) * 0.1  # rows that differ by signs
    codes = DaskInputs.of(da.from_array(signs, chunks=9)).equal()
    assert ((codes[:, None] == codes[None]) == (signs[:, None] == signs[None]).all(2)).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_a_fit_is_that_of_the_data_in_memory(classes):
    X, y = drawn(n=240)
    if classes == 3:
        y = y + (X[:, 2] > 1.5)
    weight = np.random.default_rng(3).integers(0, 3, len(y)).astype(float)
    how = {"max_iter": 1, "tol": 1e-8}
    DX, Dy, Dw = (da.from_array(values, chunks=60) for values in (X, y, weight))
    one = LinkgisticClassifier(**how).fit(X, y, sample_weight=weight)
    many = LinkgisticClassifier(**how).fit(DX, Dy, sample_weight=Dw)
    np.testing.assert_allclose(many.coef_, one.coef_, rtol=1e-6, atol=1e-6)
    for name in ("predict_proba", "predict_log_proba", "decision_function", "scores", "predict"):
        lazy = getattr(many, name)(DX)
        assert dask.is_dask_collection(lazy) and lazy.chunks[0] == (60,) * 4
        expected = getattr(one, name)(X)
        assert lazy.dtype == expected.dtype and lazy.shape == expected.shape
        np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-6, atol=1e-6)


def test_a_table_of_few_kinds_is_that_of_the_data_in_memory():
    """Its rows stay apart in several parts each; sums over blocks move scores by rounding."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, 400), rng.integers(0, 3, 400)]).astype(float)
    y = (X @ [1, -0.7] + rng.logistic(size=400) > 0).astype(int)
    one = LinkgisticClassifier().fit(X, y)
    many = LinkgisticClassifier().fit(da.from_array(X, chunks=(150, 2)), y)
    np.testing.assert_allclose(many.predict_proba(X), one.predict_proba(X), rtol=1e-10)


@pytest.mark.filterwarnings("ignore:the best penalty of those tried")  # of two: not the question
def test_the_penalty_is_that_of_the_data_in_memory():
    X, y = drawn(n=150)
    how = {"C": [0.1, 1.0], "max_iter": 1, "tol": 1e-8}
    one = LinkgisticClassifier(**how).fit(X, y)
    many = LinkgisticClassifier(**how).fit(da.from_array(X, chunks=40), y)
    np.testing.assert_allclose(many.scores_, one.scores_, atol=1e-8)
    np.testing.assert_allclose(many.coef_, one.coef_, rtol=1e-6)


def test_a_data_frame_stays_where_it_is():
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    X, y = drawn(n=120)
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcde")), npartitions=3)
    labels = dd.from_pandas(pd.Series(y), npartitions=3)
    many = LinkgisticClassifier(max_iter=1, tol=1e-8).fit(frame, labels)
    one = LinkgisticClassifier(max_iter=1, tol=1e-8).fit(X, y)
    assert many.feature_names_in_.tolist() == list("abcde")
    np.testing.assert_allclose(many.coef_, one.coef_, rtol=1e-6)
    np.testing.assert_allclose(many.predict_proba(frame).compute(), one.predict_proba(X), rtol=1e-6)


def test_what_cannot_be_fitted_is_refused_and_nothing_is_half_fitted():
    X, y = drawn(n=40)
    DX = da.from_array(X, chunks=10)
    Dy = da.from_array(y, chunks=10)
    model = LinkgisticClassifier()
    refused = [
        (DX[DX[:, 0] > 0], Dy, {}, "compute_chunk_sizes"),
        (DX, Dy[Dy >= 0], {}, "y.compute_chunk_sizes"),
        (DX, Dy.rechunk(20), {}, "y.rechunk"),
        (DX, y[:30], {}, "expected 40 labels"),
        (DX[:, 0], Dy, {}, "1 dimensions"),
        (da.where(DX > 2, np.nan, DX), Dy, {}, "NaN"),
        (DX, Dy, {"groups": np.arange(40)}, "no groups"),
        (DX, 0 * Dy, {}, "one class only"),
    ]
    for inputs, labels, how, message in refused:
        with pytest.raises(ValueError, match=message):
            model.fit(inputs, labels, **how)
        assert not [name for name in vars(model) if name.endswith("_")]
    with pytest.raises(ValueError, match="device='meta'|device='cpu'"):
        LinkgisticClassifier(device="meta").fit(DX, Dy)
