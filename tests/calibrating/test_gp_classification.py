"""The estimators: scikit-learn's own checks, costs, and bad input."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from bayesloss import CostMatrix, GPClassifier, LossEMClassifier

CLASSIFIERS = [
    GPClassifier(),
    GPClassifier("laplace"),
    LossEMClassifier(),
    LossEMClassifier(CostMatrix(1.0, 1.0), max_loss=2.0),
]


@parametrize_with_checks(CLASSIFIERS)
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API:sklearn.exceptions.SkipTestWarning")
def test_scikit_learn(estimator, check):
    check(estimator)


def toy(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 1))
    return X, np.where(rng.uniform(size=n) < 0.5 + 0.4 * np.sin(6 * X[:, 0]), "b", "a")


@pytest.mark.parametrize("model", [GPClassifier(), GPClassifier("laplace"), LossEMClassifier()])
def test_probabilities_and_decisions_fit_together(model):
    X, y = toy()
    model.set_params(length_scale=0.3, amplitude=3.0).fit(X, y)
    grid = np.linspace(-1, 2, 50)[:, None]
    p = model.predict_proba(grid)
    assert p.sum(1) == pytest.approx(1)
    assert (model.predict(grid) == np.where(p[:, 1] > 0.5, "b", "a")).all()
    if isinstance(model, GPClassifier):
        signs = CostMatrix().decide(p)
        assert (model.predict(grid) == model.classes_[(signs > 0).astype(int)]).all()
        # Under costs both shapes of probabilities decide the same.
        costs = CostMatrix(0.1, 1)
        assert (costs.decide(p) == costs.decide(p[:, 1])).all()
        assert (costs.decide(p) >= signs).all()


def test_relabelling_mirrors_the_decisions():
    """Swap the classes and the costs: the same decisions under other names."""
    X, y = toy()
    one = LossEMClassifier(CostMatrix(0.2, 1), length_scale=0.3, amplitude=3.0).fit(X, y)
    swapped = np.where(y == "a", "b", "a")
    other = LossEMClassifier(CostMatrix(1, 0.2), length_scale=0.3, amplitude=3.0).fit(X, swapped)
    grid = np.linspace(0, 1, 101)[:, None]
    assert one.decision_function(grid) == pytest.approx(-other.decision_function(grid), abs=1e-6)


def test_far_away_the_prior_is_left():
    """Probability one half, and the decision that the costs then ask for."""
    X, y = toy()
    far = [[1e6], [-1e6]]
    for model in (GPClassifier(), LossEMClassifier(CostMatrix(0.2, 1))):
        model.set_params(length_scale=0.3, amplitude=3.0).fit(X, y)
        assert model.predict_proba(far) == pytest.approx(0.5)
    assert (model.predict(far) == "b").all()


def test_duplicate_inputs():
    """A singular kernel matrix: as two data at one place, which is what they are."""
    X, y = [[0.0], [0.0], [1.0], [1.0], [1.0]], [0, 0, 1, 1, 0]
    near = [[0.0], [1e-6], [1.0], [1.0 + 1e-6], [1.0 - 1e-6]]
    for model in (GPClassifier(), GPClassifier("laplace"), LossEMClassifier(CostMatrix(1, 2))):
        once = model.fit(X, y).predict_proba([[0.3], [1.0]])
        assert model.fit(near, y).predict_proba([[0.3], [1.0]]) == pytest.approx(once, abs=1e-4)


def test_targets_matter_and_default_to_the_training_inputs():
    X, y = toy()
    model = LossEMClassifier(CostMatrix(0.4, 1), length_scale=0.3, amplitude=3.0)
    mean = model.fit(X, y).posterior_.mean
    assert (model.fit(X, y, X_target=X).posterior_.mean == mean).all()
    assert model.n_iter_ >= 1 and model.converged_
    target = np.linspace(0.9, 1.4, 30)[:, None]
    model.fit(X, y, X_target=target)
    assert not np.allclose(model.posterior_.mean, mean, atol=1e-4)
    assert (model.target_decisions_ == model.predict(target)).all()


def test_logistic_neighbour_in_scikit_learn():
    """Another likelihood, so no equality: a logistic is a probit of about 1.7 times the scale."""
    X, y = toy(60)
    kernel = ConstantKernel((1.7 * 1.5) ** 2, "fixed") * RBF(0.3, "fixed")
    theirs = GaussianProcessClassifier(kernel, optimizer=None).fit(X, y)
    ours = GPClassifier("laplace", length_scale=0.3, amplitude=1.5).fit(X, y)
    grid = np.linspace(0, 1, 50)[:, None]
    # Probit and scaled logistic curves differ by up to 0.0095.
    gap = np.abs(ours.predict_proba(grid)[:, 1] - theirs.predict_proba(grid)[:, 1])
    assert gap.max() < 0.02


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_costs_that_make_no_sense(bad):
    with pytest.raises(ValueError, match="c_plus"):
        CostMatrix(bad, 1.0)
    with pytest.raises(ValueError, match="c_minus"):
        CostMatrix(1.0, bad)


def test_threshold_and_its_probit():
    assert CostMatrix(1, 1).probit_threshold == pytest.approx(0, abs=1e-15)
    assert CostMatrix(1, 19).threshold == pytest.approx(0.05)
    assert CostMatrix(1, 19).probit_threshold == pytest.approx(-1.6448536269514729)
    assert CostMatrix(1e200, 1e-100).probit_threshold == pytest.approx(
        -CostMatrix(1e-100, 1e200).probit_threshold
    )
    assert math.isfinite(CostMatrix(1e200, 1e-100).probit_threshold)


def test_decide_refuses_what_is_no_probability():
    for bad in ([1.5], [-0.1], [math.nan]):
        with pytest.raises(ValueError, match=rf"in \[0, 1\], got {bad[0]}"):
            CostMatrix().decide(bad)
    with pytest.raises(ValueError, match="shape"):
        CostMatrix().decide([[0.1, 0.2, 0.7]])
    assert CostMatrix().decide([0.5]).tolist() == [-1]  # a tie


@pytest.mark.parametrize("model", [GPClassifier("laplace"), LossEMClassifier()])
def test_arrays_of_any_layout(model):
    """PyTorch takes no negative strides."""
    X, y = toy()
    expected = model.fit(X[::-1].copy(), y[::-1].copy()).predict_proba(X)
    model.fit(X[::-1], y[::-1])
    assert model.predict_proba(X) == pytest.approx(expected)
    assert model.predict_proba(X[::-1])[::-1] == pytest.approx(expected)


def test_bad_fits_are_refused():
    X, y = toy()
    with pytest.raises(ValueError, match="one class"):
        GPClassifier().fit(X, ["a"] * len(X))
    with pytest.raises(ValueError, match="at least the larger cost"):
        LossEMClassifier(CostMatrix(0.2, 1), max_loss=0.5).fit(X, y)
    with pytest.raises(ValueError, match=r"of the classes \['a', 'b'\] in this order, got CostMat"):
        LossEMClassifier(CostMatrix(0.2, 1, classes=["b", "a"])).fit(X, y)
    with pytest.raises(ValueError, match="expected 3 classes"):
        LossEMClassifier(CostMatrix.from_array(1 - np.eye(3))).fit(X, y)
    with pytest.raises(ValueError, match="X_target with 1 columns"):
        LossEMClassifier().fit(X, y, X_target=np.zeros((3, 2)))
    frame = pd.DataFrame(np.hstack([X, X + 1]), columns=["a", "b"])
    with pytest.raises(ValueError, match="same order"):
        LossEMClassifier().fit(frame, y, X_target=frame[["b", "a"]])
    for name in ("length_scale", "amplitude"):
        with pytest.raises(ValueError, match=name):
            GPClassifier(**{name: 0.0}).fit(X, y)


def test_what_does_not_converge_says_so():
    X, y = toy()
    with pytest.warns(ConvergenceWarning, match="did not settle"):
        assert not GPClassifier(length_scale=0.3, amplitude=3.0, max_iter=1).fit(X, y).converged_
    with pytest.warns(ConvergenceWarning, match="was not found"):
        GPClassifier("laplace", length_scale=0.3, amplitude=3.0, max_iter=1).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert GPClassifier(length_scale=0.3, amplitude=3.0).fit(X, y).converged_
