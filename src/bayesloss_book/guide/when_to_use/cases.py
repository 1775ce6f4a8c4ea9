"""What went wrong on anyone's data, before and now: each case by the defaults of both libraries.

The first wave's library, at the commit `FIRST_WAVE`, is taken from the repository's history, and
runs in a process of its own.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from inspect import signature
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from bayesloss import GPClassifier, ISGPRegressor, LinkgisticClassifier
from bayesloss_book import Array
from bayesloss_book.data import DataError
from bayesloss_book.guide.when_to_use.tables import TEN_PENALTIES, labels
from bayesloss_book.stores.results import runs

Split = tuple[Array, NDArray[Any], Array, NDArray[Any]]  # X, y, and the same to test

# The last commit before the estimators were made for anyone's data.
FIRST_WAVE = "9e65a975fab85361b5ed356e453b6ee62bc6e63b"
LIBRARIES = ("first wave", "now")
CASES: dict[str, dict[str, int]] = {  # the case, its variants, and the number of seeds of each
    "copies": {
        f"{data}, {variant}": 2
        for data in ("simulated", "digits")
        for variant in ("each row thrice", "weight 3", "each row twice", "jittered, in groups")
    },
    "smoothness": {
        name: 2
        for name in (
            "birthwt",
            "stagec",
            "crabs",
            "pima",
            "straight, normal, 100x30",
            "bent, normal, 100x30",
            "straight, normal, 300x10",
            "skewed, normal, 300x10",
        )
    },
    "chance": {"300 x 5": 2},
    "time": {"1,000 x 20": 2},
    "far value": {
        "a row of 3,000 scaled": 2,
        "an x of 100": 3,
        **{f"log-normal, sigma = {sigma}": 1 for sigma in (1, 2, 3)},
    },
    "many classes": {"iris": 2, "wine": 2, "digits": 1},
    "EM": {"5,000 x 1,000": 1},
    "bands": {f"{n} rows": 1 for n in (30, 100, 300)},
    "kernel": {"pima, not scaled": 1, "pima, scaled": 1, "biopsy, scaled": 1},
}

_CURVES = 4  # a seed of the bands
_NAN = float("nan")


def cells() -> list[dict[str, Any]]:
    """Every case, variant, seed and library that the page shows."""
    every = [
        {"case": case, "variant": variant, "seed": seed, "library": library}
        for case, variants in CASES.items()
        for variant, n_seeds in variants.items()
        for seed in range(n_seeds)
        for library in LIBRARIES
    ]
    return sorted(every, key=lambda cell: cell["seed"])  # one of each first


def measure(
    *, case: str, variant: str, seed: int, library: str, first_wave: str = FIRST_WAVE
) -> dict[str, Any]:
    """Put one case to one library, as it is now or as it was at the commit ``first_wave``.

    ``warned``, whether there was a warning, and ``value``, ``beside``, ``coverage`` (or NaN):

    * copies: test log loss; that of the same library without copies
    * smoothness, kernel, many classes: test log loss; that of logistic regression with ten
      penalties, of scikit-learn's Gaussian process, of a tempered multinomial regression
    * far value: test log loss or error; the same without it or with log x; coverage of bands
    * bands: error, NaN, and the coverage of 95 % bands, averaged over random curves
    * chance: the largest difference of two fits' probabilities
    * EM: by how much the direction of the weights moves from round 20 to round 30
    * time: processor time of a fit over that of a logistic regression
    """
    if variant not in CASES.get(case, {}) or library not in LIBRARIES:
        raise ValueError(
            f"expected a case of {CASES} and of {LIBRARIES}, got {case!r}, {variant!r}, {library!r}"
        )
    if library == "now":
        return _measure(case, variant, seed)
    here = Path(__file__).parents[3]
    code = (
        "import json, sys, bayesloss; from bayesloss_book.guide.when_to_use import cases; "
        "print(json.dumps([bayesloss.__file__, cases._measure(*json.loads(sys.argv[1]))]))"
    )
    ones = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
    path = os.pathsep.join([f"{_checkout(first_wave).name}/src", str(here)])
    result = subprocess.run(
        [sys.executable, "-c", code, json.dumps([case, variant, seed])],
        env=os.environ | ones | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise RuntimeError(f"{case}, {variant} failed under {first_wave}:\n{result.stderr}")
    file, found = json.loads(result.stdout.splitlines()[-1])
    if Path(file).is_relative_to(here):
        raise RuntimeError(f"expected the library of {first_wave}, got {file}")
    return dict(found)


@cache
def _checkout(commit: str) -> "TemporaryDirectory[str]":
    """The sources at a commit, in a folder that goes when the process ends."""
    root = Path(__file__).parents[4]
    if shutil.which("git") is None:
        raise DataError(f"expected git on the path, for commit {commit} of {root}, got none")
    archive = subprocess.run(
        ["git", "archive", commit, "src"], cwd=root, capture_output=True, check=False
    )
    if archive.returncode:
        raise DataError(
            f"expected commit {commit} in the history of {root}, got: "
            f"{archive.stderr.decode().strip()}; `git fetch --unshallow` brings it"
        )
    folder = TemporaryDirectory()
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder.name, filter="data")
    return folder


def _measure(case: str, variant: str, seed: int) -> dict[str, Any]:
    found, warned = _heard(lambda: _MEASURES[case](variant, seed))
    found = {"warned": warned} | found
    return {"value": _NAN, "beside": _NAN, "coverage": _NAN} | {
        name: bool(v) if name == "warned" else float(v) for name, v in found.items()
    }


def _heard(fit: Callable[[], Any]) -> tuple[Any, bool]:
    """What a fit returns, and whether it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return fit(), bool(caught)


