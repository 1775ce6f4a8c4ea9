"""Tests of linkgistic regression: features in pairs, odd data, bad input."""

import pickle
import warnings

import numpy as np
import pytest
from link_fits import kinked
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from tolerances import of_a_maximum

from bayesloss import CalibratedClassifier, LinkgisticClassifier, PaperLink


@parametrize_with_checks([LinkgisticClassifier(max_iter=1)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


class TestTwoClasses:
    X, y, odds = kinked(1200)
    X_test, _, odds_test = kinked(4000, seed=1)
    model = LinkgisticClassifier().fit(X, y)

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
        again = LinkgisticClassifier().fit(self.X[order], self.y[order])
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
        first = LinkgisticClassifier(max_iter=1).fit(X, y)
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
        model = LinkgisticClassifier(C=[1e-3, 1e-2, 1e-1, 1, 10, 100], max_iter=1).fit(X, y)
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
        model = LinkgisticClassifier(C=0.5, max_iter=3, **options).fit(
            FORMS[form](X), y, **(fit or {})
        )
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
        model = LinkgisticClassifier(C=C, max_iter=2, class_weight=balanced)
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
        found = [
            LinkgisticClassifier(**options).fit(Z, y).predict_proba(Z)[:, 1] for Z in (X, X @ Q)
        ]
        np.testing.assert_allclose(*found, rtol=0, atol=1e-9)
        as_sparse = (
            LinkgisticClassifier(**options).fit(sparse.csr_array(X), y).predict_proba(X)[:, 1]
        )
        np.testing.assert_allclose(found[0], as_sparse, rtol=0, atol=1e-4)


class TestManyClasses:
    X, y = load_iris(return_X_y=True)

    def test_the_names_of_classes_do_not_matter(self):
        """In cyclic order, which is not its own inverse."""
        model = LinkgisticClassifier(max_iter=1).fit(self.X, self.y)
        turned = LinkgisticClassifier(max_iter=1).fit(self.X, np.array(["b", "c", "a"])[self.y])
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
        model = LinkgisticClassifier(max_iter=1).fit(X, y)
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
        model = LinkgisticClassifier().fit(X, np.arange(n) % 2)
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
    loss = log_loss(y_test, LinkgisticClassifier().fit(X, y).predict_proba(X_test))
    fixed = log_loss(y_test, LogisticRegression().fit(X, y).predict_proba(X_test))
    assert loss < fixed + 0.002


def test_a_far_row_spoils_little():
    X, y, _ = kinked(1500)
    X_test, y_test, _ = kinked(4000, seed=1)
    far = X.copy()
    far[0] *= 1000
    usual = log_loss(y_test, LinkgisticClassifier().fit(X, y).predict_proba(X_test))
    with pytest.warns(UserWarning, match="1 of 1500 rows have scores far out"):
        model = LinkgisticClassifier().fit(far, y)
    assert log_loss(y_test, model.predict_proba(X_test)) < usual + 0.002


@pytest.mark.filterwarnings("ignore:not converged")
def test_rows_are_far_by_their_weight():
    """Sixty of 1,500 rows are no exception; where they count for one in 30,000 they are."""
    X, y, _ = kinked(1500)
    X[:60] *= 1000
    weight = np.ones(1500)
    weight[:60] = 1e-3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LinkgisticClassifier(max_iter=1).fit(X, y)
    assert not [each for each in caught if "far out" in str(each.message)]
    with pytest.warns(UserWarning, match="rows have scores far out"):
        LinkgisticClassifier(max_iter=1).fit(X, y, sample_weight=weight)


def test_too_few_rounds_are_told():
    X, y, _ = kinked(2000)
    with pytest.warns(ConvergenceWarning, match="alternation.*raise max_iter=1"):
        model = LinkgisticClassifier(max_iter=1).fit(X, y)
    assert not model.converged_
    assert model.n_iter_ == 2


def test_a_weak_penalty_lets_no_score_run_away():
    """Scores that may leave the period for nothing do so: then the log loss here is 10."""
    X, y = make_classification(3000, 40, n_informative=10, random_state=0, flip_y=0.05)
    model = LinkgisticClassifier(C=1e3).fit(X[:600], y[:600])
    usual = LogisticRegression().fit(X[:600], y[:600])
    losses = [log_loss(y[600:], m.predict_proba(X[600:])) for m in (model, usual)]
    assert losses[0] < losses[1] + 0.05


class TestConveniences:
    X, y, _ = kinked(300)
    model = LinkgisticClassifier().fit(X, y)

    def test_scores(self):
        expected = self.X @ self.model.coef_[0] + self.model.intercept_
        np.testing.assert_allclose(self.model.scores(self.X), expected, rtol=0, atol=1e-9)
        assert self.model.scores(self.X).mean() == pytest.approx(0, abs=1e-9)

    def test_balanced_classes(self):
        model = LinkgisticClassifier(class_weight="balanced").fit(self.X, self.y)
        assert model.predict_proba(self.X)[:, 1].mean() == pytest.approx(0.5, abs=0.03)

    def test_a_bar(self, capsys):
        LinkgisticClassifier(verbose=1).fit(self.X, self.y)
        assert "alternation" in capsys.readouterr().err

    def test_a_number_in_a_number_out(self):
        link = self.model.link_
        for function in (link.source, link.inverse_link, link.log_odds):
            assert isinstance(function(0.5), float)
            assert function(0.5) == function([0.5])[0]
        for band in (link.source_band, link.inverse_link_band):
            assert band(0.5) == tuple(float(end[0]) for end in band([0.5]))

    @pytest.mark.filterwarnings("ignore:not converged")
    def test_log_probabilities(self):
        one_vs_rest = LinkgisticClassifier(max_iter=1, multi_class="ovr")
        one_vs_rest.fit(self.X, self.y + (np.arange(len(self.y)) % 3 == 0))
        assert one_vs_rest.classes_.size == 3 and not one_vs_rest.joint_
        for model in (self.model, one_vs_rest):
            log_p = model.predict_log_proba(self.X)
            np.testing.assert_allclose(np.exp(log_p), model.predict_proba(self.X), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:not converged")
def test_a_second_fit_forgets_the_first_ones_link():
    X, y, _ = kinked(60)
    model = LinkgisticClassifier(max_iter=1).fit(X, y)
    assert model.fit(X, np.arange(60) % 3).links_
    assert not hasattr(model, "link_")


def test_warnings_name_the_line_of_the_user():
    """Of many classes in one model, too, and through a pipeline."""
    X = kinked(300)[0]
    pipeline = make_pipeline(StandardScaler(), LinkgisticClassifier(C=np.inf))
    apart = np.digitize(X[:, 0], [4.0, 5.5])
    with pytest.warns(ConvergenceWarning, match="can be separated") as caught:
        pipeline.fit(X, apart)
    assert {w.filename for w in caught} == {__file__}


class TestCopies:
    """A row that is in the data three times is one observation: left out, it is left out whole."""

    generator = np.random.default_rng(0)
    beta = 0.25 * np.random.default_rng(5).normal(size=60)
    X = generator.normal(size=(200, 60))
    y = (generator.random(200) < expit(X @ beta)).astype(int)
    X_test = generator.normal(size=(2000, 60))
    y_test = (generator.random(2000) < expit(X_test @ beta)).astype(int)

    def log_loss(self, X, y, C=1.0, **options):
        model = LinkgisticClassifier(C=C)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            probability = model.fit(X, y, **options).predict_proba(self.X_test)
        return log_loss(self.y_test, probability), probability

    def test_copies_change_little(self):
        """Without care for them the log loss is 1.15, and the logistic regression's 0.86."""
        plain, _ = self.log_loss(self.X, self.y)
        weighted, p = self.log_loss(self.X, self.y, 1 / 3, sample_weight=np.full(200, 3.0))
        thrice, q = self.log_loss(np.repeat(self.X, 3, axis=0), np.repeat(self.y, 3), 1 / 3)
        np.testing.assert_allclose(p, q, rtol=0, atol=1e-6)
        assert weighted == pytest.approx(plain, rel=0.05)
        assert thrice == pytest.approx(plain, rel=0.05)

    def test_jittered_copies_are_groups(self):
        X = np.repeat(self.X, 3, axis=0)
        X += 0.01 * np.random.default_rng(1).normal(size=X.shape)
        groups = np.repeat([f"patient {i}" for i in range(200)], 3)
        jittered, _ = self.log_loss(X, np.repeat(self.y, 3), 1 / 3, groups=groups)
        assert jittered == pytest.approx(self.log_loss(self.X, self.y)[0], rel=0.05)

    def test_rows_alike_by_nature_are_no_copies(self):
        """A table of 2 x 2 x 2 cells: cells held out whole, nothing would be learned (0.69)."""
        generator = np.random.default_rng(0)
        X = generator.integers(0, 2, (2000, 3)).astype(float)
        y = (generator.random(2000) < expit(X @ [2, -1, 0.5] - 0.7)).astype(int)
        learned = LinkgisticClassifier().fit(X[:1000], y[:1000]).predict_proba(X[1000:])
        fixed = LogisticRegression().fit(X[:1000], y[:1000]).predict_proba(X[1000:])
        assert log_loss(y[1000:], learned) < log_loss(y[1000:], fixed) + 0.005


class TestAnotherDevice:
    """A device that is none, see conftest, which refuses to mix its tensors with others."""

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"multi_class": "ovr", "C": np.inf},
            {"multi_class": "joint"},
            {"C": [0.1, 1.0]},
        ],
    )
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    @pytest.mark.filterwarnings("ignore:the best penalty of those tried")
    def test_the_fit_is_the_processors(self, options, second_device):
        X, y = (each[::2] for each in load_iris(return_X_y=True))
        X = X + np.random.default_rng(0).normal(size=X.shape)
        weight = np.random.default_rng(1).integers(1, 3, len(y)).astype(float)
        options = {"max_iter": 1, **options}
        here = LinkgisticClassifier(**options).fit(X, y, sample_weight=weight)
        with second_device() as device:
            model = LinkgisticClassifier(device=str(device.device), **options)
            there = model.fit(X, y, sample_weight=weight)
        assert device.used
        p = here.predict_proba(X)
        atol = self.of_the_search(X, y, weight, p, np.max(options.get("C", 1.0)))
        np.testing.assert_allclose(there.coef_, here.coef_, rtol=0, atol=atol)
        np.testing.assert_allclose(there.predict_proba(X), p, rtol=0, atol=atol)

    @staticmethod
    def of_the_search(X, y, weight, p, C):
        """A penalty bends the mean by 1 / (C n) at least, in whatever direction.

        Without one only the labels bend it, least in its flattest direction. The weights are
        searched for twice; a step of the first is felt in the second.
        """
        share = weight / weight.sum()
        centred = X - X.mean(axis=0)
        bends = [np.linalg.eigvalsh((centred.T * share * q * (1 - q)) @ centred)[0] for q in p.T]
        curvature = min(bends) if np.isinf(C) else 1 / (C * weight.sum())
        return of_a_maximum(log_loss(y, p, sample_weight=weight), curvature, runs=4)


