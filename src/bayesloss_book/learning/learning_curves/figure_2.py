"""Figure 2 of W&N: test accuracy against training size, three data sets, three methods.

A cell is ten one-vs-rest models on one training set, in a setting of what the paper leaves open.
Subsets of one seed are nested, and the same for all methods and settings.
"""

import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from bayesloss.learning.estimators.linkgistic import LinkgisticClassifier
from bayesloss.learning.links.fitted_link import FittedLink
from bayesloss_book import Array
from bayesloss_book.data.data_sets import IMAGE_DATASETS
from bayesloss_book.data.image_sets import N_CLASSES, inputs, one_vs_rest
from bayesloss_book.rivals import baselines
from paperledger.stores.results import runs

DATA = IMAGE_DATASETS
METHODS = ("logistic", "GP", "ISGP")  # the paper's
COMPARED = (*METHODS, baselines.HELD_OUT)
SIZES = (1_000, 3_000, 10_000, 20_000, 30_000, 60_000)
BLOCKS = 10  # parts of the test set, for the standard errors of differences

# The setting of the curves: the estimator's defaults, and scikit-learn's.
SETTING = {"penalty": 1.0, "scaling": "pixels", "budget": "default", "c_factor": 1.0}


def cells(
    data: str, size: int, seed: int = 0, methods: Sequence[str] = COMPARED, **setting: Any
) -> list[dict[str, Any]]:
    """The cells of some methods on one training set, in the curves' setting or another."""
    return [
        {"data": data, "size": size, "method": method, **(SETTING | setting), "seed": seed}
        for method in methods
    ]


def curve_cells() -> list[dict[str, Any]]:
    """All cells of Figure 2: at one seed, then more seeds for subsets, what counts most first."""
    sizes = sorted(SIZES, key=lambda size: (size not in (60_000, 10_000), -size))
    first = [cell for size in sizes for data in DATA for cell in cells(data, size)]
    small = [size for size in SIZES if size <= 10_000]
    more = product((1, 2), small, DATA)
    return first + [cell for seed, size, data in more for cell in cells(data, size, seed)]


def setting_cells() -> list[dict[str, Any]]:
    """The chief other settings on all data, most of them on one small set."""
    large: list[dict[str, Any]] = [{"penalty": 0.0, "budget": "short"}, {"penalty": 0.0}]
    large += [{"penalty": 100.0}]
    small: list[dict[str, Any]] = [{"penalty": 10.0}, {"penalty": 100.0}, {"budget": "long"}]
    small += [{"penalty": 0.0, "budget": budget} for budget in ("short", "long")]
    small += [{"penalty": penalty, "scaling": "standardised"} for penalty in (0.0, 1.0, 100.0)]
    out = [
        cell
        for change in large
        for data in DATA
        for cell in cells(data, 60_000, methods=("logistic", "ISGP", baselines.HELD_OUT), **change)
    ]
    out += [cell for data in DATA for cell in cells(data, 10_000, penalty=0.0)]
    out += [cell for data in DATA for cell in cells(data, 10_000, methods=("scikit-learn",))]
    out += [cell for change in small for cell in cells("fashion-mnist", 10_000, **change)]
    for factor in (0.5, 1.5):
        out += cells("fashion-mnist", 10_000, methods=METHODS[1:], c_factor=factor)
    return out


def measure(
    *,
    data: str,
    size: int,
    method: str,
    penalty: float,
    scaling: str,
    budget: str,
    c_factor: float,
    seed: int,
) -> dict[str, float]:
    """Fit ten one-vs-rest models by one method, and measure them on the test set.

    "logistic" is the fit with the fixed link where EM begins, "scikit-learn" the same model by
    scikit-learn; the penalty is 1/C, 0 for none. What `measures_of` returns, and
    ``train_log_loss``; ``rounds`` of EM, or L-BFGS iterations; ``converged``; ``outside``: the
    share of test images with a score outside the kernel's period.
    """
    X, y, X_test, y_test = inputs(data, size, scaling, seed)
    C = 1 / penalty if penalty else np.inf
    tol, max_rounds = baselines.BUDGETS[budget]
    if method == "logistic":
        found = baselines.fit_logistic(X, one_vs_rest(y), X_test, C, tol)
    elif method == "scikit-learn":
        found = _fit_scikit_learn(X, y, X_test, C, tol)
    else:
        model = baselines.recipe(method, C=C, tol=tol, max_iter=max_rounds, random_state=seed)
        found = _fit_linkgistic(model, X, y, X_test, c_factor)
    odds_train, odds, rounds, converged, outside = found
    return {
        **measures_of(odds, y_test),
        "train_log_loss": _log_loss(odds_train, y),
        "rounds": rounds,
        "converged": converged,
        "outside": outside,
    }


