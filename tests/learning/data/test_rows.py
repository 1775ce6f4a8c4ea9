import os
import signal
from contextlib import nullcontext

import numpy as np
import pytest

from bayesloss import ISGPRegressor, LinkCalibrator, LinkgisticClassifier
from bayesloss.learning.data.range_map import DEPTHS, RangeMap
from bayesloss.learning.data.rows import DaskRows, Rows, extremes, largest

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

LEVELS = np.concatenate([DEPTHS, 1 - DEPTHS])


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def drawn(n=600, seed=0, df=3):
    rng = np.random.default_rng(seed)
    x = rng.standard_t(df, n)
    y = np.arctan(x) + 0.3 * rng.normal(size=n)
    labels = (rng.random(n) < 1 / (1 + np.exp(-np.clip(x, -9, 9)))).astype(int)
    return x, y, labels, rng.integers(0, 4, n).astype(float)


def in_blocks(*values, size=170):
    return [da.from_array(each, chunks=(size, *each.shape[1:])) for each in values]


def brute_force(x, weight, level):
    """The two points whose levels, half of ties below, lie around this one."""
    points, place = np.unique(x, return_inverse=True)
    mass = np.bincount(place, weight)
    middle = (mass.cumsum() - mass / 2) / mass.sum()
    above = int(np.searchsorted(middle, level).clip(1, len(points) - 1))
    return points[above - 1 : above + 1], middle[above - 1 : above + 1]


def test_what_is_said_of_parts_and_merged_is_what_is_said_of_all():
    rng = np.random.default_rng(0)
    x = rng.normal(size=50)
    y = rng.normal(size=50)
    weight = rng.random(50)
    cuts = [
        Rows(*part) for part in zip(*(np.split(v, [7, 7, 30]) for v in (x, y, weight)), strict=True)
    ]
    expected = [-min(x), max(x), -min(y), max(y)]
    assert Rows(x, y, weight).fold(extremes, merge=largest).tolist() == expected
    assert largest([cut.fold(extremes) for cut in cuts]).tolist() == expected
    assert sum(cut.fold(lambda x, y, weight: len(x)) for cut in cuts) == 50
    x[3] = np.nan
    found = largest([Rows(x[:9], y[:9], weight[:9]).fold(extremes), np.array(expected)])
    assert np.isnan(found[:2]).all() and found[2:] == pytest.approx(expected[2:])


def test_a_map_changes_x_and_y_and_keeps_weights():
    rows = Rows(np.arange(3.0), np.ones(3), np.array([1.0, 2.0, 3.0]))
    shifted = rows.map(lambda x: x + 10.0, lambda y: -y)
    assert shifted.fold(lambda x, y, weight: float(weight @ (x * y))) == -(10 + 22 + 36)
    points, weight = shifted.distribution(np.array([0.5]))
    assert points.tolist() == [10, 11, 12] and weight.tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", ["spread", "tied", "far", "infinite", "tiny", "huge"])