class TestBadInput:
    X, y, _ = kinked(200)

    def test_nothing_but_constant_columns(self):
        probability = (
            LinkgisticClassifier()
            .fit(np.ones((200, 2)), self.y)
            .predict_proba(np.ones((1, 2)))[0, 1]
        )
        assert probability == pytest.approx(self.y.mean(), abs=0.02)

    @pytest.mark.parametrize(
        ("n_classes", "C"),
        [(2, 1e30), (3, 1e16)],
    )
    def test_a_penalty_below_rounding_errors(self, n_classes, C):
        """It is as none, and what the data leave open (copies of columns) changes no prediction.

        Of three classes only differences of weights matter, and what they share is open, too.
        """
        generator = np.random.default_rng(0)
        X = generator.normal(size=(300, 4 if n_classes == 2 else 20))
        score = X[:, 0] + X[:, 1] + generator.logistic(size=300)
        y = np.searchsorted([0.0] if n_classes == 2 else [-0.7, 0.7], score)
        for Z in (X, np.hstack([X, X])):
            free = LinkgisticClassifier(C=np.inf).fit(Z, y).predict_proba(Z)
            found = LinkgisticClassifier(C=C).fit(Z, y).predict_proba(Z)
            np.testing.assert_allclose(found, free, atol=2e-3)

    def test_a_weak_penalty_leaves_rounding_no_say(self):
        """What all classes share is open to a joint model: no step along it may go anywhere."""
        generator = np.random.default_rng(2)
        X = generator.normal(size=(300, 20))
        y = np.searchsorted([-0.7, 0.7], X[:, 0] + X[:, 1] + generator.logistic(size=300))
        model = LinkgisticClassifier(C=1e4, multi_class="joint")
        expected = model.fit(X, y).predict_proba(X)
        moved = model.fit(X + 1e-9 * generator.normal(size=X.shape), y).predict_proba(X)
        np.testing.assert_allclose(moved, expected, atol=1e-6)

    def test_separable_without_a_penalty(self):
        """The optimum is at infinity: the fit stays finite, says so, and predicts sensibly."""
        X = np.linspace(-1, 1, 60)[:, None]
        y = (X[:, 0] > 0.1).astype(int)
        with pytest.warns(ConvergenceWarning, match=r"1 of 1 problems can be separated"):
            model = LinkgisticClassifier(C=np.inf).fit(X, y)
        assert np.isfinite(model.coef_).all()
        assert model.score(X, y) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            LinkgisticClassifier(C=1.0).fit(X, y)

    @pytest.mark.filterwarnings("ignore:not converged")
    def test_large_and_small_inputs(self):
        expected = LinkgisticClassifier(C=np.inf).fit(self.X, self.y).predict_proba(self.X)
        for scale in (1e50, 1e-50):
            model = LinkgisticClassifier(C=np.inf).fit(scale * self.X, self.y)
            assert np.abs(model.predict_proba(scale * self.X) - expected).max() < 0.05
        # The penalty leaves nothing of weights as large as these would have to be.
        X = self.X
        C = 1e-300
        p = LinkgisticClassifier(C=C).fit(X, self.y).predict_proba(X)[:, 1]
        assert p == pytest.approx(self.y.mean(), abs=0.01)


