"""Tests of fits by the paper's recipe, at the estimator's door."""

import warnings
from functools import cache

import link_fits
import numpy as np
import pytest
import torch
from link_fits import fit, kinked, usual
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from bayesloss import (
    LinkgisticClassifier,
    MatsushitaLoss,
    PaperLink,
    SkewedLogLoss,
    SquareLoss,
    laplace,
)
from bayesloss.learning.estimators.paper_fit import Recipe
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss_book.references.source_laws import below, law_at

PRIORS = pytest.mark.parametrize("prior", ["isgp", "gp"])


class TestLearnedLink:
    X, y, odds = kinked(3000)

    @PRIORS
    def test_learns_what_a_fixed_link_cannot(self, prior):
        model = usual(3000, prior)
        X, y, odds = kinked(20_000, seed=1)
        learned = log_loss(y, model.predict_proba(X))
        fixed = log_loss(y, LogisticRegression().fit(self.X, self.y).predict_proba(X))
        best = log_loss(y, expit(odds))
        assert learned - best < 0.25 * (fixed - best)

    def test_the_band_is_that_of_the_exact_law(self):
        """By the characteristic function of nu, with no draws: 1,024 of them leave open so much."""
        link = usual(3000).link_
        x = np.linspace(link.low, link.high, 11)
        law = law_at(link.posterior, link.within(x))
        for level in (0.5, 0.95):
            error = ((1 - level) / 2 * (1 + level) / 2 / len(link.band_draws)) ** 0.5
            for end, share in zip(
                link.source_band(x, level), ((1 - level) / 2, (1 + level) / 2), strict=True
            ):
                found = below(law, torch.from_numpy(end)).numpy()
                np.testing.assert_allclose(found, share, rtol=0, atol=4 * error)

    def test_a_band_leaves_out_as_many_draws_as_its_level_says(self):
        link = usual(3000).link_
        x = np.linspace(link.low, link.high, 5)
        nu = link.posterior.prior.source(torch.from_numpy(x / link.slope), link.band_draws).numpy()
        for curves, band in ((nu, link.source_band), (expit(nu), link.inverse_link_band)):
            for level in (0.5, 0.95):
                low, high = band(x, level=level)
                for share in ((curves < low).mean(axis=0), (curves > high).mean(axis=0)):
                    np.testing.assert_allclose(share, (1 - level) / 2, atol=1.01 / len(curves))

    def test_links_of_the_isgp_increase(self):
        link = usual(3000).link_
        x = np.linspace(link.low, link.high, 300)
        nu = link.posterior.prior.source(torch.from_numpy(x), link.draws)
        assert float(nu.diff(dim=1).min()) >= -1e-12
        for curve in (link.source(x), link.inverse_link(x)):
            assert (np.diff(curve) >= -1e-12).all()

    def test_link_and_classifier_agree(self):
        model = usual(3000)
        scores = (self.X - model.centre_) @ model.coef_[0]
        probability = model.predict_proba(self.X)[:, 1]
        np.testing.assert_allclose(model.link_.inverse_link(scores), probability, atol=1e-6)
        np.testing.assert_allclose(expit(model.decision_function(self.X)), probability, atol=1e-15)
        low, high = model.link_.inverse_link_band(scores[:50])
        assert ((low < probability[:50]) & (probability[:50] < high)).all()

    @pytest.mark.parametrize("loss", [MatsushitaLoss(), SkewedLogLoss(3)], ids=repr)
    def test_other_losses(self, loss):
        model = fit(self.X, self.y, loss=loss)
        gap = np.abs(model.predict_proba(self.X) - usual(3000).predict_proba(self.X))
        assert np.median(gap) < 0.02

    def test_bounded_link_is_refused_by_name(self):
        with pytest.raises(ValueError, match=r"SquareLoss\(\) with a link onto \[-1\.0, 1\.0\]"):
            fit(self.X, self.y, loss=SquareLoss())

    def test_c_follows_the_scores_unless_given(self):
        """The scores of the fixed link fill half of the period, before EM moves them."""
        model = usual(3000)
        scores = np.abs((self.X - model.centre_) @ model.coef_[0]).max()
        assert scores / model.link_.edge == pytest.approx(0.5, rel=0.2)
        assert usual(200, c=0.01).link_.posterior.prior.kernel.c == 0.01

    @pytest.mark.filterwarnings("ignore:not converged")
    def test_the_scores_that_c_follows_are_without_the_offset(self):
        """Of rare positives: the period is no longer for an offset of -4, which nu_0 learns."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(400, 1))
        y = (rng.random(400) < expit(X[:, 0] - 4)).astype(int)
        kernel = fit(X, y, a=1.2, C=1.0, tol=1e-6, max_iter=1).link_.posterior.prior.kernel
        reach = np.abs((X - X.mean()) @ LogisticRegression(tol=1e-8).fit(X, y).coef_[0]).max()
        assert kernel.c * reach == pytest.approx(0.5, rel=1e-3)  # both searches are at their end


class TestChosenPrior:
    @PRIORS
    def test_the_evidence_chooses(self, prior):
        """Of the candidates, refitted on the data themselves, none has a higher evidence."""
        X, y, _ = kinked(800)
        model = fit(X, y, prior, n_basis=16, max_iter=1, tol=10.0)
        posterior = model.link_.posterior
        x = model.link_.within(model.scores(X))
        labels = torch.from_numpy(y).double()
        for candidate in Recipe.of(model.link).priors.family(posterior.prior):
            other = laplace(candidate, Bernoulli(), x, labels)
            assert other.log_evidence < posterior.log_evidence + 0.1

    def test_a_given_a_stays(self):
        assert float(usual(200, a=3.0).link_.posterior.prior.kernel.a) == 3
        kernel = usual(200, variance=2.0).link_.posterior.prior.kernel
        assert (float(kernel.a), float(kernel.variance)) == (1.2, pytest.approx(2))


class TestReproducible:
    X, y, _ = kinked(500)

    def test_same_seed_same_numbers(self):
        first, second, other = (
            fit(self.X, self.y, n_samples=64, random_state=seed).predict_proba(self.X)
            for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, second)
        assert 0 < np.abs(first - other).max() < 0.1

    def test_weight_zero_is_absence(self):
        weight = np.r_[np.ones(400), np.zeros(100)]
        model = LinkgisticClassifier(link=PaperLink(n_basis=16))
        without = clone(model).fit(self.X[:400], self.y[:400])
        np.testing.assert_array_equal(model.fit(self.X, self.y, weight).coef_, without.coef_)


def test_scores_of_any_layout(recwarn):
    link = usual(200).link_
    x = np.linspace(-1, 1, 5)
    expected = link.source(x.tolist())
    assert link.source(x[::-1])[::-1] == pytest.approx(expected)
    x.flags.writeable = False
    assert link.source(x) == pytest.approx(expected)
    assert not recwarn.list  # PyTorch warns of arrays that cannot be written to


def test_a_number_in_a_number_out():
    link = usual(200).link_
    for function in (link.source, link.inverse_link):
        assert isinstance(function(0.5), float)
        assert function(0.5) == function([0.5])[0]
    for band in (link.source_band, link.inverse_link_band):
        assert band(0.5) == tuple(float(end[0]) for end in band([0.5]))
        assert all(isinstance(end, float) for end in band(0.5))


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
            model = fit(cls().far(scale), cls.y, prior)
        told = {w.filename for w in caught if cls.message in str(w.message)}
        assert told == ({link_fits.__file__} if scale > 1 else set())
        return model

    @pytest.mark.filterwarnings("ignore:not converged")
    def test_a_row_that_is_far_for_one_class_is_far(self):
        """The first of three classes goes by a column that hardly matters to the last."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(600, 2))
        rest = np.where(X[:, 0] + 0.3 * rng.normal(size=600) > 0, 0, 1)
        y = np.where(X[:, 1] > 0.8, 2, rest)
        X[np.flatnonzero(y == 0)[0], 0] = 60
        model = LinkgisticClassifier(link=PaperLink(a=None), max_iter=1, random_state=0)
        with pytest.warns(UserWarning, match="1 of 600 rows have scores far out"):
            model.fit(X, y)

    @pytest.mark.parametrize(("prior", "scale"), [("isgp", 1e3), ("gp", 3e4)])
    def test_one_row_spoils_nothing(self, prior, scale):
        usual = self.fitted(prior)
        model = self.fitted(prior, scale)
        assert model.converged_
        losses = [log_loss(self.y_test, m.predict_proba(self.X_test)) for m in (usual, model)]
        assert losses[1] < losses[0] + 0.002

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
        model = LinkgisticClassifier(link=PaperLink(), max_iter=1).fit(self.far(1e3), self.y)
        assert not [w for w in recwarn if "far out" in str(w.message)]
        assert model.link_.end == np.inf
        X = self.far(1e3) - model.centre_
        reach = np.abs(X @ LogisticRegression(max_iter=1000).fit(X, self.y).coef_[0]).max()
        # A search that ends at a slope of tol leaves the weights uncertain by some percent.
        assert model.link_.posterior.prior.kernel.c * reach == pytest.approx(0.5, rel=0.2)

    def test_well_spread_rows_are_all_near(self):
        assert self.fitted().link_.end == np.inf


