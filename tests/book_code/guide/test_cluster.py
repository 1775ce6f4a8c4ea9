import joblib
import pandas as pd
import pytest

from bayesloss_book.learning.learning_curves import figure_2 as learning_curves
from paperledger.stores.results import load_provenance, run_cells


@pytest.mark.slow
def test_a_sweep_on_a_dask_cluster_of_two_processes(tmp_path):
    distributed = pytest.importorskip("distributed")
    # scikit-learn calls joblib in its cells: its calls must not wait for the busy workers.
    cells = [
        cell
        for seed in range(3)
        for cell in learning_curves.cells(
            "digits", 300, seed, ("logistic", "scikit-learn", "ISGP"), budget="short"
        )
    ]
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config("dask"),
    ):
        assert set(client.nthreads().values()) == {1}
        on_cluster = run_cells(learning_curves.measure, cells, tmp_path, "cluster")
    assert load_provenance(tmp_path, "cluster")["runs"][0]["n_jobs"] == 2
    here = run_cells(learning_curves.measure, cells, tmp_path, "here")
    pd.testing.assert_frame_equal(
        on_cluster.drop(columns="seconds"), here.drop(columns="seconds"), check_exact=True
    )