@pytest.mark.parametrize(
    ("kind", "n", "d", "rate"),
    [
        *(("dense", 400, 20, 0.1), ("dense", 250, 1200, 0.1)),
        *(("sparse", 400, 400, 0.1), ("sparse", 500, 10_000, 0.5)),
    ],
)
def test_the_base_rate_is_kept(kind, n, d, rate):
    """Where inputs say nothing, predictions for new ones have the labels' rate on average."""
    generator = np.random.default_rng(2)
    X, new = generator.normal(size=(2, n, d))
    if kind == "sparse":
        shown = generator.random((2, n, d)) < 0.01
        X = sparse.csr_array(X * shown[0])
        new = sparse.csr_array(new * shown[1])
    y = generator.permutation(n) < rate * n
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean = LinkgisticClassifier().fit(X, y).predict_proba(new)[:, 1].mean()
    assert abs(mean - rate) < 3 * (rate * (1 - rate) / n) ** 0.5


class TestJoint:
    X, y = load_digits(return_X_y=True)
    X = X / 16

    def test_better_than_a_temperature(self):
        """On digits, where logistic regression with C = 1 is underconfident by a factor of two."""
        train = np.arange(1797) % 3 != 0
        test = np.arange(1797) % 3 == 0
        usual = LogisticRegression(max_iter=1000)
        out = cross_val_predict(
            usual, self.X[train], self.y[train], cv=5, method="decision_function"
        )
        rows = np.arange(train.sum())
        factor = minimize_scalar(
            lambda s: -log_softmax(s * out, axis=1)[rows, self.y[train]].sum(), bounds=(0.1, 10)
        ).x
        usual.fit(self.X[train], self.y[train])
        tempered = np.exp(log_softmax(factor * usual.decision_function(self.X[test]), axis=1))
        model = LinkgisticClassifier().fit(self.X[train], self.y[train])
        learned = log_loss(self.y[test], model.predict_proba(self.X[test]))
        assert model.joint_
        assert learned < log_loss(self.y[test], tempered)
        assert learned < 0.8 * log_loss(self.y[test], usual.predict_proba(self.X[test]))

    def test_probabilities_are_the_softmax_of_the_sources(self):
        model = LinkgisticClassifier(multi_class="joint").fit(self.X[:400], self.y[:400])
        nu = model.decision_function(self.X)
        np.testing.assert_allclose(
            model.predict_log_proba(self.X), log_softmax(nu, axis=1), rtol=0, atol=1e-12
        )
        np.testing.assert_allclose(
            model.predict_proba(self.X), np.exp(model.predict_log_proba(self.X)), atol=1e-12
        )
        scores = model.scores(self.X)
        for k, link in enumerate(model.links_):
            # The mean of a source, and its value at the mode, are nearly the same.
            low, high = link.source_band(scores[:50, k], level=0.99)
            assert ((low < nu[:50, k]) & (nu[:50, k] < high)).all()

    @pytest.mark.filterwarnings("ignore:not converged")
    def test_copies_change_nothing(self):
        X = self.X[:200]
        y = self.y[:200]
        how = {"C": 1 / 3, "max_iter": 1, "multi_class": "joint"}
        weighted = LinkgisticClassifier(**how).fit(X, y, sample_weight=np.full(200, 3.0))
        thrice = LinkgisticClassifier(**how).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3))
        np.testing.assert_array_equal(weighted.predict_proba(self.X), thrice.predict_proba(self.X))


@pytest.mark.parametrize("options", [{}, {"link": PaperLink(n_basis=8), "C": 1.0}])
def test_what_is_written_to_weights_has_an_effect_and_to_the_intercept_is_refused(options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    model = LinkgisticClassifier(**options).fit(X, X[:, 0] + rng.logistic(size=80) > 0)
    np.testing.assert_allclose(model.scores(X), X @ model.coef_[0] + model.intercept_, atol=1e-12)
    model.coef_ *= 2
    model.centre_ = model.centre_ + 1
    np.testing.assert_allclose(model.scores(X), X @ model.coef_[0] + model.intercept_, atol=1e-12)
    with pytest.raises(AttributeError, match="intercept_"):
        model.intercept_ = np.zeros(1)
    with pytest.raises(ValueError, match="read-only"):
        model.intercept_[0] = 0.0
