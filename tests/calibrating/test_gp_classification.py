"""The estimators: scikit-learn's own checks, costs, and bad input."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.utils.estimator_checks import parametrize_with_checks
from wavy_labels import toy

from bayesloss import CostMatrix, GPClassifier, LossEMClassifier
from bayesloss.calibrating.kernel_matrices import kernel_matrix
from bayesloss.calibrating.probit import whitened_gp

# A kernel that is given takes a tenth of the time of one that is learned, and shows the interface
# as well; tests below learn theirs.
CLASSIFIERS = [
    GPClassifier(length_scale=1.0, amplitude=1.0),
    LossEMClassifier(CostMatrix(1.0, 1.0), length_scale=1.0, amplitude=1.0, max_loss=2.0),
]


@parametrize_with_checks(CLASSIFIERS)
@pytest.mark.filterwarnings("ignore:the fit tells nothing")  # of tables with any length scale
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API:sklearn.exceptions.SkipTestWarning")
def test_scikit_learn(estimator, check):
    check(estimator)


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


def test_what_is_written_to_fitted_attributes_changes_no_prediction():
    X, y = toy()
    model = GPClassifier(length_scale=0.3, amplitude=3.0).fit(X, y)
    before = model.predict_proba(X)
    model.length_scale_ *= 10
    model.amplitude_ = 0.1
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_relabelling_mirrors_the_decisions():
    X, y = toy()
    one = LossEMClassifier(CostMatrix(0.2, 1), length_scale=0.3, amplitude=3.0).fit(X, y)
    swapped = np.where(y == "a", "b", "a")
    other = LossEMClassifier(CostMatrix(1, 0.2), length_scale=0.3, amplitude=3.0).fit(X, swapped)
    grid = np.linspace(0, 1, 101)[:, None]
    assert one.decision_function(grid) == pytest.approx(-other.decision_function(grid), abs=1e-6)


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


def test_bad_fits_are_refused():
    X, y = toy()
    with pytest.raises(ValueError, match="one class"):
        GPClassifier().fit(X, ["a"] * len(X))
    with pytest.raises(ValueError, match=">= the larger cost"):
        LossEMClassifier(CostMatrix(0.2, 1), max_loss=0.5).fit(X, y)
    with pytest.raises(ValueError, match=r"of the classes \['a', 'b'\] in order, got CostMat"):
        LossEMClassifier(CostMatrix(0.2, 1, classes=["b", "a"])).fit(X, y)
    with pytest.raises(ValueError, match="expected 3 classes"):
        LossEMClassifier(CostMatrix.from_array(1 - np.eye(3))).fit(X, y)
    with pytest.raises(ValueError, match="is expecting 1 features"):
        LossEMClassifier().fit(X, y, X_target=np.zeros((3, 2)))
    frame = pd.DataFrame(np.hstack([X, X + 1]), columns=["a", "b"])
    with pytest.raises(ValueError, match="same order"):
        LossEMClassifier().fit(frame, y, X_target=frame[["b", "a"]])
    for name in ("length_scale", "amplitude"):
        for bad in (0.0, -1.0, math.nan, math.inf, "long"):
            with pytest.raises(ValueError, match=name):
                GPClassifier(**{name: bad}).fit(X, y)
    with pytest.raises(ValueError, match="amplitude"):
        GPClassifier(amplitude=1e200).fit(X, y)
    for bad in ([0.1, 0.2], [-1.0], [math.nan], [[1.0]]):
        with pytest.raises(ValueError, match="length_scale"):
            GPClassifier(length_scale=bad).fit(X, y)
    with pytest.raises(ValueError, match="finite number of length scales"):
        GPClassifier(length_scale=1e-200).fit(X * 1e200, y)
    for model in (GPClassifier(max_iter=0), LossEMClassifier(max_iter=0)):
        with pytest.raises(ValueError, match="max_iter"):
            model.fit(X, y)
    with pytest.raises(ValueError, match="Only binary"):
        LossEMClassifier().fit(X, np.arange(len(X)) % 3)


def test_the_kernel_is_chosen_by_the_evidence():
    """The default beats given kernels at half and double its values, and what is given stays."""
    X, y = toy(60)
    model = GPClassifier().fit(X, y)
    for length, amplitude in ((0.5, 1.0), (2.0, 1.0), (1.0, 0.5), (1.0, 2.0)):
        other = GPClassifier(
            length_scale=model.length_scale_[0] * length, amplitude=model.amplitude_ * amplitude
        ).fit(X, y)
        assert other.log_evidence_ < model.log_evidence_
    assert GPClassifier(amplitude=1.7).fit(X, y).amplitude_ == 1.7
    assert GPClassifier(length_scale=0.3).fit(X, y).length_scale_ == [0.3]


@pytest.mark.parametrize("inference", ["ep", "laplace"])
def test_the_fit_goes_on_where_the_search_for_the_kernel_ended(inference):
    """Fewer steps than for the same kernel given, and the same posterior."""
    X, y = toy(60)
    model = GPClassifier(inference).fit(X, y)
    given = GPClassifier(
        inference, length_scale=model.length_scale_, amplitude=model.amplitude_
    ).fit(X, y)
    assert model.n_iter_ < given.n_iter_ - 1
    # Both stop when nothing changes by more than 1e-9.
    assert model.predict_proba(X) == pytest.approx(given.predict_proba(X), abs=1e-7)


@pytest.mark.parametrize("inference", ["ep", "laplace"])
@pytest.mark.parametrize("length", [1.0, 30.0], ids=["as many weights", "few weights"])
def test_many_rows_are_fitted_as_few_are(inference, length, monkeypatch):
    """Beyond 500 rows other matrices are factorised: the results stay."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = X[:, 0] > rng.normal(size=600)
    model = GPClassifier(inference, length_scale=length, amplitude=3.0).fit(X[:550], y[:550])
    p = model.predict_proba(X)
    evidence = model.log_evidence_
    rank = model.prior_.features.shape[-1]
    assert (rank == 550) if length == 1.0 else (rank < 550 / 2)
    monkeypatch.setattr(whitened_gp, "MANY_INPUTS", 600)
    monkeypatch.setattr(kernel_matrix, "MANY_INPUTS", 600)
    # Eigenvectors leave directions out whose variance is 1e-11 of the largest, 550 x 9.
    assert model.fit(X[:550], y[:550]).predict_proba(X) == pytest.approx(p, abs=5e-8)
    assert model.log_evidence_ == pytest.approx(evidence, abs=1e-6)


