"""Scores that need no calibration: do "no change" and "temperature only" help `LinkCalibrator`?

Run as ``python benchmarks/already_good.py``: a few minutes. *With both* averages three predictions
by the evidence: the calibrator's, the scores' own probabilities, and those at another temperature,
whose logarithm has a normal prior. Boosting that was stopped early needs no calibration; naive
Bayes and extra trees do, and show the harm. The sets were chosen before any was measured: tables
that the book's stores do not have, made by scikit-learn. Log losses are in millinats less those of
`LinkCalibrator`, with standard errors over sets.

Measured: with 50, 200 and 1,000 cases, both members gain 21 ± 8, 1.2 ± 2.4 and -0.9 ± 0.7 millinats
where scores are good already, and 9 ± 6, 2.2 ± 1.5 and 0.1 ± 0.1 elsewhere, but lose 33 on one set.
"No change" alone does the same. The book's page on the calibrator has what that costs on plateaus.
"""

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from scipy.special import expit, log_expit, logit, logsumexp, softmax
from sklearn.base import ClassifierMixin
from sklearn.datasets import (
    make_classification,
    make_friedman1,
    make_friedman3,
    make_gaussian_quantiles,
    make_hastie_10_2,
    make_moons,
)
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.naive_bayes import GaussianNB

from bayesloss import LinkCalibrator

N_TRAIN = 1_500
N_TEST = 4_000
SIZES = (50, 200, 1_000)
SMALLEST = 1e-9  # of probabilities
# The log temperature and its prior: a factor of two either way is a standard deviation.
LOG_T = np.linspace(-2.5, 2.5, 101)
LOG_PRIOR = -0.5 * (LOG_T / np.log(2)) ** 2
LOG_PRIOR -= logsumexp(LOG_PRIOR)

Table = tuple[np.ndarray, np.ndarray]


def noisy(X: np.ndarray, target: np.ndarray) -> Table:
    """Labels whose log odds are twice the standardised target."""
    odds = 2 * (target - target.mean()) / target.std()
    return X, (np.random.default_rng(0).random(len(X)) < expit(odds)).astype(int)


def tables(n: int) -> dict[str, Table]:
    X, y = make_hastie_10_2(n, random_state=0)
    return {
        "hastie": (X, (y > 0).astype(int)),
        "friedman 1": noisy(*make_friedman1(n, noise=0, random_state=0)),
        "friedman 3": noisy(*make_friedman3(n, noise=0, random_state=0)),
        "classification": make_classification(n, 20, n_informative=6, flip_y=0.1, random_state=0),
        "quantiles": make_gaussian_quantiles(
            n_samples=n, n_features=5, n_classes=2, random_state=0
        ),
        "moons": make_moons(n, noise=0.5, random_state=0),
    }


MODELS: dict[str, Callable[[], ClassifierMixin]] = {
    "early-stopped boosting": lambda: HistGradientBoostingClassifier(
        early_stopping=True, random_state=0
    ),
    "early-stopped slow boosting": lambda: HistGradientBoostingClassifier(
        learning_rate=0.03, max_iter=500, early_stopping=True, random_state=0
    ),
    "naive Bayes": GaussianNB,
    "extra trees": lambda: ExtraTreesClassifier(100, random_state=0),
}


def mean_loss(odds: np.ndarray, y: np.ndarray) -> float:
    return float(-log_expit(np.where(y == 1, odds, -odds)).mean())


def losses(odds: np.ndarray, y: np.ndarray, new: np.ndarray, new_y: np.ndarray) -> dict:
    """Of each method on new cases, in millinats."""
    link = LinkCalibrator(scale="probability").fit(expit(odds), y)
    by_link = link.predict_proba(expit(new))[:, 1]
    bounds = [part.evidence_bound for part in link.average_.components]
    log_likelihoods = np.array([-len(y) * mean_loss(np.exp(t) * odds, y) for t in LOG_T])
    weights = softmax(LOG_PRIOR + log_likelihoods)
    by_temperature = weights @ expit(np.exp(LOG_T)[:, None] * new)
    evidence = np.array(
        [
            logsumexp(bounds) - np.log(len(bounds)),
            -len(y) * mean_loss(odds, y),
            logsumexp(LOG_PRIOR + log_likelihoods),
        ]
    )
    predictions = {
        "link": by_link,
        "none": expit(new),
        "temperature": by_temperature,
        "with no change": softmax(evidence[:2]) @ np.stack([by_link, expit(new)]),
        "with both": softmax(evidence) @ np.stack([by_link, expit(new), by_temperature]),
    }
    return {
        name: 1e3 * mean_loss(logit(p.clip(SMALLEST, 1 - SMALLEST)), new_y)
        for name, p in predictions.items()
    }


def measured() -> Iterator[dict]:
    for table, (X, y) in tables(N_TRAIN + max(SIZES) + N_TEST).items():
        for name, make in MODELS.items():
            model = make().fit(X[:N_TRAIN], y[:N_TRAIN])
            p = model.predict_proba(X[N_TRAIN:])[:, 1].clip(SMALLEST, 1 - SMALLEST)
            odds = logit(p)
            labels = y[N_TRAIN:]
            for n in SIZES:
                found = losses(odds[:n], labels[:n], odds[-N_TEST:], labels[-N_TEST:])
                yield {"table": table, "model": name, "n": n} | found


def main() -> None:
    rows = pd.DataFrame(measured())
    methods = list(rows.columns[4:])
    gaps = rows[methods].sub(rows["link"], axis=0)
    gaps["kind"] = np.where(rows["model"].str.startswith("early"), "already good", "others")
    gaps["n"] = rows["n"]
    by_kind = gaps.groupby(["kind", "n"])[methods]
    print(
        (
            by_kind.mean().round(1).astype(str) + " ± " + by_kind.sem().round(1).astype(str)
        ).to_string()
    )
    print("worst of with both:", round(gaps["with both"].max(), 1))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
