import warnings

import numpy as np
import pytest
import torch
from link_fits import fit, kinked, usual
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bayesloss import LinkgisticClassifier, MatsushitaLoss, SkewedLogLoss, SquareLoss, laplace
from bayesloss.learning.estimators.linkgistic_fit import Settings
from bayesloss.learning.inference.likelihoods import Bernoulli

PRIORS = pytest.mark.parametrize("prior", ["isgp", "gp"])


@parametrize_with_checks([LinkgisticClassifier(n_basis=4, max_iter=1, random_state=0)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*outside")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


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

    def test_band_covers_the_truth(self):
        """The link is identified up to the scale of the weights: compare it at the data."""
        model = fit(self.X, self.y, n_samples=400)
        scores = (self.X - model.centre_) @ model.coef_[0]
        inner = np.abs(scores - np.median(scores)) < np.quantile(np.abs(scores), 0.9)
        low, high = model.link_.source_band(scores[inner], level=0.95)
        covered = (low <= self.odds[inner]) & (self.odds[inner] <= high)
        # It takes weights and scale as known, so it is narrower than 95 % say.
        assert covered.mean() > 0.7

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


@pytest.mark.filterwarnings("ignore:not converged. EM")
def test_leave_one_out_scores_keep_links_from_overconfidence():
    """Few data, nearly separable: links fitted to training scores are far too sure of themselves.

    On digits 1 and 8 logistic regression loses 0.132 nats on average, links fitted to training
    scores 0.151, to leave-one-out scores 0.116.
    """
    X, y = load_digits(return_X_y=True)
    models = {
        "held out": LinkgisticClassifier(random_state=0),
        "training": LinkgisticClassifier(random_state=0, leave_one_out=False),
        "fixed": LogisticRegression(),
    }
    loss = dict.fromkeys(models, 0.0)
    for digit in (1, 8):
        for name, model in models.items():
            p = model.fit(X[:600] / 16, y[:600] == digit).predict_proba(X[600:] / 16)
            loss[name] += log_loss(y[600:] == digit, p)
    assert loss["held out"] < 0.93 * loss["fixed"]
    assert loss["held out"] < 0.85 * loss["training"]


def test_em_ends_when_only_the_penalty_drifts():
    """A straight link: the evidence and the scores of held-out data stand still after two rounds.

    What their penalty counts goes on to fall by a tenth a round, and held EM up to its last.
    """
    generator = np.random.default_rng(0)
    weights = generator.normal(size=20)
    X = generator.normal(size=(5000, 20))
    y = generator.random(5000) < expit(X @ (2 * weights / np.linalg.norm(weights)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LinkgisticClassifier(random_state=0).fit(X[:1000], y[:1000])
    assert model.n_iter_ <= 4
    with pytest.warns(ConvergenceWarning):
        longer = LinkgisticClassifier(random_state=0, tol=1e-9).fit(X[:1000], y[:1000])
    assert longer.n_iter_ > 30
    losses = [log_loss(y[1000:], m.predict_proba(X[1000:])) for m in (model, longer)]
    assert abs(losses[0] - losses[1]) < 2e-4  # twice tol


class TestChosenPrior:
    def test_few_data_make_a_logistic_regression(self):
        """200 data of a straight link: with a = 1.2 the log loss is worse by 0.03, now by 0.007."""
        generator = np.random.default_rng(1)
        X = generator.normal(size=(4200, 5))
        y = (generator.random(4200) < expit(X @ [1.0, -1.0, 0.5, 1.0, 0.0])).astype(int)
        model = LinkgisticClassifier().fit(X[:200], y[:200])
        usual = LogisticRegression().fit(X[:200], y[:200])
        learned, fixed = (log_loss(y[200:], m.predict_proba(X[200:])) for m in (model, usual))
        assert learned < fixed + 0.015

    @pytest.mark.parametrize("prior", ["isgp", "gp"])
    def test_the_evidence_chooses(self, prior):
        """Of the candidates, refitted on the data themselves, none has a higher evidence."""
        X, y, _ = kinked(800)
        model = fit(X, y, prior, n_basis=16, leave_one_out=False, max_iter=1, tol=10.0)
        posterior = model.link_.posterior
        x, labels = model.link_.within(model.scores(X)), torch.from_numpy(y).double()
        for candidate in Settings.of(model).priors.family(posterior.prior):
            other = laplace(candidate, Bernoulli(), x, labels)
            assert other.log_evidence < posterior.log_evidence + 0.1

    def test_a_given_a_stays(self):
        assert float(usual(200, a=3.0).link_.posterior.prior.kernel.a) == 3
        kernel = usual(200, variance=2.0).link_.posterior.prior.kernel
        assert (float(kernel.a), float(kernel.variance)) == (1.2, pytest.approx(2))


class TestSettles:
    """Few rows a column: rounds of links that see held-out scores, and of weights that do not."""

    def table(self, n, d, seed):
        generator = np.random.default_rng(seed)
        X = generator.normal(size=(n + 5000, d))
        x = X @ generator.normal(size=d) * 2 / np.sqrt(d)
        y = (generator.random(n + 5000) < expit(x + 0.1 * x**3)).astype(int)
        return X[:n], y[:n], X[n:], y[n:]

    @pytest.mark.parametrize(("n", "d", "seed"), [(200, 150, 12), (500, 300, 13)])
    def test_and_what_it_gives_is_a_fixed_point(self, n, d, seed):
        """They went on for ever once, with log losses of 2.7 and 0.63."""
        X, y, X_test, y_test = self.table(n, d, seed)
        model = LinkgisticClassifier().fit(X, y)
        assert model.converged_
        probability = model.predict_proba(X_test)
        usual = log_loss(y_test, LogisticRegression().fit(X, y).predict_proba(X_test))
        assert log_loss(y_test, probability) < 0.75 * usual
        # Ten times as many rounds lead nowhere else.
        longer = LinkgisticClassifier(tol=1e-6, max_iter=300).fit(X, y)
        assert np.abs(longer.predict_proba(X_test) - probability).mean() < 0.02

    def test_it_goes_back_to_the_round_of_the_best_evidence(self):
        """More columns than rows: the evidence falls by four nats from the seventh round on."""
        D, digit = load_digits(return_X_y=True)
        X = np.c_[D / 16, (D[:, :, None] * D[:, None, ::8] / 256).reshape(len(D), -1)]
        rows = np.random.default_rng(0).permutation(len(X))
        model = LinkgisticClassifier(a=1.2).fit(X[rows[:400]], digit[rows[:400]] == 1)
        assert model.converged_
        evidence = model.history_["log_evidence"][:, 0]
        assert model.link_.posterior.log_evidence == max(evidence) > evidence[-1] + 2


def test_a_weak_penalty_lets_no_score_run_away():
    """Scores that may leave the period for nothing do so: then the log loss here is 10."""
    X, y = make_classification(3000, 40, n_informative=10, random_state=0, flip_y=0.05)
    model = LinkgisticClassifier(C=1e3).fit(X[:600], y[:600])
    usual = LogisticRegression().fit(X[:600], y[:600])
    losses = [log_loss(y[600:], m.predict_proba(X[600:])) for m in (model, usual)]
    assert losses[0] < losses[1] + 0.05


class TestConveniences:
    X, y, _ = kinked(300)

    def test_scores(self):
        model = usual(300)
        expected = self.X @ model.coef_[0] + model.intercept_
        np.testing.assert_allclose(model.scores(self.X), expected, rtol=0, atol=1e-12)
        assert model.scores(self.X).mean() == pytest.approx(0, abs=1e-12)

    def test_class_weight(self):
        weighted = fit(self.X, self.y, class_weight={0: 1, 1: 3})
        expected = clone(weighted).set_params(class_weight=None)
        expected.fit(self.X, self.y, np.where(self.y == 1, 3.0, 1.0))
        np.testing.assert_array_equal(weighted.coef_, expected.coef_)
        balanced = fit(self.X, self.y, class_weight="balanced").predict_proba(self.X)
        assert balanced[:, 1].mean() == pytest.approx(0.5, abs=0.03)


class TestManyClasses:
    X, y = load_iris(return_X_y=True)

    def test_probabilities(self):
        model = fit(self.X, self.y, C=10.0)
        probability = model.predict_proba(self.X)
        assert probability.shape == (150, 3)
        np.testing.assert_allclose(probability.sum(axis=1), 1, atol=1e-14)
        assert (model.predict(self.X) == model.classes_[probability.argmax(1)]).all()
        assert model.score(self.X, self.y) > 0.95
        assert len(model.links_) == 3
        assert not hasattr(model, "link_")
        evidence = model.history_["log_evidence"]
        assert evidence.shape == (model.n_iter_, 1)  # of the one model


class TestReproducible:
    X, y, _ = kinked(500)

    def test_nothing_is_left_to_chance(self):
        X, y = load_digits(return_X_y=True)  # 64 columns, and none of the sketch's directions
        first, second = (
            fit(X[:300] / 16, y[:300] == 8, random_state=seed).predict_proba(X / 16)
            for seed in (0, 1)
        )
        np.testing.assert_array_equal(first, second)

    def test_same_seed_same_numbers(self):
        first, second, other = (
            fit(self.X, self.y, n_samples=64, random_state=seed).predict_proba(self.X)
            for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, second)
        assert 0 < np.abs(first - other).max() < 0.1

    def test_weight_zero_is_absence(self):
        weight = np.r_[np.ones(400), np.zeros(100)]
        model = LinkgisticClassifier(n_basis=16, random_state=0).fit(self.X, self.y, weight)
        without = LinkgisticClassifier(n_basis=16, random_state=0).fit(self.X[:400], self.y[:400])
        np.testing.assert_array_equal(model.coef_, without.coef_)


def test_scores_of_any_layout(recwarn):
    link = usual(200).link_
    x = np.linspace(-1, 1, 5)
    expected = link.source(x.tolist())
    assert link.source(x[::-1])[::-1] == pytest.approx(expected)
    x.flags.writeable = False
    assert link.source(x) == pytest.approx(expected)
    assert not recwarn.list  # PyTorch warns of arrays that cannot be written to


@pytest.mark.filterwarnings("ignore:not converged")
def test_a_second_fit_forgets_the_first_ones_link():
    X, y, _ = kinked(60)
    model = LinkgisticClassifier(n_basis=8, max_iter=1).fit(X, y)
    assert model.fit(X, np.arange(60) % 3).links_
    assert not hasattr(model, "link_")


@pytest.mark.filterwarnings("ignore:not converged")
def test_two_basis_functions_are_the_fewest():
    X, y, _ = kinked(60)
    assert LinkgisticClassifier(n_basis=2, max_iter=1).fit(X, y).link_
    with pytest.raises(ValueError, match="n_basis.*Got 1"):
        LinkgisticClassifier(n_basis=1).fit(X, y)


def test_a_number_in_a_number_out():
    link = usual(200).link_
    for function in (link.source, link.inverse_link):
        assert isinstance(function(0.5), float)
        assert function(0.5) == function([0.5])[0]
    for band in (link.source_band, link.inverse_link_band):
        assert band(0.5) == tuple(float(end[0]) for end in band([0.5]))
        assert all(isinstance(end, float) for end in band(0.5))


def test_warnings_name_the_line_of_the_user():
    """Of many classes in one model, too, and through a pipeline."""
    X = kinked(300)[0]
    pipeline = make_pipeline(StandardScaler(), LinkgisticClassifier(C=np.inf))
    apart = np.digitize(X[:, 0], [4.0, 5.5])
    with pytest.warns(ConvergenceWarning, match="can be separated") as caught:
        pipeline.fit(X, apart)
    assert {w.filename for w in caught} == {__file__}