def test_warnings_point_at_the_caller():
    X, y = toy()
    for model, said in (
        (GPClassifier(length_scale=0.3, amplitude=3.0, max_iter=1), "did not settle"),
        (GPClassifier("laplace", length_scale=0.3, amplitude=3.0, max_iter=1), "was not found"),
        (LossEMClassifier(length_scale=0.3, amplitude=3.0, max_iter=1), "still changed"),
    ):
        with pytest.warns(ConvergenceWarning, match=said) as raised:
            model.fit(X, y, **({"X_target": X + 1} if "changed" in said else {}))
        assert raised[0].filename == __file__ and not model.converged_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert GPClassifier(length_scale=0.3, amplitude=3.0).fit(X, y).converged_


@pytest.mark.parametrize("inference", ["ep", "laplace"])
def test_many_classes_are_each_against_the_rest(inference):
    X, y = load_iris(return_X_y=True)
    X = X[::3]
    y = np.array(["a", "b", "c"])[y[::3]]
    model = GPClassifier(inference, length_scale=1.0, amplitude=3.0).fit(X, y)
    p = model.predict_proba(X)
    decided = model.decision_function(X)
    parts = [GPClassifier(inference, length_scale=1.0, amplitude=3.0).fit(X, y == k) for k in "abc"]
    alone = np.column_stack([part.predict_proba(X)[:, 1] for part in parts])
    assert p == pytest.approx(alone / alone.sum(1, keepdims=True), abs=1e-9)
    assert decided == pytest.approx(np.column_stack([m.decision_function(X) for m in parts]))
    assert (model.predict(X) == model.classes_[p.argmax(1)]).all()
    assert model.log_evidence_ == pytest.approx(sum(part.log_evidence_ for part in parts))
    # One kernel for all, chosen by the sum.
    free = GPClassifier(inference).fit(X, y)
    assert free.log_evidence_ > model.log_evidence_
    # Far away every class is as likely.
    assert free.predict_proba([[1e6] * 4]) == pytest.approx(1 / 3)


def test_a_huge_max_loss_is_laplace():
    X, y = toy()
    costs = CostMatrix(1, 3)
    laplace = GPClassifier("laplace", length_scale=0.3, amplitude=3.0).fit(X, y)
    for M in (1e12, 1e100, 1e308):
        model = LossEMClassifier(costs, length_scale=0.3, amplitude=3.0, max_loss=M).fit(X, y)
        assert model.converged_
        assert model.predict_proba(X) == pytest.approx(laplace.predict_proba(X), abs=1e-9)
        decided = costs.decide(laplace.predict_proba(X)) > 0
        assert (model.predict(X) == model.classes_[decided.astype(int)]).all()
