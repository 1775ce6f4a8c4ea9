"""`CalibratedClassifier` beside scikit-learn's, around boosting and forests, on 20 real tables.

    python benchmarks/calibrated_classifier.py [splits]

Twenty tables of two classes, drawn before any was looked at from the 33 that the book has; the
other 13 served to choose between ensembles. At most 1,500 rows to train on and 5,000 to test on,
split by three seeds. For each rival: by how many millinats our default's log loss is higher on
average over tables (with the standard error over tables), and on how many of them it is lower.
"""

import sys
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import log_loss

from bayesloss import CalibratedClassifier
from bayesloss_book.data import score_tables as tables
from bayesloss_book.guide.when_to_use.tables import labels

LARGE = tables.TABLES | tables.LARGER
TABLES = (
    *("abortion", "benefits", "birthwt", "chemistry", "colleges", "crabs", "diamonds", "feelings"),
    *("films", "flights", "insurance", "lectures", "mortgage", "murders", "participation", "pima"),
    *("ratings", "stagec", "verbal_aggression", "wages"),
)
TRAIN = 1_500
TEST = 5_000


class Remembering(BaseEstimator):
    """A classifier that takes a fit to the same data from an earlier one: all methods need it."""

    fits: ClassVar[dict[str, dict[str, Any]]] = {}

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Fit, or remember."""
        key = joblib.hash((X, y))
        if key not in self.fits:
            self.fits[key] = vars(super().fit(X, y)).copy()
        vars(self).update(self.fits[key])
        return self


class Boosting(Remembering, HistGradientBoostingClassifier):
    """Gradient boosting."""


class Forest(Remembering, RandomForestClassifier):
    """A random forest."""


CLASSIFIERS = {"boosting": Boosting(random_state=0), "forest": Forest(random_state=0)}
OURS = "ensemble"
METHODS = {
    OURS: CalibratedClassifier,
    "one classifier": lambda model: CalibratedClassifier(model, ensemble=False),
    "sigmoid": CalibratedClassifierCV,
    "isotonic": lambda model: CalibratedClassifierCV(model, method="isotonic"),
    "temperature": lambda model: CalibratedClassifierCV(model, method="temperature"),
    "none": lambda model: model,
}


def split(name: str, seed: int) -> Iterator[NDArray[Any]]:
    """Inputs and labels to train on, then those to test on."""
    if name in LARGE:
        X, y = tables.load(LARGE[name])
        sizes = (min(TRAIN, len(X) // 2), TEST)
        yield from tables.split(X, y, sizes, seed)[:4]
    else:
        found = labels(name, seed)
        yield from (found.X[:TRAIN], found.y[:TRAIN])
        yield from (found.X_test[:TEST], found.truth[:TEST].argmax(axis=1))


def losses(name: str, model: Any, n_splits: int) -> list[float]:
    """The mean log loss of each of `METHODS` over splits, in millinats."""
    found = np.zeros((n_splits, len(METHODS)))
    for seed in range(n_splits):
        X, y, X_test, y_test = split(name, seed)
        Remembering.fits.clear()
        for i, method in enumerate(METHODS.values()):
            p = method(model).fit(X, y).predict_proba(X_test)
            found[seed, i] = 1e3 * log_loss(y_test, p)
    return found.mean(axis=0).tolist()


def main(n_splits: int = 3) -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    for kind, model in CLASSIFIERS.items():
        print(f"{kind:20}" + "".join(f"{method:>16}" for method in METHODS))
        rows = []
        for name in TABLES:
            rows.append(losses(name, model, n_splits))
            print(f"{name:20}" + "".join(f"{loss:16.1f}" for loss in rows[-1]), flush=True)
        found = np.array(rows)
        less = found[:, :1] - found
        error = less.std(axis=0, ddof=1) / np.sqrt(len(less))
        for method, mean, each, lower in zip(
            METHODS, less.mean(axis=0), error, (less < 0).sum(axis=0), strict=True
        ):
            if method != OURS:
                print(f"against {method:16} {mean:7.1f} +- {each:4.1f}, lower on {lower}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
