import doctest
import importlib
import inspect
import pkgutil

import pytest

import bayesloss

# What a function or an estimator hands out is shown in its example.
SHOWN_BY = {
    "EvidenceMaximum": "maximise_evidence",
    "FittedLink": "LinkgisticClassifier",
    "JointDecision": "decide_together",
    "Posterior": "laplace",
    "PriorEstimate": "estimate_prior",
    "WeightedDraws": "weigh_draws",
}
MODULES = [
    found.name
    for found in pkgutil.walk_packages(bayesloss.__path__, "bayesloss.")
    if not found.ispkg
]


def examples(module):
    return [
        test
        for test in doctest.DocTestFinder().find(module, module.__name__, globs={})
        if test.examples
    ]


def failures(tests):
    said = []
    for test in tests:
        doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    return "".join(said)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert not failures(examples(importlib.import_module(name)))


@pytest.mark.parametrize("name", bayesloss.__all__)
def test_public_names_have_examples(name):
    shown = getattr(bayesloss, SHOWN_BY.get(name, name))
    assert ">>> " in inspect.getdoc(shown), f"{name} has no example"
    assert SHOWN_BY.get(name, name) in inspect.getdoc(shown)


def test_a_wrong_example_is_seen():
    assert "Got:\n    2" in failures(examples(type(bayesloss)("wrong", ">>> 1 + 1\n3\n")))
