"""A test that fails names what it stands on, with the papers' formulas; others cost nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import stands_on

import bayesloss
from bayesloss.learning.inference import laplace

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import pytest
import torch
from sklearn.utils.estimator_checks import check_estimator

import bayesloss
from bayesloss import ISGP, ISGPRegressor, TrigonometricKernel as Kernel

X = torch.linspace(-1, 1, 5, dtype=torch.float64)


@pytest.fixture
def kernel():
    return Kernel(a=1.5, c=0.5, n_basis=4)


def of(prior):
    return prior.derivative(X, prior.location)


def test_helpers_and_fixtures(kernel):
    prior = ISGP(kernel, mu=0.0, gamma=1.0)
    assert kernel.psi(X).shape == (5, 5, 4)
    assert of(prior) is None


class TestOther:
    def test_refused(self):
        assert X is not None


def test_refused(kernel):
    bayesloss.laplace(ISGP(kernel, mu=0.0, gamma=1.0), bayesloss.Gaussian(1.0), X, X[:3])


@pytest.mark.parametrize("check", [0])
@pytest.mark.parametrize("estimator", [ISGPRegressor()])
def test_of_scikit_learn(estimator, check):
    assert Kernel is None


def test_that_passes(kernel):
    assert kernel.psi(X).shape == (5, 4, 4)


@pytest.mark.xfail(strict=True)
def test_that_is_to_fail(kernel):
    assert kernel is None
"""
HEADER = " what this test stands on -"


def test_what_a_failing_test_says(tmp_path):
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS, "utf-8")
    paths = os.pathsep.join(str(ROOT / name) for name in ("src", "tools"))
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull,
         "--rootdir", tmp_path, "--import-mode", "importlib", tmp_path],
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True,
    ).stdout  # fmt: skip
    parts = said.split(HEADER)[1:]
    helped, refused, checked = (part.partition("\n_")[0].splitlines()[1:] for part in parts)
    # Each with its formula; the line that failed and what is nearest to it come first.
    names = [line.partition(":")[0] for line in helped]
    kernel, isgp = "trigonometric.TrigonometricKernel", "priors.ISGP"
    assert names[:2] == [f"{kernel}.psi", isgp]
    assert {kernel, "priors.ISGP.derivative"} <= {*names}
    assert "eq. (9)" in helped[0]
    assert "eq. (8)" in helped[1]
    # What raised, who called it, and what the test called.
    heads = [line.partition(":")[0] for line in refused]
    assert heads[:2] == ["raised in log_joint.check_data", "called by log_joint.LogJoint.of"]
    assert "laplace.laplace" in heads[2:]
    assert checked[0].startswith("monotone.ISGPRegressor: ")
    assert checked[1].startswith("=====")
    assert "3 failed, 2 passed, 1 xfailed" in said


def test_citations_of_a_function_come_before_those_of_what_it_calls():
    def places(thing):
        return stands_on._citations(thing, sys.modules[thing.__module__])

    assert "eq. (11)" in places(laplace.LogJoint.derivatives)
    assert "eq. (11)" in "".join(places(bayesloss.laplace))
    # A docstring and a comment may break a citation; a sentence's end is none of it.
    text = (
        "so says W&N section 4.1.\n    # Also eqs. (17)\n    # and (18), Theorem 2 (ii), a table on"
    )
    found = stands_on.CITED.findall(stands_on.BREAK.sub(" ", text))
    assert found == ["W&N section 4.1", "eqs. (17) and (18)", "Theorem 2 (ii)"]