class TestAnotherDevice:
    """A device that is none, see conftest, which refuses to mix its tensors with others."""

    @pytest.mark.parametrize("C", [1.0, np.inf])
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_the_fit_is_the_processors(self, C, second_device):
        X, y, _ = kinked(200)
        weight = np.random.default_rng(1).integers(1, 3, len(y)).astype(float)
        model = LinkgisticClassifier(link=PaperLink(), C=C, max_iter=2, tol=1e-6)
        here = clone(model).fit(X, y, weight)
        with second_device() as device:
            there = clone(model).set_params(device=str(device.device)).fit(X, y, weight)
        assert device.used
        # Two searches that end where a slope is a millionth.
        np.testing.assert_allclose(there.coef_, here.coef_, rtol=0, atol=1e-3)
        np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-3)


class TestBadInput:
    X, y, _ = kinked(200)

    @pytest.mark.parametrize("options", [{"C": [0.1, 1.0]}, {"C": "auto"}])
    def test_several_penalties(self, options):
        with pytest.raises(ValueError, match="expected one value of C and no groups.*got [0-9]+"):
            LinkgisticClassifier(link=PaperLink(), **options).fit(self.X, self.y)

    def test_groups(self):
        with pytest.raises(ValueError, match="no groups.*1 values of C and groups"):
            LinkgisticClassifier(link=PaperLink()).fit(self.X, self.y, groups=np.arange(200))

    def test_nothing_but_constant_columns(self):
        probability = fit(np.ones((200, 2)), self.y).predict_proba(np.ones((1, 2)))[0, 1]
        assert probability == pytest.approx(self.y.mean(), abs=0.02)

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
            low = model.scores(self.X).min()
            high = model.scores(self.X).max()
            message = (
                f"1 of 3 inputs have a score beyond ±{model.link_.edge:.3g}, where training "
                f"scores lie between {low:.3g} and {high:.3g}: nothing was learned"
            )
            for method in (model.decision_function, model.predict, model.predict_proba):
                with pytest.warns(UserWarning, match=message) as caught:
                    method(far)
                assert caught[0].filename == __file__

    def test_far_away_from_many_classes(self):
        classes = self.y + (self.X[:, 2] > 5.5)
        classes[::3] = np.random.default_rng(0).integers(3, size=len(classes[::3]))
        model = fit(self.X, classes)
        first = self.X[:1] + 1e4 * model.coef_[0]
        with pytest.warns(UserWarning, match="1 of 1 inputs have a score of [012] beyond"):
            assert model.predict(first) == 0

    @pytest.mark.filterwarnings("ignore:not converged")
    def test_large_and_small_inputs(self):
        expected = usual(200, C=np.inf).predict_proba(self.X)
        for scale in (1e50, 1e-50):
            model = fit(scale * self.X, self.y, C=np.inf)
            assert np.abs(model.predict_proba(scale * self.X) - expected).max() < 0.05
        # The penalty leaves nothing of weights as large as these would have to be.
        X = self.X
        C = 1e-300
        assert fit(X, self.y, C=C).predict_proba(X)[:, 1] == pytest.approx(self.y.mean(), abs=0.01)

    def test_c_far_off(self):
        for y in (self.y, np.arange(200) % 3):
            with pytest.raises(ValueError, match=r"expected c within .*, got c=1e\+308"):
                fit(self.X, y, c=1e308)

    def test_c_too_large(self):
        message = "period ends at 1/c = 1: lower c to 0.0[0-9]+, or leave it out"
        with pytest.warns(UserWarning, match=message) as caught:
            fit(self.X, self.y, c=1.0, max_iter=1)
        assert caught[0].filename == link_fits.__file__

    def test_a_band_of_no_level(self):
        link = usual(200).link_
        with pytest.raises(ValueError, match=r"expected a level in \(0, 1\), got 95"):
            link.source_band([0.0], level=95)
        with pytest.raises(ValueError, match=r"expected scores of shape \(n,\), got \(1, 1\)"):
            link.source([[0.0]])