def _copies(variant: str, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    data, _, how = variant.partition(", ")
    X, y, X_test, y_test = _normal(rng, 200, 60) if data == "simulated" else _odd(rng, 139)
    plain = _loss(LinkgisticClassifier(random_state=0).fit(X, y), X_test, y_test)
    times = 2 if how == "each row twice" else 3
    options: dict[str, Any] = {}
    if how == "weight 3":
        options["sample_weight"] = np.full(len(X), 3.0)
    else:
        groups = np.repeat(np.arange(len(X)), times)
        X, y = X[groups], y[groups]
        if how == "jittered, in groups":
            X = X + 0.01 * rng.normal(size=X.shape)
            if "groups" in signature(LinkgisticClassifier.fit).parameters:  # not in the first wave
                options["groups"] = groups
    model = LinkgisticClassifier(C=1 / times, random_state=0)
    warned = _heard(lambda: model.fit(X, y, **options))[1]
    return {"value": _loss(model, X_test, y_test), "beside": plain, "warned": warned}


def _smoothness(variant: str, seed: int) -> dict[str, Any]:
    X, y, X_test, truth = _table(variant, seed)
    beside = _expected(LogisticRegressionCV(**TEN_PENALTIES).fit(X, y), X_test, truth)
    return {"value": _expected(_linkgistic(X, y), X_test, truth), "beside": beside}


def _far_value(variant: str, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    if variant == "a row of 3,000 scaled":
        X, y, X_test, y_test = _normal(rng, 3_000, 10)
        beside = _loss(_linkgistic(X, y), X_test, y_test)
        X[0] *= 30_000
        model, warned = _heard(lambda: _linkgistic(X, y))
        return {"value": _loss(model, X_test, y_test), "beside": beside, "warned": warned}
    if variant == "an x of 100":
        x = rng.uniform(size=100)
        y = np.sqrt(x) + 0.1 * rng.normal(size=100)
        x_test = np.linspace(0.01, 0.99, 300)
        curve = np.sqrt(x_test)
        error, cover, warned = _regress(np.append(x, 100.0), np.append(y, 1.0), x_test, curve)
        beside = _regress(x, y, x_test, curve)[0]
    else:
        sigma = float(variant.rpartition(" ")[2])
        z, z_test = rng.normal(size=100), rng.normal(size=1_000)
        y = expit(2 * z) + 0.1 * rng.normal(size=100)
        curve = expit(2 * z_test)
        error, cover, warned = _regress(np.exp(sigma * z), y, np.exp(sigma * z_test), curve)
        beside = _regress(z, y, z_test, curve)[0]
    return {"value": error, "beside": beside, "coverage": cover, "warned": warned}


def _bands(variant: str, seed: int) -> dict[str, Any]:
    """Curves of the ISGP's prior with a from 1.2 to 6, the data on a third of half the period."""
    n = int(variant.split()[0])
    rng = np.random.default_rng([seed, n])
    grid = np.linspace(0, 1, 1_001)
    k = np.arange(1, 33)
    waves = np.pi * np.outer(grid - 0.5, k) / 1.5
    basis = np.concatenate([np.cos(waves), np.sin(waves)], axis=1)
    found = []
    for _ in range(_CURVES):
        a = 1.2 * 5 ** rng.uniform()
        f = basis @ (np.tile(a ** (-k / 2), 2) * rng.normal(size=64))
        curve = np.concatenate([[0], np.cumsum(f[1:] ** 2 + f[:-1] ** 2)])  # of W&N, definition 2
        curve /= curve.std()
        x = rng.uniform(size=n)
        y = np.interp(x, grid, curve) + 0.2 * rng.normal(size=n)
        inside = np.linspace(x.min(), x.max(), 200)
        found.append(_regress(x, y, inside, np.interp(inside, grid, curve)))
    error, coverage, _ = np.mean(np.array(found, dtype=float), axis=0)
    return {"value": error, "coverage": coverage}


def _kernel(variant: str, seed: int) -> dict[str, Any]:
    name, _, scaled = variant.partition(", ")
    found = labels(name, seed)
    X, y, X_test, y_test = found.X[:200], found.y[:200], found.X_test, found.truth.argmax(axis=1)
    scaler = StandardScaler().fit(X)
    Z, Z_test = scaler.transform(X), scaler.transform(X_test)
    rival = GaussianProcessClassifier(ConstantKernel() * RBF(), random_state=0)
    with warnings.catch_warnings(action="ignore"):
        beside = _loss(rival.fit(Z, y), Z_test, y_test)
    if scaled == "scaled":
        X, X_test = Z, Z_test
    value = _loss(GPClassifier(inference="ep").fit(X, y), X_test, y_test)
    return {"value": value, "beside": beside}


def _many_classes(variant: str, seed: int) -> dict[str, Any]:
    X, y, X_test, truth = _table(variant, seed)
    rival = CalibratedClassifierCV(
        LogisticRegression(max_iter=2_000), method="temperature", ensemble=False
    )
    beside = _expected(rival.fit(X, y), X_test, truth)
    return {"value": _expected(_linkgistic(X, y), X_test, truth), "beside": beside}


def _chance(variant: str, seed: int) -> dict[str, Any]:
    X, y, X_test, _ = _normal(np.random.default_rng(seed), 300, 5)
    one, other = (
        LinkgisticClassifier(random_state=state).fit(X, y).predict_proba(X_test) for state in (1, 2)
    )
    return {"value": np.abs(one - other).max()}


def _em(variant: str, seed: int) -> dict[str, Any]:
    X, y, _, _ = _normal(np.random.default_rng(seed), 5_000, 1_000)
    fits = (LinkgisticClassifier(max_iter=k, random_state=0).fit(X, y) for k in (20, 30))
    earlier, later = (fit.coef_.ravel() / np.linalg.norm(fit.coef_.ravel()) for fit in fits)
    return {"value": np.linalg.norm(later - earlier)}


def _time(variant: str, seed: int) -> dict[str, Any]:
    X, y, _, _ = _normal(np.random.default_rng(seed), 1_000, 20)

    def seconds(fit: Callable[[], object]) -> float:
        fit()  # what is made once is made
        begin, n = time.process_time(), 0
        while n < 2 or time.process_time() - begin < 0.5:
            fit()
            n += 1
        return (time.process_time() - begin) / n

    ours = seconds(lambda: LinkgisticClassifier(random_state=0).fit(X, y))
    return {"value": ours / seconds(lambda: LogisticRegression().fit(X, y))}


_MEASURES: dict[str, Callable[[str, int], dict[str, Any]]] = {
    "copies": _copies,
    "smoothness": _smoothness,
    "far value": _far_value,
    "bands": _bands,
    "kernel": _kernel,
    "many classes": _many_classes,
    "chance": _chance,
    "EM": _em,
    "time": _time,
}


def _linkgistic(X: Array, y: NDArray[Any]) -> Any:
    return LinkgisticClassifier(random_state=0).fit(X, y)


def _normal(rng: np.random.Generator, n: int, d: int) -> Split:
    """Normal columns; labels whose log odds have standard deviation 2 whatever the columns."""
    weights = rng.normal(size=d)
    weights *= 2 / np.linalg.norm(weights)
    X = rng.normal(size=(n + 4_000, d))
    y = (rng.random(len(X)) < expit(X @ weights)).astype(int)
    return X[:n], y[:n], X[n:], y[n:]


def _odd(rng: np.random.Generator, n: int) -> Split:
    """Is a digit odd? Sixty-four pixels, three of them always blank."""
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(X))
    X, y = X[order], y[order] % 2
    Z = StandardScaler().fit(X[:n]).transform(X)
    return Z[:n], y[:n], Z[n:], y[n:]


def _table(name: str, seed: int) -> Split:
    """A table of `tables`, with scaled columns, and probabilities of the test labels."""
    found = labels(name, seed)
    scaler = StandardScaler().fit(found.X)
    return scaler.transform(found.X), found.y, scaler.transform(found.X_test), found.truth


def _loss(model: Any, X: Array, y: NDArray[Any]) -> float:
    return float(log_loss(y, model.predict_proba(X), labels=model.classes_))


def _expected(model: Any, X: Array, truth: Array) -> float:
    p = np.clip(model.predict_proba(X), np.finfo(float).eps, 1)
    return float(-(truth * np.log(p)).sum(axis=1).mean())


def _regress(x: Array, y: Array, x_test: Array, curve: Array) -> tuple[float, float, bool]:
    """Error from the curve, coverage of 95 % bands, and whether the fit warned."""
    model, warned = _heard(lambda: ISGPRegressor().fit(x[:, None], y))
    with warnings.catch_warnings(action="ignore"):
        mean, std = model.predict(x_test[:, None], return_std=True)
    error = np.sqrt(np.mean((mean - curve) ** 2))
    return float(error), float((np.abs(curve - mean) <= 1.96 * std).mean()), warned


# With one worker, or the times mean little.
run = runs(measure, cells, "when_to_use_cases", first_wave=FIRST_WAVE)
