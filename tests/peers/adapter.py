"""scikit-learn's own tests, as installed, with our estimators in place of its own.

A pytest plugin for ``make test-newest``; no test is copied. `PEERS` says which of our classes
stands for which of theirs; parameters that ours does not have are taken, and do nothing. Tests that
do not use the class are deselected, and those that differ in such parameters alone, but for the
first. What `left_out.yml` lists must fail: the run fails where it does not, or where the list names
a test that there is not.
"""

import importlib
import inspect
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest
import yaml

import bayesloss


class Regressor(bayesloss.ISGPRegressor):
    """Transforms, too, as isotonic regression does: its transform is its prediction."""

    def transform(self, T: Any) -> Any:
        return self.predict(T)

    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return self.fit(X, y, sample_weight).predict(X)


class Classifier(bayesloss.LinkgisticClassifier):
    """Has its own name for the values of C, and for how many there are."""

    def __init__(self, Cs: Any = 10, class_weight: Any = None) -> None:
        C = np.geomspace(1e-4, 1e4, Cs) if isinstance(Cs, int) else Cs
        super().__init__(C=C, class_weight=class_weight)
        self.Cs = Cs


PEERS: dict[str, dict[str, type]] = {
    "sklearn.tests.test_calibration": {
        "sklearn.calibration.CalibratedClassifierCV": bayesloss.CalibratedClassifier
    },
    "sklearn.linear_model.tests.test_logistic": {
        "sklearn.linear_model.LogisticRegression": bayesloss.LinkgisticClassifier,
        "sklearn.linear_model.LogisticRegressionCV": Classifier,
    },
    "sklearn.tests.test_isotonic": {"sklearn.isotonic.IsotonicRegression": Regressor},
    "sklearn.gaussian_process.tests.test_gpc": {
        "sklearn.gaussian_process.GaussianProcessClassifier": bayesloss.GPClassifier
    },
}
SOLVERS = {"max_iter", "tol"}  # mean something else to ours, which keeps its own
# What tests vary and ours does not have: each test runs with the first value alone.
NOT_OURS = {
    *("C", "kernel", "l1_ratio", "l1_ratios", "length_scale", "method", "penalty", "solver"),
    *("array_namespace", "device_name", "dtype_name", *SOLVERS),
}
LEFT_OUT = Path(__file__).with_name("left_out.yml")
UNTRIED = "not tried yet"  # the reason in the list for which a test does not run
OPTIONS = ("-c", str(Path(__file__).with_name("pytest.ini")), "--pyargs", *PEERS)


def in_place_of(theirs: type, ours: type) -> type:
    """Our class by the name and with the parameters of theirs."""
    wanted = inspect.signature(theirs)
    known = inspect.signature(ours).parameters.keys()

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = wanted.bind(*args, **kwargs)
        given.apply_defaults()
        ours.__init__(self, **{k: v for k, v in given.arguments.items() if k in known - SOLVERS})
        for name in given.arguments.keys() - known - SOLVERS:
            setattr(self, name, given.arguments[name])

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = wanted.replace(parameters=[itself, *wanted.parameters.values()])
    made = type(theirs.__name__, (ours,), {"__init__": __init__, "__module__": __name__})
    globals()[theirs.__name__] = made  # for pickles
    return made


def pytest_configure() -> None:
    """Import the modules of tests with our classes in place of theirs."""
    for module, classes in PEERS.items():
        tests = importlib.import_module(module)  # first, so that what it needs has their classes
        with pytest.MonkeyPatch.context() as patch:
            for name, ours in classes.items():
                place, _, known = name.rpartition(".")
                owner = importlib.import_module(place)
                patch.setattr(owner, known, in_place_of(getattr(owner, known), ours))
            importlib.reload(tests)
        if hasattr(tests, "SOLVERS"):
            tests.SOLVERS = tests.SOLVERS[:1]  # one for all in the tests that try each


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not about ours; expect to fail what the list names."""
    there = {item.name.partition("[")[0] for item in items}
    left_out = yaml.safe_load(LEFT_OUT.read_text(encoding="utf-8"))
    untried = {name for reasons in left_out.values() for name in reasons.pop(UNTRIED, [])}
    ours = {
        _what_is_ours(item): item
        for item in reversed(items)
        if isinstance(item, pytest.Function)
        and _uses_ours(item)
        and item.originalname not in untried
    }
    ours = [item for item in items if item in ours.values()]
    config.hook.pytest_deselected(items=[item for item in items if item not in ours])
    items[:] = ours
    unknown = [*untried.difference(there), *expect_failures(items, left_out)]
    if unknown:
        raise pytest.UsageError(f"{LEFT_OUT.name} names tests that there are not: {unknown}")


def expect_failures(items: Sequence[Any], left_out: dict[str, dict[str, list[str]]]) -> list[str]:
    """Mark what the list leaves out, of {module: {reason: names}}; the names that match nothing."""
    unknown = []
    for module, reasons in left_out.items():
        here = [item for item in items if item.module.__name__ == module]
        for reason, names in reasons.items():
            for name in names:
                found = [item for item in here if _is_named(item, name)]
                unknown += [] if found else [f"{module}: {name}"]
                for item in found:
                    mark = pytest.mark.xfail(reason=reason, strict=True)
                    item.add_marker(mark, append=False)  # before a mark of theirs
    return unknown


def _what_is_ours(item: pytest.Function) -> tuple[str, ...]:
    """Module and name of a test, and the parameters that mean something to ours."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    kept = (f"{name}={id(value)}" for name, value in params.items() if name not in NOT_OURS)
    return (item.module.__name__, item.originalname, *kept)


def _uses_ours(item: pytest.Function) -> bool:
    classes = {name.rpartition(".")[2] for name in PEERS[item.module.__name__]}
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    given = {each.__name__ for each in params if isinstance(each, type)}
    return bool(classes & (_names(item.function.__code__) | given))


def _names(code: CodeType) -> set[str]:
    """The names that a function and those within it use."""
    inner = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inner)


def _is_named(item: Any, name: str) -> bool:
    return name == item.originalname or fnmatchcase(item.name, name.replace("[", "[[]", 1))


if __name__ == "__main__":
    sys.exit(pytest.main([*OPTIONS, *sys.argv[1:]]))
