"""Tests of linkgistic regression with the calibrator's link: features in pairs, odd data."""

import pickle

import numpy as np
import pytest
from link_fits import kinked
from scipy import sparse
from scipy.special import expit
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

from bayesloss import CalibratedClassifier, LinkgisticClassifier


def ours(**options):
    return LinkgisticClassifier(link="calibrated", **options)


@parametrize_with_checks([ours(max_iter=1)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


class TestTwoClasses:
    X, y, odds = kinked(1200)
    X_test, _, odds_test = kinked(4000, seed=1)
    model = ours().fit(X, y)

    def test_it_learns_what_a_fixed_link_cannot(self):
        truth = expit(self.odds_test)
        fixed = LogisticRegression().fit(self.X, self.y).predict_proba(self.X_test)[:, 1]
        learned = self.model.predict_proba(self.X_test)[:, 1]
        errors = [np.sqrt(np.mean((p - truth) ** 2)) for p in (learned, fixed)]
        assert errors[0] < 0.5 * errors[1]  # a third, measured

    def test_link_and_classifier_agree(self):
        p = self.model.link_.inverse_link(self.model.scores(self.X_test))
        np.testing.assert_allclose(p, self.model.predict_proba(self.X_test)[:, 1], rtol=1e-9)
        scores = self.X_test @ self.model.coef_[0] + self.model.intercept_[0]
        np.testing.assert_allclose(scores, self.model.scores(self.X_test), rtol=0, atol=1e-9)

    def test_the_order_of_rows_does_not_matter(self):
        order = np.random.default_rng(0).permutation(len(self.y))
        again = ours().fit(self.X[order], self.y[order])
        found = [m.predict_proba(self.X_test)[:, 1] for m in (self.model, again)]
        np.testing.assert_allclose(*found, rtol=0, atol=1e-8)

    def test_a_pickle_predicts_the_same(self):
        again = pickle.loads(pickle.dumps(self.model))
        np.testing.assert_array_equal(
            again.predict_proba(self.X_test), self.model.predict_proba(self.X_test)
        )

    def test_round_0_is_a_calibrated_logistic_regression(self):
        """With other folds than ours, drawn by scikit-learn: as near as two such draws are."""
        X, y, _ = kinked(1200, seed=3)
        first = ours(max_iter=1).fit(X, y)
        assert first.n_iter_ <= 2
        calibrated = CalibratedClassifier(
            LogisticRegression(solver="newton-cholesky"), cv=10, ensemble=False
        ).fit(X, y)
        p = first.predict_proba(self.X_test)[:, 1]
        q = calibrated.predict_proba(self.X_test)[:, 1]
        assert np.sqrt(np.mean((p - q) ** 2)) < 0.02

    def test_a_penalty_is_chosen_by_the_same_folds(self):
        generator = np.random.default_rng(0)
        X = generator.normal(size=(150, 60))
        y = (generator.random(150) < expit(X[:, 0])).astype(int)
        model = ours(C=[1e-3, 1e-2, 1e-1, 1, 10, 100], max_iter=1).fit(X, y)
        assert model.C_ < 10
        assert np.isfinite(model.scores_[model.Cs_ == model.C_]).all()
        assert np.nanmax(model.scores_) < 0


FORMS = {
    "dense": lambda X: X,
    "sparse": sparse.csr_array,
}


class TestPairs:
    """Each feature with each other: what both say together is what one says after the other."""

    X, y, _ = kinked(400)
    times = np.random.default_rng(1).integers(1, 4, 400)

    def p(self, X, y, *, form="dense", fit=None, **options):
        model = ours(C=0.5, max_iter=3, **options).fit(FORMS[form](X), y, **(fit or {}))
        return model.predict_proba(self.X)[:, 1]

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("C", [0.5, [0.05, 0.5, 5.0]])
    @pytest.mark.parametrize("balanced", [None, {0: 1.5, 1: 0.7}])  # "balanced" counts rows
    def test_weights_are_copies(self, form, C, balanced):
        weighted = self.fitted(self.X, self.y, form, C, balanced, self.times.astype(float))
        copied = self.fitted(
            np.repeat(self.X, self.times, axis=0), np.repeat(self.y, self.times), form, C, balanced
        )
        np.testing.assert_allclose(weighted, copied, rtol=0, atol=1e-6)

    def fitted(self, X, y, form, C, balanced, weight=None):
        model = ours(C=C, max_iter=2, class_weight=balanced)
        model.fit(FORMS[form](X), y, sample_weight=weight)
        return model.predict_proba(self.X)[:, 1]

    def test_class_weights_and_sample_weights_multiply(self):
        by_class = np.where(self.y == 1, 0.7, 1.5)
        both = self.p(
            self.X, self.y, class_weight={0: 1.5, 1: 0.7}, fit={"sample_weight": self.times}
        )
        product = self.p(self.X, self.y, fit={"sample_weight": self.times * by_class})
        np.testing.assert_allclose(both, product, rtol=0, atol=1e-9)

    @pytest.mark.parametrize("form", FORMS)
    def test_groups_with_weights(self, form):
        """A row of weight two in a group is two rows of it."""
        groups = np.arange(400) // 2
        weight = 1.0 + (np.arange(400) % 4 == 0)
        fit = {"groups": groups, "sample_weight": weight}
        weighted = self.p(self.X, self.y, form=form, fit=fit)
        times = weight.astype(int)
        copied = self.p(
            np.repeat(self.X, times, axis=0),
            np.repeat(self.y, times),
            form=form,
            fit={"groups": np.repeat(groups, times)},
        )
        np.testing.assert_allclose(weighted, copied, rtol=0, atol=1e-6)

    def test_weight_zero_is_absence(self):
        weight = np.ones(400)
        weight[::3] = 0
        kept = weight > 0
        p = self.p(self.X, self.y, fit={"sample_weight": weight})
        q = self.p(self.X[kept], self.y[kept])
        np.testing.assert_allclose(p, q, rtol=0, atol=1e-9)

    def test_more_columns_than_rows(self):
        """A rotation of the columns, of which some are zero, changes nothing."""
        generator = np.random.default_rng(2)
        X = generator.normal(size=(60, 150))
        y = (X[:, 0] + generator.logistic(size=60) > 0).astype(int)
        Q = np.linalg.qr(generator.normal(size=(150, 150)))[0]
        options = {"max_iter": 2, "tol": 1e-6}
        found = [ours(**options).fit(Z, y).predict_proba(Z)[:, 1] for Z in (X, X @ Q)]
        np.testing.assert_allclose(*found, rtol=0, atol=1e-9)
        as_sparse = ours(**options).fit(sparse.csr_array(X), y).predict_proba(X)[:, 1]
        np.testing.assert_allclose(found[0], as_sparse, rtol=0, atol=1e-4)


class TestManyClasses:
    X, y = load_iris(return_X_y=True)

    def test_the_names_of_classes_do_not_matter(self):
        """In cyclic order, which is not its own inverse."""
        model = ours(max_iter=1).fit(self.X, self.y)
        turned = ours(max_iter=1).fit(self.X, np.array(["b", "c", "a"])[self.y])
        assert turned.classes_.tolist() == ["a", "b", "c"]
        p = model.predict_proba(self.X)
        q = turned.predict_proba(self.X)
        np.testing.assert_allclose(p, q[:, [1, 2, 0]], rtol=0, atol=1e-6)
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
        assert len(model.links_) == 3
        assert not hasattr(model, "link_")

    def test_each_link_is_that_of_one_class_against_the_rest(self):
        X = self.X[::2]
        y = self.y[::2]
        model = ours(max_iter=1).fit(X, y)
        log_odds = model.decision_function(X)
        scores = model.scores(X)
        for k, link in enumerate(model.links_):
            np.testing.assert_allclose(log_odds[:, k], link.log_odds(scores[:, k]), rtol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(100, 20), (60, 100)])
def test_noise_stays_noise(n, d):
    """Balanced labels that the inputs tell nothing of: logistic regression is off by .15 to .6."""
    losses = []
    for seed in range(3):
        generator = np.random.default_rng(seed)
        X = generator.normal(size=(n, d))
        model = ours().fit(X, np.arange(n) % 2)
        p = model.predict_proba(generator.normal(size=(2000, d)))
        losses.append(log_loss(generator.integers(0, 2, 2000), p) - np.log(2))
    assert np.mean(losses) < 0.05


def test_titanic_like_tables_keep_their_categories():
    """Twelve kinds of rows, of which none may be held out whole: the log loss would rise by .08."""
    generator = np.random.default_rng(0)
    levels = generator.uniform(0.05, 0.95, 10)

    def drawn(n):
        x = generator.integers(0, 10, n)
        return x[:, None] / 3, (generator.random(n) < levels[x]).astype(int), levels[x]

    X, y, _ = drawn(600)
    X_test, y_test, _ = drawn(4000)
    loss = log_loss(y_test, ours().fit(X, y).predict_proba(X_test))
    fixed = log_loss(y_test, LogisticRegression().fit(X, y).predict_proba(X_test))
    assert loss < fixed + 0.002


def test_a_far_row_spoils_little():
    X, y, _ = kinked(1500)
    X_test, y_test, _ = kinked(4000, seed=1)
    far = X.copy()
    far[0] *= 1000
    usual = log_loss(y_test, ours().fit(X, y).predict_proba(X_test))
    with pytest.warns(UserWarning, match="1 of 1500 rows have scores far out"):
        model = ours().fit(far, y)
    assert log_loss(y_test, model.predict_proba(X_test)) < usual + 0.002


def test_too_few_rounds_are_told():
    X, y, _ = kinked(2000)
    with pytest.warns(ConvergenceWarning, match="alternation.*raise max_iter=1"):
        model = ours(max_iter=1).fit(X, y)
    assert not model.converged_
    assert model.n_iter_ == 2
