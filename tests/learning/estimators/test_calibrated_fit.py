"""Tests of the choice of model and penalty by held-out labels, against scikit-learn's refits."""

from functools import partial

import numpy as np
import pytest
from link_fits import kinked
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils import estimator_checks

from bayesloss import LinkCalibrator, LinkgisticClassifier

pytestmark = pytest.mark.filterwarnings("ignore:the best penalty of those tried|not converged")


# Of scikit-learn's checks those that see what a path may do to weights, attributes and labels; all
# of them look at a fit with one penalty, in the tests of the estimator.
CHECKS = [
    estimator_checks.check_sample_weight_equivalence_on_dense_data,
    estimator_checks.check_estimators_overwrite_params,
    estimator_checks.check_fit_idempotent,
    estimator_checks.check_fit2d_1sample,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*outside")
def test_scikit_learn_checks(check):
    check("path", LinkgisticClassifier(C=[0.1, 1.0], max_iter=1))


def few(n=120, d=25, seed=0):
    """So few rows a column that the penalty matters."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d))
    beta = generator.normal(size=d) / np.sqrt(d)
    return X, (generator.random(n) < expit(2 * X @ beta)).astype(int)


CS = [1e-3, 0.03, 1.0, 30.0]

path = partial(LinkgisticClassifier, max_iter=1)  # rounds come after the scores


def score_at(C, X, y, multi_class="auto"):
    """Of one C alone, so that no path ends before it."""
    return path(C=[C, C], multi_class=multi_class).fit(X, y).scores_[0]


@pytest.mark.parametrize("C", [0.1, 1e4])
def test_scores_are_those_of_refits(C):
    """Regressions by scikit-learn without each of ten folds."""
    X, y = few(300, 30)
    usual = LogisticRegression(C=C, max_iter=5000)
    held_out = cross_val_predict(usual, X, y, cv=10, method="decision_function")
    losses = np.logaddexp(0, (1 - 2 * y) * held_out)
    error = losses.std() / np.sqrt(len(y))
    assert -score_at(C, X, y) == pytest.approx(losses.mean(), abs=error)


@pytest.mark.parametrize("kind", ["joint", "ovr"])
def test_scores_of_many_classes_are_those_of_refits_one_by_one(kind):
    X, y = load_iris(return_X_y=True)
    X = X[::2]
    y = y[::2]
    usual = LogisticRegression(C=0.1, tol=1e-8, max_iter=5000)
    if kind == "ovr":
        usual = OneVsRestClassifier(usual)
    p = cross_val_predict(usual, X, y, cv=LeaveOneOut(), method="predict_proba")
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    # Nearly: no two rows of these are equal, and both searches have a tolerance.
    assert -score_at(0.1, X, y, kind) == pytest.approx(loss, abs=1e-3)


def test_where_nothing_can_be_learned_nothing_is():
    """Labels by chance, five draws: nothing beats log 2. C = 1 costs some ten millinats."""
    excess = []
    for seed in range(5):
        generator = np.random.default_rng(seed)
        X = generator.normal(size=(60, 300))
        y = generator.permutation(60) % 2
        model = LinkgisticClassifier(C="auto").fit(X, y)
        log_p = model.predict_log_proba(generator.normal(size=(500, 300)))
        excess.append(-log_p.mean() - np.log(2))  # either label is as likely
    assert np.mean(excess) < 2e-3


def test_joint_or_each_class_by_what_was_held_out():
    """Iris' second class lies between the others, which one line cannot tell from both."""
    X, y = load_iris(return_X_y=True)
    fits = {
        how: LinkgisticClassifier(multi_class=how).fit(X, y) for how in ("auto", "joint", "ovr")
    }
    assert fits["joint"].joint_ and not fits["ovr"].joint_
    assert fits["joint"].held_out_loss_ < fits["ovr"].held_out_loss_ - 0.05
    assert fits["auto"].joint_
    p = [fits[kind].predict_proba(X) for kind in ("auto", "joint")]
    np.testing.assert_array_equal(*p)


def test_more_columns_than_rows_are_scored_in_as_many_coordinates():
    """Columns turned by a rotation, so that few are left, and noughts."""
    X, y = few(60, 20)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(200, 20)))[0]
    assert score_at(0.5, X @ turn.T, y) == pytest.approx(score_at(0.5, X, y), abs=1e-3)


def test_a_class_that_a_fold_has_none_left_of():
    X, y = few()
    for codes in (np.arange(120) == 7, np.where(np.arange(120) == 7, 2, y)):
        assert np.isfinite(path(C=[0.1, 1.0]).fit(X, codes).scores_).all()


