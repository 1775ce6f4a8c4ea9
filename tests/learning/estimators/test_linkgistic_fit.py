import warnings
from functools import cache

import numpy as np
import pytest
from link_fits import fit, kinked, usual
from scipy import sparse
from scipy.special import expit
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from tolerances import of_a_maximum

from bayesloss import LinkgisticClassifier


class TestFarRows:
    """One row of 3,000 a thousand times as large: the log loss was 0.372, without it 0.363."""

    X, y, _ = kinked(3000)
    X_test, y_test, _ = kinked(5_000, seed=1)
    message = "1 of 3000 rows have scores far out from the rest"

    def far(self, scale):
        X = self.X.copy()
        X[0] *= scale
        return X

    @classmethod
    @cache
    def fitted(cls, prior="isgp", scale=1.0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = LinkgisticClassifier(prior=prior, C=1e3).fit(cls().far(scale), cls.y)
        told = {w.filename for w in caught if cls.message in str(w.message)}
        assert told == ({__file__} if scale > 1 else set())
        return model

    @pytest.mark.parametrize(("prior", "scale"), [("isgp", 1e3), ("gp", 3e4)])
    def test_one_row_spoils_nothing(self, prior, scale):
        usual, model = self.fitted(prior), self.fitted(prior, scale)
        assert model.converged_
        losses = [log_loss(self.y_test, m.predict_proba(self.X_test)) for m in (usual, model)]
        assert losses[1] < losses[0] + 0.002

    @pytest.mark.parametrize("multi_class", ["joint", "ovr"])
    @pytest.mark.filterwarnings("ignore:not converged")
    def test_many_classes(self, multi_class):
        classes, of_test = (
            y + (X[:, 2] > 5.5) for X, y in ((self.X, self.y), (self.X_test, self.y_test))
        )
        options = {"multi_class": multi_class, "max_iter": 1}
        models = [LinkgisticClassifier(**options).fit(self.X, classes)]
        with pytest.warns(UserWarning, match=self.message):
            models.append(LinkgisticClassifier(**options).fit(self.far(1e3), classes))
        usual, far = (log_loss(of_test, m.predict_proba(self.X_test)) for m in models)
        assert far < usual + 0.003

    def test_the_link_is_constant_out_there(self):
        model = self.fitted(scale=1e3)
        link = model.link_
        assert link.end == link.edge
        assert -link.end <= link.low < link.high <= link.end
        for function in (link.source, link.inverse_link):
            assert function(100 * link.end) == function(link.end)
        low, high = link.inverse_link_band([link.end, 1e9])
        assert low[0] == low[1] and high[0] == high[1]
        p = model.predict_proba(np.vstack([self.far(1e3)[:1], self.X_test[:1]]))[0, 1]
        end = link.end if model.scores(self.far(1e3)[:1])[0] > 0 else -link.end
        assert p == pytest.approx(link.inverse_link(end), abs=1e-6)

    @pytest.mark.filterwarnings("ignore:not converged")
    def test_the_papers_recipe_takes_every_row(self, recwarn):
        options = {"a": 1.2, "leave_one_out": False, "max_iter": 1, "tol": 1e-4}
        model = LinkgisticClassifier(**options).fit(self.far(1e3), self.y)
        assert not [w for w in recwarn if "far out" in str(w.message)]
        assert model.link_.end == np.inf
        X = self.far(1e3) - model.centre_
        reach = np.abs(X @ LogisticRegression(max_iter=1000).fit(X, self.y).coef_[0]).max()
        # A search that ends at a slope of tol leaves the weights uncertain by some percent.
        assert model.link_.posterior.prior.kernel.c * reach == pytest.approx(0.5, rel=0.2)

    def test_well_spread_rows_are_all_near(self):
        assert self.fitted().link_.end == np.inf


class TestCopies:
    """A row that is in the data three times is one observation: left out, it is left out whole."""

    generator = np.random.default_rng(0)
    beta = 0.25 * np.random.default_rng(5).normal(size=60)
    X = generator.normal(size=(200, 60))
    y = (generator.random(200) < expit(X @ beta)).astype(int)
    X_test = generator.normal(size=(2000, 60))
    y_test = (generator.random(2000) < expit(X_test @ beta)).astype(int)

    def log_loss(self, X, y, C=1.0, **options):
        model = LinkgisticClassifier(C=C, n_basis=32, n_samples=64, random_state=0)
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
        learned = fit(X[:1000], y[:1000], C=1.0).predict_proba(X[1000:])
        fixed = LogisticRegression().fit(X[:1000], y[:1000]).predict_proba(X[1000:])
        assert log_loss(y[1000:], learned) < log_loss(y[1000:], fixed) + 0.005

    def test_groups_that_are_none(self):
        with pytest.raises(ValueError, match=r"expected groups of shape \(200,\), got \(3,\)"):
            LinkgisticClassifier().fit(self.X, self.y, groups=[1, 2, 3])
        with pytest.raises(ValueError, match="expected at least two groups, got one"):
            LinkgisticClassifier().fit(self.X, self.y, groups=np.zeros(200))


class TestAnotherDevice:
    """A device that is none, see conftest, which refuses to mix its tensors with others."""

    @pytest.mark.parametrize(
        "options",
        [
            {"multi_class": "ovr", "leave_one_out": False},
            {"multi_class": "ovr", "C": np.inf},
            {},
            {"multi_class": "ovr", "C": [1.0]},
            {"C": [1.0]},
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
        share, centred = weight / weight.sum(), X - X.mean(axis=0)
        bends = [np.linalg.eigvalsh((centred.T * share * q * (1 - q)) @ centred)[0] for q in p.T]
        curvature = min(bends) if np.isinf(C) else 1 / (C * weight.sum())
        return of_a_maximum(log_loss(y, p, sample_weight=weight), curvature, runs=4)


class TestBadInput:
    X, y, _ = kinked(200)

    def test_one_class(self):
        with pytest.raises(ValueError, match="two classes, got one class only: 1.0$"):
            fit(self.X, np.ones(200))

    @pytest.mark.parametrize("device", ["gpu", "cuda:63"])  # no such kind; none or not so many
    def test_a_device_that_is_not_there(self, device):
        with pytest.raises(ValueError, match=f"PyTorch can use, got device='{device}': "):
            fit(self.X, self.y, device=device)

    def test_nothing_but_constant_columns(self):
        probability = fit(np.ones((200, 2)), self.y).predict_proba(np.ones((1, 2)))[0, 1]
        assert probability == pytest.approx(self.y.mean(), abs=0.02)

    @pytest.mark.parametrize(("n_classes", "C"), [(2, 1e30), (3, 1e16)])
    def test_a_penalty_below_rounding_errors(self, n_classes, C):
        """It is as none, and what the data leave open (copies of columns) changes no prediction.

        Of three classes only differences of weights matter, and what they share is open, too. None
        lets leave-one-out scores be damped by a hundredth, which moves probabilities by 2e-4.
        """
        generator = np.random.default_rng(0)
        X = generator.normal(size=(300, 4 if n_classes == 2 else 20))
        score = X[:, 0] + X[:, 1] + generator.logistic(size=300)
        y = np.searchsorted([0.0] if n_classes == 2 else [-0.7, 0.7], score)
        free = LinkgisticClassifier(C=np.inf).fit(X, y).predict_proba(X)
        for Z in (X, np.hstack([X, X])):
            found = LinkgisticClassifier(C=C).fit(Z, y).predict_proba(Z)
            np.testing.assert_allclose(found, free, atol=2e-3)

    def test_separable_without_a_penalty(self):
        """The optimum is at infinity: the fit stays finite, says so, and predicts sensibly."""
        X = np.linspace(-1, 1, 60)[:, None]
        y = (X[:, 0] > 0.1).astype(int)
        with pytest.warns(ConvergenceWarning, match=r"1 of 1 problems can be separated"):
            model = fit(X, y, C=np.inf)
        assert np.isfinite(model.coef_).all()
        assert model.score(X, y) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit(X, y, C=1.0)

    def test_too_few_rounds(self):
        message = r"not converged: EM .* To mend it: raise max_iter=1, scale the inputs, or lower C"
        with pytest.warns(ConvergenceWarning, match=message):
            model = fit(self.X, self.y, max_iter=1, tol=1e-9)
        assert not model.converged_
        assert model.n_iter_ == 2

    def test_far_away(self):
        """Beyond the kernel's period the formula stands; the user is told where that is in doubt.

        It is not where a curve that increases is within 0.01 of certainty already.
        """
        model = usual(200)
        far = np.vstack([self.X[:2], self.X[:1] + 1e4 * model.coef_])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert model.predict_proba(far)[2, 1] == pytest.approx(1, abs=1e-3)
        flipped = np.where(np.arange(200) % 4 == 0, 1 - self.y, self.y)
        for model in (fit(self.X, flipped), usual(200, "gp")):
            low, high = model.scores(self.X).min(), model.scores(self.X).max()
            message = (
                f"1 of 3 inputs have a score beyond ±{model.link_.edge:.3g}, where training "
                f"scores lie between {low:.3g} and {high:.3g}: nothing was learned"
            )
            for method in (model.decision_function, model.predict, model.predict_proba):
                with pytest.warns(UserWarning, match=message) as caught:
                    method(far)
                assert caught[0].filename == __file__

    @pytest.mark.parametrize("multi_class", ["joint", "ovr"])
    def test_far_away_from_many_classes(self, multi_class):
        """A joint model is sure of class 2 far out, and cannot tell class 0 from class 1."""
        classes = self.y + (self.X[:, 2] > 5.5)
        classes[::3] = np.random.default_rng(0).integers(3, size=len(classes[::3]))
        model = fit(self.X, classes, multi_class=multi_class)
        first, last = self.X[:1] + 1e4 * model.coef_[0], self.X[:1] + 1e4 * model.coef_[2]
        with pytest.warns(UserWarning, match="1 of 1 inputs have a score of [01] beyond"):
            assert model.predict(first) == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error" if multi_class == "joint" else "ignore")
            assert model.predict(last) == 2

    def test_complex_numbers(self):
        with pytest.raises(ValueError, match="Complex data not supported"):
            LinkgisticClassifier().fit(self.X, self.y, np.full(200, 1j))
        with pytest.raises(ValueError, match="expected real numbers, got complex ones"):
            usual(200).link_.inverse_link([1j])

    @pytest.mark.parametrize("scale", [1e300, 1e200, 1e-200, 1e-320])
    def test_inputs_whose_squares_overflow(self, scale):
        for y in (self.y, np.arange(200) % 3):
            with pytest.raises(ValueError, match=r"1e-100 and 1e\+100, or 0, got .*: scale them"):
                fit(scale * self.X, y)
        with pytest.raises(ValueError, match=r"at most 1e\+100, got 1e\+200"):
            usual(200).predict(np.full((1, 4), 1e200))

    @pytest.mark.filterwarnings("ignore:not converged")
    def test_large_and_small_inputs(self):
        expected = usual(200, C=np.inf).predict_proba(self.X)
        for scale in (1e50, 1e-50):
            model = fit(scale * self.X, self.y, C=np.inf)
            assert np.abs(model.predict_proba(scale * self.X) - expected).max() < 0.05
        # The penalty leaves nothing of weights as large as these would have to be.
        X, C = self.X, 1e-300
        assert fit(X, self.y, C=C).predict_proba(X)[:, 1] == pytest.approx(self.y.mean(), abs=0.01)

    def test_c_far_off(self):
        for y in (self.y, np.arange(200) % 3):
            with pytest.raises(ValueError, match=r"expected c within .*, got c=1e\+308"):
                fit(self.X, y, c=1e308)

    def test_c_too_large(self):
        message = "period ends at 1/c = 1: lower c to 0.0[0-9]+, or leave it out"
        with pytest.warns(UserWarning, match=message) as caught:
            LinkgisticClassifier(C=1e3, c=1.0).fit(self.X, self.y)
        assert caught[0].filename == __file__

    def test_a_band_of_no_level(self):
        link = usual(200).link_
        with pytest.raises(ValueError, match=r"expected a level in \(0, 1\), got 95"):
            link.source_band([0.0], level=95)
        with pytest.raises(ValueError, match=r"expected scores of shape \(n,\), got \(1, 1\)"):
            link.source([[0.0]])


# Leverages are sketched where so many columns are sparse as in the last.
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
        X, new = sparse.csr_array(X * shown[0]), sparse.csr_array(new * shown[1])
    y = generator.permutation(n) < rate * n
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean = LinkgisticClassifier(n_basis=16).fit(X, y).predict_proba(new)[:, 1].mean()
    assert abs(mean - rate) < 3 * (rate * (1 - rate) / n) ** 0.5