def measures_of(odds: Array, labels: NDArray[np.int64]) -> dict[str, float]:
    """What log odds (n, 10) of one class against the rest are worth, given the labels (n,).

    ``ovr_accuracy``, ``log_loss`` (nats) and ``calibration`` (expected calibration error, 15 equal
    bins), means over the ten problems; ``accuracy`` of the class of the largest odds; ``class_k``
    the accuracy of problem k; ``ovr_part_b`` and ``part_b``, the two accuracies on every tenth test
    image, from the b-th on.
    """
    truth = one_vs_rest(labels)
    right = (odds > 0) == truth
    whole = odds.argmax(axis=1) == labels
    out = {
        "ovr_accuracy": right.mean(),
        "accuracy": whole.mean(),
        "log_loss": _log_loss(odds, labels),
        "calibration": np.mean(
            [baselines.calibration_error(expit(o), t) for o, t in zip(odds.T, truth.T, strict=True)]
        ),
    }
    out |= {f"class_{k}": right[:, k].mean() for k in range(N_CLASSES)}
    out |= {f"ovr_part_{b}": right[b::BLOCKS].mean() for b in range(BLOCKS)}
    out |= {f"part_{b}": whole[b::BLOCKS].mean() for b in range(BLOCKS)}
    return {name: float(value) for name, value in out.items()}


def _fit_scikit_learn(
    X: Array, y: NDArray[np.int64], X_test: Array, C: float, tol: float
) -> tuple[Array, Array, int, bool, float]:
    """The same by scikit-learn."""
    model = OneVsRestClassifier(LogisticRegression(C=C, tol=tol, max_iter=baselines.LOGISTIC_STEPS))
    model.fit(X, y)
    rounds = max(int(single.n_iter_[0]) for single in model.estimators_)
    train = model.decision_function(X)
    test = model.decision_function(X_test)
    return train, test, rounds, rounds < baselines.LOGISTIC_STEPS, 0.0


def _fit_linkgistic(
    model: LinkgisticClassifier, X: Array, y: NDArray[np.int64], X_test: Array, c_factor: float
) -> tuple[Array, Array, int, bool, float]:
    """GP- or ISGP-linkgistic regression: ten classes together, unless the period is not its own."""
    with warnings.catch_warnings():
        # Both are in the measures.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", ".*outside", UserWarning)
        models = [model.fit(X, y)]
        if c_factor != 1:
            rules = [link.posterior.prior.kernel.c for link in model.links_]
            models = [
                clone(model).set_params(link__c=c_factor * c).fit(X, y == k)
                for k, c in enumerate(rules)
            ]
        train = np.column_stack([each.decision_function(X) for each in models])
        test = np.column_stack([each.decision_function(X_test) for each in models])
    beyond = [
        np.abs((X_test - each.centre_) @ each.coef_.T) > [_edge(link) for link in each.links_]
        for each in models
    ]
    outside = float(np.concatenate(beyond, axis=1).any(axis=1).mean())
    rounds = max(each.n_iter_ for each in models)
    return train, test, rounds, all(each.converged_ for each in models), outside


def _edge(link: Any) -> float:
    """The score where a link's period ends; a calibrator's curve has none."""
    return link.edge if isinstance(link, FittedLink) else np.inf


def _log_loss(odds: Array, labels: NDArray[np.int64]) -> float:
    return float(np.logaddexp(0, -np.where(one_vs_rest(labels), 1.0, -1.0) * odds).mean())


# Figure 2 at one seed, other settings, more seeds.
run = runs(
    measure,
    lambda: sorted([*curve_cells(), *setting_cells()], key=lambda cell: cell["seed"]),
    "learning_curves",
)
