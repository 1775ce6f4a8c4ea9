"""The estimators: scikit-learn's own checks, costs, and bad input."""

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

from bayesloss import CostMatrix, GPClassifier, LossEMClassifier
from bayesloss.calibrating import gp_classification

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
        model.set_params(length_scale=1.0, amplitude=1.0)
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
    for model in (GPClassifier(), LossEMClassifier()):
        with pytest.raises(ValueError, match="[Cc]omplex"):
            model.fit(X + 1j, y)
    with pytest.raises(ValueError, match="Only binary"):
        LossEMClassifier().fit(X, np.arange(len(X)) % 3)


def test_what_does_not_converge_says_so():
    X, y = toy()
    with pytest.warns(ConvergenceWarning, match="did not settle"):
        assert not GPClassifier(length_scale=0.3, amplitude=3.0, max_iter=1).fit(X, y).converged_
    with pytest.warns(ConvergenceWarning, match="was not found"):
        GPClassifier("laplace", length_scale=0.3, amplitude=3.0, max_iter=1).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert GPClassifier(length_scale=0.3, amplitude=3.0).fit(X, y).converged_


@pytest.mark.parametrize("model", [GPClassifier(), GPClassifier("laplace"), LossEMClassifier()])
def test_given_length_scales_are_units(model):
    """Columns divided by their length scales, and a length scale of one: the same fit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2)) * [1.0, 1e3]
    y = X[:, 0] + X[:, 1] / 1e3 > rng.normal(size=30)
    scales = [0.7, 2e3]
    model.set_params(length_scale=scales, amplitude=2.0)
    ours = model.fit(X, y).predict_proba(X)
    assert (model.length_scale_ == scales).all() and model.amplitude_ == 2.0
    again = model.set_params(length_scale=1.0).fit(X / scales, y).predict_proba(X / scales)
    assert ours == pytest.approx(again, abs=1e-12)


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


@pytest.mark.parametrize("model", [GPClassifier(), LossEMClassifier(CostMatrix(1, 19))])
def test_columns_of_any_unit(model):
    """Breast cancer with units from 1e-3 to 1e3: as good as standardised, where 0.5 was given."""
    X, y = load_breast_cancer(return_X_y=True)
    units = 10 ** np.random.default_rng(0).uniform(-3, 3, X.shape[1])
    train, test = np.arange(120), np.arange(120, 400)
    p = model.fit(X[train] * units, y[train]).predict_proba(X[test] * units)
    plain = ((X - X[train].mean(0)) / X[train].std(0))[train], y[train]
    again = model.fit(*plain).predict_proba((X[test] - X[train].mean(0)) / X[train].std(0))
    assert p == pytest.approx(again, abs=1e-3)
    if isinstance(model, GPClassifier):
        assert log_loss(y[test], p) < 0.2 < log_loss(y[test], np.full(len(test), y[train].mean()))


@pytest.mark.parametrize("unit", [1e200, 1e-320, 1e308 / 4])
def test_units_at_the_ends_of_the_numbers(unit):
    """The same probabilities as in plain units; subnormal numbers have three digits."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(40, 2)), 1)
    y = X[:, 0] > rng.normal(size=40)
    for model in (GPClassifier(), LossEMClassifier(CostMatrix(1, 3))):
        expected = model.fit(X, y).predict_proba(X)
        tolerance = 1e-2 if unit < 1e-300 else 1e-4
        assert model.fit(X * unit, y).predict_proba(X * unit) == pytest.approx(
            expected, abs=tolerance
        )


@pytest.mark.parametrize("length_scale", [1e-160, 1e-300, 1e160])
def test_length_scales_at_the_ends_of_the_numbers(length_scale):
    """Rows that have nothing to do with each other, or are all the same; in any case a number."""
    X, y = toy()
    model = GPClassifier(length_scale=length_scale, amplitude=1.0)
    if length_scale < 1:
        with pytest.warns(UserWarning, match="the fit tells nothing"):
            model.fit(X, y)
        # A row and its own label: f has variance 1 and correlation 1 with what is asked.
        slope = math.sqrt(2 / math.pi) / math.sqrt(2)
        expected = ndtr(slope / math.sqrt(2 - slope**2))
        assert np.abs(model.predict_proba(X) - 0.5) == pytest.approx(expected - 0.5, abs=1e-9)
        assert model.predict_proba(X + 0.001) == pytest.approx(0.5)
    else:
        assert np.ptp(model.fit(X, y).predict_proba(X)[:, 1]) < 1e-9


@pytest.mark.parametrize("model", [GPClassifier(), GPClassifier("laplace"), LossEMClassifier()])
def test_a_fit_that_tells_nothing_says_so(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    y = X[:, 0] > 0.5 * rng.normal(size=30)
    model.set_params(length_scale=1.0, amplitude=1.0)
    with pytest.warns(UserWarning, match="length scale too short") as said:
        model.fit(X * 1000, y)
    assert said[0].filename == __file__  # and not a line of the package
    model.set_params(length_scale="shared", amplitude=None)
    with pytest.warns(UserWarning, match="better than chance"):
        model.fit(X, np.arange(30) % 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y)


@pytest.mark.parametrize("more", [-1e-5, 1e-5])
def test_held_out_probabilities_are_averages_over_f(more):
    """LHG (25): Phi averaged over f ~ N(m, v), by quadrature, tells just too little, or enough."""
    v, likelier = 0.5, math.log(0.5) + gp_classification._TOLD + more

    def told(m):
        return math.log(quad(lambda f: ndtr(f) * norm.pdf(f, m, math.sqrt(v)), -8, 8)[0])

    m = brentq(lambda m: told(m) - likelier, 0, 1)
    signs = torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64)
    fit = SimpleNamespace(held_out=lambda features: (m * signs, torch.full_like(signs, v)))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        GPClassifier()._say_if_nothing_was_learned(fit, signs, signs)
    assert len(said) == (more < 0), "probit average with variance 1 + v"


def test_warnings_point_at_the_caller():
    X, y = toy()
    for model, said in (
        (GPClassifier(length_scale=0.3, amplitude=3.0, max_iter=1), "did not settle"),
        (GPClassifier("laplace", length_scale=0.3, amplitude=3.0, max_iter=1), "was not found"),
        (LossEMClassifier(length_scale=0.3, amplitude=3.0, max_iter=1), "still changed"),
    ):
        with pytest.warns(ConvergenceWarning, match=said) as raised:
            model.fit(X, y, **({"X_target": X + 1} if "changed" in said else {}))
        assert raised[0].filename == __file__


@pytest.mark.parametrize("inference", ["ep", "laplace"])
def test_many_classes_are_each_against_the_rest(inference):
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], np.array(["a", "b", "c"])[y[::3]]
    model = GPClassifier(inference, length_scale=1.0, amplitude=3.0).fit(X, y)
    p, decided = model.predict_proba(X), model.decision_function(X)
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
    """The larger M, the nearer; where its sum would overflow, too."""
    X, y = toy()
    costs = CostMatrix(1, 3)
    laplace = GPClassifier("laplace", length_scale=0.3, amplitude=3.0).fit(X, y)
    for M in (1e12, 1e100, 1e308):
        model = LossEMClassifier(costs, length_scale=0.3, amplitude=3.0, max_loss=M).fit(X, y)
        assert model.converged_
        assert model.predict_proba(X) == pytest.approx(laplace.predict_proba(X), abs=1e-9)
        decided = costs.decide(laplace.predict_proba(X)) > 0
        assert (model.predict(X) == model.classes_[decided.astype(int)]).all()
