"""Our calibrators on CalArena's stored predictions, with results in that benchmark's own format.

    python -m bayesloss_book.beyond.calibration.calarena tabrepo-binary.h5 results/tabrepo-binary

Its HDF5 files, 1.7 GB, are at https://huggingface.co/datasets/probkit/CalArena. A file has groups
``{dataset}/{model}`` with ``probas_cal``, ``labels_cal``, ``probas_test`` and ``labels_test``:
probabilities of shape (n,), (n, 1) or (n, 2) for two classes, (n, K) for more. The result is one
CSV a calibrator, a row a group; put it beside CalArena's own, and its ``utils.py`` reads both.

Reading HDF5 needs the extra ``calibrators``.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayesloss import LinkCalibrator
from bayesloss.learning.calibration.softmax_calibrator import SoftmaxCalibrator
from bayesloss_book import Array
from bayesloss_book.rivals.baselines import calibration_error

NAME = "bayesloss"

_SMALLEST = float(np.finfo(np.float64).tiny)  # only so that the log of 0 is finite


def experiments(path: Path) -> Iterator[tuple[str, str, Array, Array, Array, Array]]:
    """Data set, model, probabilities (n, K) and labels, to calibrate and to test, a group each."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            "h5py is in the extra `calibrators`: pip install --require-hashes --no-deps "
            "-r requirements-extras.lock"
        ) from error
    with h5py.File(path, "r") as file:
        for dataset, models in file.items():
            for model, group in models.items():
                p, y, p_test, y_test = (
                    group[name][:]
                    for name in ("probas_cal", "labels_cal", "probas_test", "labels_test")
                )
                yield dataset, model, _columns(p), y, _columns(p_test), y_test


def run(path: Path) -> pd.DataFrame:
    """Measure our calibrators on every group of a file, in the columns of CalArena's tables."""
    rows = []
    for dataset, model, p, y, p_test, y_test in experiments(path):
        row: dict[str, Any] = {"dataset": dataset, "model": model}
        row |= {"cal_size": len(p), "test_size": len(p_test)}
        if p.shape[1] > 2:
            row["n_classes"] = p.shape[1]
        begin = time.perf_counter()
        found = _ours(p, y, p_test)
        seconds = time.perf_counter() - begin
        row |= {f"{NAME}_{name}": value for name, value in measures(found, y_test).items()}
        rows.append(row | {f"{NAME}_time": seconds})
    return pd.DataFrame(rows)


def measures(p: Array, y: NDArray[Any]) -> dict[str, float]:
    """CalArena's measures of probabilities (m, K), as `probmetrics` defines them."""
    rows = np.arange(len(y))
    hits = np.zeros_like(p)
    hits[rows, y] = 1
    found = {
        "brier": float(((p - hits) ** 2).sum(axis=1).mean()),
        "logloss": float(-np.log(p[rows, y].clip(_SMALLEST)).mean()),
    }
    confidence = p.max(axis=1)
    right = (p.argmax(axis=1) == y).astype(np.float64)
    if p.shape[1] == 2:
        order = np.argsort(p[:, 1], kind="stable")
        path = np.concatenate([[0.0], np.cumsum((hits - p)[order, 1])]) / len(y)
        found["kuiper"] = float(path.max() - path.min())
        found["ece-15"] = calibration_error(p[:, 1], hits[:, 1])
    else:
        found["ece-15"] = calibration_error(confidence, right)
    return found | {"accuracy": float(right.mean())}


def main(arguments: list[str] | None = None) -> None:
    """Calibrate a file of CalArena's and write the results."""
    parser = argparse.ArgumentParser(description="our calibrators on predictions of CalArena")
    parser.add_argument("file", type=Path, help="such as tabrepo-binary.h5")
    parser.add_argument("results", type=Path, help="the folder for the CSV")
    options = parser.parse_args(arguments)
    table = run(options.file)
    options.results.mkdir(parents=True, exist_ok=True)
    table.to_csv(options.results / f"{NAME}.csv", index=False)


def _ours(p: Array, y: NDArray[Any], p_test: Array) -> Array:
    with warnings.catch_warnings(action="ignore"):  # a hard case is a case
        if p.shape[1] == 2:
            link = LinkCalibrator(scale="probability").fit(p[:, 1], y)
            return link.predict_proba(p_test[:, 1])
        return SoftmaxCalibrator(scale="probability").fit(p, y).predict_proba(p_test)


def _columns(p: Array) -> Array:
    p = np.asarray(p, dtype=np.float64)
    if p.ndim == 2 and p.shape[1] > 1:
        return p
    p = p.reshape(len(p))
    return np.stack([1 - p, p], axis=1)


if __name__ == "__main__":
    main()
