"""A test that fails names what it stands on, with the papers' formulas."""

import os
import shutil
from pathlib import Path

import pytest
import stands_on
from forked import Forked

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest
import torch
import bayesloss
from bayesloss import ISGP, TrigonometricKernel as Kernel
from bayesloss.quadrature import gauss_hermite

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


PRIOR = ISGP(Kernel(a=1.5, c=0.5, n_basis=4), mu=0.0, gamma=1.0)


def test_a_constant_of_the_file():
    assert PRIOR.derivative(X, PRIOR.location) is None


class TestShared:
    kernel = Kernel(a=1.5, c=0.5, n_basis=4)

    def test_what_the_class_holds(self):
        assert self.kernel.psi(X).shape == (5, 5, 4)


def test_refused(kernel):
    bayesloss.laplace(ISGP(kernel, mu=0.0, gamma=1.0), bayesloss.Gaussian(1.0), X, X[:3])


def test_a_cached_function():
    assert gauss_hermite(3) is None


def test_in_a_module_that_is_not_there(monkeypatch):
    monkeypatch.setitem(globals(), "__name__", "bayesloss.made_up")
    assert of(PRIOR) is None


def test_that_passes(kernel):
    assert kernel.psi(X).shape == (5, 4, 4)
"""


def test_what_a_failing_test_says(tmp_path):
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS, "utf-8")
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull]
    options += [f"--rootdir={tmp_path}", "--import-mode=importlib", str(tmp_path)]
    said = Forked(pytest.main, tmp_path, options).end()[1]
    parts = said.split(" what this test stands on -")[1:]
    helped, constant, shared, refused, cached, nowhere = (
        part.partition("\n_")[0].splitlines()[1:] for part in parts
    )
    lines = {line.partition(":")[0]: line for line in helped}
    assert "eq. (9)" in lines["trigonometric.TrigonometricKernel.psi"]
    assert "eq. (8)" in lines["priors.ISGP"]
    assert any("eq. (8)" in line for line in constant)
    assert any("eq. (9)" in line for line in shared)
    # What raised, who called it, and what the test called.
    heads = [line.partition(":")[0] for line in refused]
    assert heads[:2] == ["log_joint.check_data", "log_joint.LogJoint.of"]
    assert "laplace.laplace" in heads[2:]
    assert cached[0].startswith("quadrature.gauss_hermite: Nodes z and weights")
    assert nowhere[0].startswith("priors.ISGP")
    assert "6 failed, 1 passed" in said


def test_a_docstring_and_a_comment_may_break_a_citation_and_a_sentence_end_it():
    text = (
        "so says W&N section 4.1.\n    # Also eqs. (17)\n    # and (18), Theorem 2 (ii), a table on"
    )
    found = stands_on.CITED.findall(stands_on.BREAK.sub(" ", text))
    assert found == ["W&N section 4.1", "eqs. (17) and (18)", "Theorem 2 (ii)"]