@pytest.mark.parametrize(("n_classes", "multi_class"), [(2, "joint"), (3, "joint"), (3, "ovr")])
def test_the_fit_is_that_of_the_c_chosen(n_classes, multi_class):
    X, y = few()
    if n_classes == 3:
        y += np.random.default_rng(1).integers(0, 2, len(y))
    model = path(C=CS, multi_class=multi_class).fit(X, y)
    assert model.C_ <= model.Cs_[np.nanargmax(model.scores_)] < CS[-1]
    same = path(C=model.C_, multi_class=multi_class).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), same.predict_proba(X))


def test_the_path_ends_when_weaker_penalties_are_no_better():
    model = path(C="auto").fit(*few())
    np.testing.assert_allclose(model.Cs_, np.geomspace(1e-4, 1e4, 10))
    tried = min(int(np.nanargmax(model.scores_)) + 3, 10)
    assert np.isfinite(model.scores_[:tried]).all() and np.isnan(model.scores_[tried:]).all()


@pytest.mark.parametrize("seed", range(6))
def test_copies_make_no_penalty_surer(seed):
    """Each row ten times at a tenth of C is the same data: the same penalty is the strongest."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(60, 3))
    y = (X[:, 0] + 1.5 * generator.normal(size=60) > 0).astype(int)
    Cs = np.array([1e-3, 1e-2, 0.1, 1.0, 10.0])
    once = path(C=Cs).fit(X, y).C_
    often = path(C=Cs / 10).fit(np.repeat(X, 10, axis=0), np.repeat(y, 10)).C_
    assert often == pytest.approx(once / 10)


def test_groups_are_held_out_whole():
    """Each row thrice, with a little noise: row by row the weakest penalty would look best."""
    X, y = few()
    thrice = np.repeat(X, 3, axis=0) + 0.01 * np.random.default_rng(1).normal(size=(360, 25))
    groups = np.repeat(np.arange(120), 3)
    plain = path(C=CS).fit(X, y, groups=np.arange(120))  # in the same folds
    each = path(C=CS).fit(thrice, np.repeat(y, 3))
    whole = path(C=np.array(CS) / 3).fit(thrice, np.repeat(y, 3), groups=groups)
    # Counts are data for the link: under the strongest penalty it gets farther from its prior.
    assert whole.scores_[1:3] == pytest.approx(plain.scores_[1:3], abs=0.02)
    assert np.nanmax(each.scores_) > np.nanmax(plain.scores_) + 0.05


@pytest.mark.parametrize(("Cs", "end"), [([1e-4, 1e-3], "weakest"), ([1e3, 1e4], "strongest")])
def test_a_best_penalty_at_the_end_is_told(Cs, end):
    with pytest.warns(UserWarning, match=f"is the {end}"):
        path(C=Cs).fit(*few())


@pytest.mark.parametrize("Cs", [[], [0.0, 1.0], [-1.0], [[1.0]]])
def test_penalties_that_are_none(Cs):
    with pytest.raises(ValueError, match="expected positive values of C, got"):
        LinkgisticClassifier(C=Cs).fit(*few())


def test_the_penalty_is_that_of_c_in_each_round():
    """Two rounds by scikit-learn, SciPy and the calibrator: weights, up to their common factor.

    Of so many rows and this tolerance none is held out. Columns of several sizes tell the penalty.
    """
    X, y, _ = kinked(3000)
    X = (X - 5) * [1, 0.2, 3, 1] + 2
    C = 1e-3
    tol = 2e-3
    Z = X - X.mean(axis=0)
    beta = LogisticRegression(C=C, tol=1e-10, solver="newton-cholesky").fit(Z, y).coef_[0]
    strength = 1.0
    for rounds in (1, 2):
        x = Z @ beta
        curve = LinkCalibrator(scale="real").fit(x, y)
        grid = np.linspace(2 * x.min(), 2 * x.max(), 4000)
        nu = CubicSpline(grid, curve.log_odds(grid))

        def loss(beta, nu=nu, strength=strength):
            margin = (2 * y - 1) * nu(Z @ beta)
            return (strength * beta @ beta / (2 * C) - log_expit(margin).sum()) / len(y)

        beta = minimize(loss, beta, tol=1e-8).x
        found = LinkgisticClassifier(C=C, tol=tol, max_iter=rounds).fit(X, y).coef_[0]
        # A slope of tol / 10 a case is left, where the penalty's own is beta / (C n), about .1.
        np.testing.assert_allclose(
            found / np.linalg.norm(found), beta / np.linalg.norm(beta), rtol=0, atol=2e-3
        )
        # Scores keep their size, and the penalty on them stays what it was.
        factor = x.std() / (Z @ beta).std()
        assert factor > 1.3  # or the test would not see it
        beta *= factor
        strength /= factor**2
