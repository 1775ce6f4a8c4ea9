"""What inputs of Dask cost beside inputs in memory; for sparse ones see `test_fits`.

Run by ``make bench``. Dask's blocks are in this process, computed one after another: what is
measured is the cost of cutting every pass into tasks, not that of a network.
"""

import numpy as np
import pytest

from bayesloss import ISGPRegressor, LinkCalibrator, LinkgisticClassifier

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.benchmark(group="20,000 x 50: in memory, and in 4 blocks of Dask")
@pytest.mark.parametrize("blocks", [None, 4])
def test_blocks(benchmark, blocks):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 50))
    y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ rng.normal(size=50) / 3))).astype(int)
    if blocks is None:
        benchmark.pedantic(LinkgisticClassifier().fit, (X, y), rounds=1, warmup_rounds=1)
        return
    da = pytest.importorskip("dask.array")
    dask = pytest.importorskip("dask")
    with dask.config.set(scheduler="synchronous"):
        X, y = (da.from_array(each, chunks=(len(X) // blocks, *each.shape[1:])) for each in (X, y))
        benchmark.pedantic(LinkgisticClassifier().fit, (X, y), rounds=1, warmup_rounds=1)


@pytest.mark.benchmark(group="1,000,000 rows of one number: in memory, and in 8 blocks of Dask")
@pytest.mark.parametrize("blocks", [None, 8])
@pytest.mark.parametrize("kind", [LinkCalibrator, ISGPRegressor])
def test_one_number_a_row(benchmark, kind, blocks):
    rng = np.random.default_rng(0)
    x = rng.standard_t(2, 1_000_000)  # far enough out for a map, the dearer case
    y = np.arctan(x) + 0.3 * rng.normal(size=len(x))
    data = (x, (y > 0).astype(int)) if kind is LinkCalibrator else (x[:, None], y)
    if blocks is None:
        benchmark.pedantic(kind().fit, data, rounds=1)
        return
    da = pytest.importorskip("dask.array")
    dask = pytest.importorskip("dask")
    with dask.config.set(scheduler="synchronous"):
        cut = [da.from_array(each, chunks=(len(x) // blocks, *each.shape[1:])) for each in data]
        benchmark.pedantic(kind().fit, cut, rounds=1)