def test_points_near_asked_levels_are_exact(kind, monkeypatch):
    """As by sorting all; with few rows left to divide, and with many, to the last bit of a cell."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000)
    x = {
        "spread": x,
        "tied": np.round(4 * x) / 4 * np.where(x > 1, 1, -1),  # zeros of both signs
        "far": np.exp(100 * x) * np.sign(rng.normal(size=3000)),
        "infinite": np.where(np.abs(x) > 2, np.copysign(np.inf, x), x),
        "tiny": 1e-300 * x.round(3),
        "huge": 1e300 * x.round(3),
    }[kind]
    weight = rng.integers(1, 4, 3000).astype(float)
    asked = np.array([0.5, 0.25, 2.0**-9, 1 - 2.0**-9, 0.01, 1 - 1 / 32])
    for few in (2**14, 50, 0):
        monkeypatch.setattr("bayesloss.learning.data.rows._FEW", few)
        rows = DaskRows.in_blocks(*in_blocks(x, x, weight, size=450), "x")
        points, mass = rows.distribution(asked)
        assert mass.sum() == weight.sum() and (np.diff(points) > 0).all()
        assert (points[0], points[-1]) == (x.min(), x.max())
        middle = (mass.cumsum() - mass / 2) / mass.sum()
        for level in asked:
            for point, its in zip(*brute_force(x, weight, level), strict=True):
                assert middle[points == point] == pytest.approx([its], abs=1e-15)
    assert len(points) < 3000 or kind == "far"


@pytest.mark.parametrize("df", [1, 3])
def test_the_range_map_of_few_points_is_that_of_all(df):
    x, _, _, weight = drawn(n=20_000, df=df)
    points, mass = DaskRows.in_blocks(*in_blocks(x, x, weight, size=3000), "x").distribution(LEVELS)
    assert len(points) < 10_000
    x = x[weight > 0]
    weight = weight[weight > 0]
    maps = [RangeMap.fit(*each) for each in ((points, mass), (x, weight))]
    at = np.linspace(-20, 20, 101)
    assert not maps[1].is_identity
    np.testing.assert_allclose(maps[0](at), maps[1](at), rtol=1e-12, atol=1e-12)


PLAIN = {"n_basis": 8, "average_hyperparameters": False}


@pytest.mark.parametrize("how", [PLAIN, PLAIN | {"prior": "gp", "robust_range": False}])
def test_a_regression_is_that_of_the_data_in_memory(how):
    x, y, _, weight = drawn()
    X = x[:, None]
    y = -y
    DX, Dy, Dw = in_blocks(X, y, weight)
    one = ISGPRegressor(**how).fit(X, y, weight)
    many = ISGPRegressor(**how).fit(DX, Dy, Dw)
    assert not many.increasing_
    assert many.log_evidence_ == pytest.approx(one.log_evidence_, rel=1e-9)
    asked = {"predict": {"return_std": True}, "predict_interval": {"level": 0.9}}
    for name, more in asked.items():
        lazy = getattr(many, name)(DX, **more)
        expected = getattr(one, name)(X, **more)
        assert isinstance(lazy, tuple)
        for ours, theirs in zip(lazy, expected, strict=True):
            assert dask.is_dask_collection(ours) and ours.chunks == (DX.chunks[0],)
            np.testing.assert_allclose(ours.compute(), theirs, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(many.predict(DX).compute(), one.predict(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["real", "far", "wrong way", "probability"])
def test_a_calibration_is_that_of_the_data_in_memory(kind):
    x, _, labels, weight = drawn(n=900, df=1 if kind == "far" else 30)
    if kind == "wrong way":
        x = -x
    if kind == "probability":
        x = 1 / (1 + np.exp(-x))
        x[:40] = 0.0
        x[40:90] = 1.0
    labels = np.where(labels == 1, "yes", "no")
    Dx, Dy, Dw = in_blocks(x, labels, weight)
    warned = pytest.warns(UserWarning, match="wrong way") if kind == "wrong way" else nullcontext()
    with warned:
        one = LinkCalibrator().fit(x, labels, weight)
        many = LinkCalibrator().fit(Dx, Dy, Dw)
    assert many.scale_ == one.scale_ and many.classes_.tolist() == ["no", "yes"]
    lazy = many.predict_proba(Dx)
    assert dask.is_dask_collection(lazy) and lazy.chunks == (Dx.chunks[0], (2,))
    np.testing.assert_allclose(lazy.compute(), one.predict_proba(x), rtol=1e-6, atol=1e-6)
    for ours, theirs in zip(many.predict_interval(Dx), one.predict_interval(x), strict=True):
        np.testing.assert_allclose(ours.compute(), theirs, rtol=1e-6, atol=1e-6)
    assert (many.predict(Dx).compute() == one.predict(x)).all()


def test_labels_and_targets_may_be_in_memory():
    x, y, labels, _ = drawn(n=300)
    (DX,) = in_blocks(x[:, None], size=90)
    one = ISGPRegressor(**PLAIN).fit(x[:, None], y)
    many = ISGPRegressor(**PLAIN).fit(DX, list(y))
    assert many.log_evidence_ == pytest.approx(one.log_evidence_, rel=1e-9)
    proba = LinkCalibrator().fit(DX, labels).predict_proba(x)
    np.testing.assert_allclose(proba, LinkCalibrator().fit(x, labels).predict_proba(x), rtol=1e-6)


def test_a_data_frame_stays_where_it_is():
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    x, y, labels, _ = drawn(n=120)
    frame = dd.from_pandas(pd.DataFrame({"a": x}), npartitions=3)
    Dy, Dlabels = (dd.from_pandas(pd.Series(each), npartitions=3) for each in (y, labels))
    many = ISGPRegressor(**PLAIN).fit(frame, Dy)
    one = ISGPRegressor(**PLAIN)
    assert many.feature_names_in_.tolist() == ["a"]
    expected = one.fit(x[:, None], y).predict(x[:, None])
    np.testing.assert_allclose(many.predict(frame).compute(), expected, rtol=1e-6)
    proba = LinkCalibrator().fit(frame["a"], Dlabels).predict_proba(frame["a"]).compute()
    np.testing.assert_allclose(proba, LinkCalibrator().fit(x, labels).predict_proba(x), rtol=1e-6)


def test_what_cannot_be_fitted_is_refused_and_nothing_is_half_fitted():
    x, y, labels, weight = drawn(n=40)
    DX, Dx, Dy, Dlabels, Dw = in_blocks(x[:, None], x, y, labels, weight, size=10)
    regressor = ISGPRegressor()
    calibrator = LinkCalibrator()
    refused = [
        (regressor, (DX[Dx > 0], Dy), "compute_chunk_sizes"),
        (regressor, (DX, Dy[Dy > 0]), "y.compute_chunk_sizes"),
        (regressor, (DX, Dy.rechunk(20)), "y.rechunk"),
        (regressor, (DX, y[:30]), "expected 40 y"),
        (regressor, (Dx, Dy), "one feature"),
        (regressor, (da.stack([Dx, Dx], axis=1), Dy), "one feature"),
        (regressor, (da.where(DX > 0.2, np.nan, DX), Dy), "finite X"),
        (regressor, (DX, da.where(Dy > 0.2, np.inf, Dy)), "finite y"),
        (regressor, (DX, 0 * Dy + 4), "40 times 4.0"),
        (regressor, (0 * DX, Dy), "2 distinct inputs, got 1"),
        (regressor, (DX, Dy, 0 * Dw), "2 distinct inputs, got 0"),
        (regressor, (DX, Dy, -Dw), "at least 0"),
        (calibrator, (Dx[Dx > 0], Dlabels), "compute_chunk_sizes"),
        (calibrator, (Dx, Dlabels.rechunk(20)), "in the blocks of scores"),
        (calibrator, (da.stack([Dx, Dx], axis=1), Dlabels), "one number a row"),
        (calibrator, (da.where(Dx > 0.2, np.nan, Dx), Dlabels), "NaN"),
        (calibrator, (Dx, 0 * Dlabels), "only 0"),
        (calibrator, (Dx, da.arange(40, chunks=10)), "got 40"),
        (calibrator, (Dx, Dlabels + 0.5), "continuous"),
        (calibrator, (Dx, Dlabels, None, np.arange(40)), "no groups"),
        (LinkCalibrator(scale="probability"), (Dx, Dlabels), r"in \[0, 1\], got -"),
    ]
    for model, data, message in refused:
        with pytest.raises(ValueError, match=message):
            model.fit(*data)
        assert not [name for name in vars(model) if name.endswith("_") or name.startswith("_")]


def test_memory_that_runs_out_says_what_to_do():
    def burst(block):
        raise MemoryError("no room")

    Dx = da.zeros(40, chunks=10).map_blocks(burst, meta=np.empty(0))
    cases = (ISGPRegressor(), Dx[:, None]), (LinkgisticClassifier(), Dx[:, None])
    for model, data in (*cases, (LinkCalibrator(), Dx)):
        with pytest.raises(RuntimeError, match="smaller blocks.*no room"):
            model.fit(data, np.arange(40) % 2)
        assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ISGPRegressor, LinkCalibrator])
def test_a_worker_killed_in_the_middle_changes_nothing(kind, monkeypatch):
    distributed = pytest.importorskip("distributed")
    x, y, labels, _ = drawn(n=4000)
    how, x, y, ask = {
        ISGPRegressor: ({"n_basis": 8}, x[:, None], y, "predict"),
        LinkCalibrator: ({}, x, labels, "predict_proba"),
    }[kind]
    expected = getattr(kind(**how).fit(x, y), ask)(x[:9])
    calls = []
    fold = DaskRows.fold
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as here,
        distributed.Client(here) as client,
        dask.config.set(scheduler=client),
    ):
        workers = client.run(os.getpid)

        def watched(self, *args, **kwargs):
            calls.append(len(calls))
            if len(calls) == 4:
                os.kill(next(iter(workers.values())), signal.SIGKILL)
            return fold(self, *args, **kwargs)

        monkeypatch.setattr(DaskRows, "fold", watched)
        Dx, Dy = (each.persist() for each in in_blocks(x, y, size=500))
        found = getattr(kind(**how).fit(Dx, Dy), ask)(x[:9])
    assert len(calls) > 4
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
def test_rows_that_are_made_of_more_than_a_worker_holds():
    """Scores of 1 GB of inputs, a worker of 700 MB: blocks come and go, but one is too much."""
    distributed = pytest.importorskip("distributed")
    n = 125_000
    columns = 1000
    x, y, labels, _ = drawn(n=n)
    how = {"n_basis": 8, "average_hyperparameters": False}
    expected = [
        ISGPRegressor(**how).fit(x[:, None], y).predict(x[:9, None]),
        LinkCalibrator().fit(x, labels).predict_proba(x[:9])[:, 1],
    ]
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="700MB", dashboard_address=None
        ) as here,
        distributed.Client(here) as client,
        dask.config.set(scheduler=client),
    ):
        limit = sum(each["memory_limit"] for each in client.scheduler_info()["workers"].values())
        Dx, Dy, Dlabels = in_blocks(x, y, labels, size=n // 20)
        inputs = Dx[:, None] * da.from_array(np.ones(columns), chunks=columns)
        assert inputs.nbytes > 1.4 * limit
        scores = inputs.mean(axis=1)
        found = [
            ISGPRegressor(**how).fit(scores[:, None], Dy).predict(x[:9, None]),
            LinkCalibrator().fit(scores, Dlabels).predict_proba(x[:9])[:, 1],
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        with pytest.raises(RuntimeError, match=r"smaller blocks.*\((KilledWorker|MemoryError)"):
            LinkCalibrator().fit(inputs.rechunk(n).mean(axis=1), labels)
