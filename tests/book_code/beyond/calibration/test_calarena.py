import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit
from sklearn.metrics import brier_score_loss, log_loss

from bayesloss import LinkCalibrator
from bayesloss_book.beyond.calibration import calarena

EXTRA = "needs the extra calibrators"


def two_classes(rng, n):
    s = rng.normal(size=n)
    return expit(2 * s), (rng.random(n) < expit(s)).astype(np.int64)


def three_classes(rng, n):
    p = rng.dirichlet([1, 1, 1], size=n)
    return p, (rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1)


@pytest.fixture
def binary(tmp_path):
    h5py = pytest.importorskip("h5py", reason=EXTRA)

    rng = np.random.default_rng(0)
    path = tmp_path / "made-binary.h5"
    with h5py.File(path, "w") as file:
        for model, shape in (("Flat", (-1,)), ("Column", (-1, 1)), ("Both", None)):
            group = file.create_group(f"made/{model}")
            for part in ("cal", "test"):
                p, y = two_classes(rng, 300)
                stored = np.stack([1 - p, p], axis=1) if shape is None else p.reshape(shape)
                group[f"probas_{part}"] = stored
                group[f"labels_{part}"] = y
    return path


def test_results_have_calarenas_columns_and_the_calibrators_losses(binary, tmp_path):
    h5py = pytest.importorskip("h5py", reason=EXTRA)

    calarena.main([str(binary), str(tmp_path / "results")])
    table = pd.read_csv(tmp_path / "results" / "bayesloss.csv")
    measures = ("brier", "logloss", "kuiper", "ece-15", "accuracy", "time")
    columns = ["dataset", "model", "cal_size", "test_size", *(f"bayesloss_{m}" for m in measures)]
    assert list(table) == columns
    assert set(table["model"]) == {"Flat", "Column", "Both"}
    with h5py.File(binary) as file:
        group = file["made/Flat"]
        link = LinkCalibrator().fit(group["probas_cal"][:], group["labels_cal"][:])
        p = link.predict_proba(group["probas_test"][:])[:, 1]
        y = group["labels_test"][:]
    row = table.set_index("model").loc["Flat"]
    assert row["cal_size"] == row["test_size"] == 300
    assert row["bayesloss_logloss"] == pytest.approx(log_loss(y, p))
    assert row["bayesloss_brier"] == pytest.approx(2 * brier_score_loss(y, p))
    assert row["bayesloss_accuracy"] == pytest.approx(((p > 0.5) == y).mean())


def test_many_classes_have_their_number_and_no_kuiper(tmp_path):
    h5py = pytest.importorskip("h5py", reason=EXTRA)

    rng = np.random.default_rng(0)
    path = tmp_path / "made-multiclass.h5"
    with h5py.File(path, "w") as file:
        for part in ("cal", "test"):
            p, y = three_classes(rng, 200)
            file[f"made/Net/probas_{part}"] = p
            file[f"made/Net/labels_{part}"] = y
    table = calarena.run(path)
    assert table["n_classes"].item() == 3
    assert "bayesloss_kuiper" not in table
    assert 0 < table["bayesloss_logloss"].item() < np.log(3)


@pytest.mark.parametrize("make", [two_classes, three_classes])
def test_measures_are_those_of_probmetrics(make):
    metrics = pytest.importorskip("probmetrics.metrics", reason=EXTRA).Metrics
    p, y = make(np.random.default_rng(1), 400)
    p = calarena._columns(p)
    found = calarena.measures(p, y)
    expected = metrics.from_names(list(found)).compute_all_from_labels_probs(
        torch.tensor(y), torch.tensor(p)
    )
    for name, value in found.items():  # the library's sums are partly in single precision
        assert value == pytest.approx(float(expected[name]), abs=1e-5), name


def test_kuiper_by_hand():
    """Sorted by probability, label less probability sums to -0.1, -0.4, 0.3 and 0.7 quarters."""
    p = np.array([0.3, 0.1, 0.6, 0.3])
    found = calarena.measures(np.stack([1 - p, p], axis=1), np.array([0, 0, 1, 1]))
    assert found["kuiper"] == pytest.approx((0.7 + 0.4) / 4)
