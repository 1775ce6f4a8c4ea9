import numpy as np
import pytest

from bayesloss.learning.data.estimator_base import all_or_nothing, by_blocks, remember_columns

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


class Sums:
    @by_blocks
    def total(self, X, factor=1.0):
        assert isinstance(X, np.ndarray)
        return factor * X.reshape(len(X), -1).sum(axis=1)

    @by_blocks
    def pair(self, X, factor=1.0):
        return self.total(X, factor), -self.total(X, factor)

    @by_blocks
    def sign(self, X):
        return np.stack([self.total(X) < 0, self.total(X) > 0, self.total(X) == 0], axis=1)


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("shape", [(10, 3), (10,)])
def test_what_is_said_of_blocks_is_what_is_said_of_all(shape):
    X = np.random.default_rng(0).normal(size=shape)
    lazy = da.from_array(X, chunks=4 if X.ndim == 1 else (4, 2))
    model = Sums()
    assert isinstance(model.total(X), np.ndarray)
    for found, expected in (
        (model.total(lazy, 2.0), model.total(X, 2.0)),
        (model.total(lazy, factor=2.0), model.total(X, 2.0)),
        (model.pair(lazy)[1], -model.total(X)),
        (model.sign(lazy), model.sign(X)),
    ):
        assert dask.is_dask_collection(found)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert found.chunks[0] == (4, 4, 2)
        np.testing.assert_array_equal(found.compute(), expected)
    some = lazy[da.from_array(np.arange(10) > 2, chunks=4)]  # in blocks of unknown sizes
    np.testing.assert_array_equal(model.total(some).compute(), model.total(X[3:]))


@pytest.mark.parametrize("failure", [KeyError, KeyboardInterrupt])  # whoever waits no longer
def test_a_fit_that_fails_leaves_no_trace(failure):
    model = Sums()
    model.old_ = 1
    with pytest.raises(failure), all_or_nothing(model):
        model.old_ = 2
        model.new_ = 3
        raise failure
    assert vars(model) == {"old_": 1}


def test_columns_are_remembered_and_forgotten():
    pd = pytest.importorskip("pandas")
    model = Sums()
    remember_columns(model, pd.DataFrame(np.zeros((2, 2)), columns=["a", 1]))
    assert model.n_features_in_ == 2 and model.feature_names_in_.tolist() == ["a", "1"]
    remember_columns(model, np.zeros((2, 3)))
    assert vars(model) == {"n_features_in_": 3}
