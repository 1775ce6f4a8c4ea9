"""Tests of the Trons: single rounds by hand, and simulated links."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from bayesloss_book.rivals import generalised_isotonic as trons
from bayesloss_book.rivals.generalised_isotonic import (
    BregmanTron,
    GLMTron,
    PiecewiseLinearLink,
    SLIsotron,
)

ALL = [GLMTron(), SLIsotron(), BregmanTron(), BregmanTron("label"), BregmanTron("approx")]
quiet = pytest.mark.filterwarnings("ignore:the error on the hold-out:UserWarning")


def simulate(n=600, seed=0, link=expit):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 4))
    z = X @ [3.0, -2.0, 1.0, 0.0]
    return X, (generator.random(n) < link(z)).astype(int), z


@pytest.mark.parametrize("model", ALL, ids=repr)
def test_what_is_held_out_trains_nothing(model):
    """Another round is the best one at most: scale, centre and first weights are the same."""
    X, y, _ = simulate(120)
    other_X = X + trons._hold_out(y, 0.2, np.random.RandomState(0))[:, None] * 30
    one, other = (replace(model, max_iter=1, validation_fraction=0.2, random_state=0) for _ in "ab")
    for fitted, inputs in ((one, X), (other, other_X)):
        with pytest.warns(ConvergenceWarning):
            fitted.fit(inputs, y)
    for name in ("coef_", "intercept_", "centre_", "scale_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.holdout_errors_ != other.holdout_errors_


@quiet
class TestRounds:
    def test_the_glmtrons_step(self):
        """One round from w = 0: the mean of (y - 1/2) x, in inputs as they are scaled."""
        X, y, _ = simulate(50)
        with pytest.warns(ConvergenceWarning, match="round 1 of 1"):
            model = GLMTron(max_iter=1, validation_fraction=0.01).fit(X, y)
        centred = X - X.mean(0)
        scaled = centred / (np.sqrt(2) * np.linalg.norm(centred, axis=1).max())
        w = (scaled * (y - 0.5)[:, None]).mean(0)
        offset = np.sqrt(0.5) * (y - 0.5).mean() * np.sqrt(0.5)
        np.testing.assert_allclose(model.linear_score(X), scaled @ w + offset, atol=1e-15)
        np.testing.assert_allclose(
            (X - model.centre_) @ model.coef_ + model.intercept_, model.linear_score(X), atol=1e-15
        )

    @pytest.mark.parametrize("model", ALL, ids=repr)
    def test_inputs_are_at_most_1_long(self, model):
        """So the origin, the scale and the units of the inputs do not matter."""
        X, y, _ = simulate(200)
        model = replace(model, max_iter=3, random_state=0)
        first = model.fit(X, y).predict_proba(X)
        second = replace(model).fit(1e3 * X - 50, y).predict_proba(1e3 * X - 50)
        # Links are fitted to 1e-7 or so, and scores rounded.
        np.testing.assert_allclose(first, second, atol=1e-6)

    def test_the_slisotrons_link_is_the_regression_of_the_labels(self):
        X, y, _ = simulate(200)
        model = SLIsotron(max_iter=5, validation_fraction=0.001).fit(X, y)
        z = model.link_.scores
        p = model.link_.values
        slopes = np.diff(p) / np.diff(z)
        assert slopes.min() >= 0 and slopes.max() < 1 + 1e-6
        # Moving the whole link does not help where it touches neither 0 nor 1.
        fitted = model.predict_proba(X)[:, 1]
        assert np.mean((y - fitted) ** 2) < np.mean((y - np.clip(fitted + 0.01, 0, 1)) ** 2)
        assert np.mean((y - fitted) ** 2) < np.mean((y - np.clip(fitted - 0.01, 0, 1)) ** 2)

    @pytest.mark.parametrize("variant", [None, "label", "approx"])
    def test_the_bregmantrons_link_has_its_slopes(self, variant):
        X, y, _ = simulate(200)
        model = BregmanTron(variant, max_iter=5, slope_ratio=0.2, max_slope=0.5).fit(X, y)
        link = model.link_
        slopes = np.diff(link.values) / np.diff(link.scores)
        z = model.linear_score(X)
        # Kept points are 1e-12 apart at least; solver and rounding then leave 1e-3 of a slope.
        least = 0.2 * min(0.5, 1 / np.ptp(z))
        assert slopes.min() > 0.99 * least and slopes.max() < 0.5 * 1.001
        assert link.values[0] == 0 and link.values[-1] == 1

    def test_the_bregmantrons_first_step(self):
        """From w = 0, where the first link is 1/2, a step of 1 / max_slope down the gradient."""
        X, y, _ = simulate(50)
        model = BregmanTron(max_slope=0.5, n_steps=1, max_iter=1, validation_fraction=1e-9)
        model.fit(X, y)
        residual = y - 0.5
        expected = residual @ (X - X.mean(0)) / 50 / model.scale_**2 / 0.5
        assert model.coef_ == pytest.approx(expected)
        assert model.intercept_ == pytest.approx(0.5 * residual.mean() / 0.5)

    def test_the_bregmantrons_least_slope_where_the_largest_one_is_too_steep(self):
        """It is then in units of 1 / (range of the scores)."""
        X, y, _ = simulate(200)
        model = BregmanTron("label", slope_ratio=0.2, max_slope=50.0, validation_fraction=1e-9)
        model.fit(X, y)
        z = np.unique(model.linear_score(X))
        slopes = np.diff(model.link_(z)) / np.diff(z)
        assert np.ptp(z) > 1 / 50
        assert slopes.min() == pytest.approx(0.2 / np.ptp(z), rel=1e-6)

    @pytest.mark.parametrize("model", ALL, ids=repr)
    def test_the_order_of_the_data_does_not_matter(self, model):
        """Values of the round before stay with their data."""
        X, y, _ = simulate(200)
        shuffled = np.random.default_rng(1).permutation(200)
        model = replace(model, max_iter=3, validation_fraction=0.001)
        first = model.fit(X, y).holdout_errors_
        second = replace(model).fit(X[shuffled], y[shuffled]).holdout_errors_
        np.testing.assert_allclose(first, second, atol=1e-6)  # as links are fitted


class TestResults:
    @quiet
    def test_learned_links_follow_one_that_is_no_sigmoid(self):
        """P(y = 1) from 0.2 to 0.8 only: the sigmoid cannot say so, a learned link can."""

        def link(z):
            return 0.2 + 0.6 * (z > 0)

        X, y, _ = simulate(1500, link=link)
        new, _, z = simulate(2000, seed=1, link=link)
        clear = np.abs(z) > 2
        for model in (SLIsotron(random_state=0), BregmanTron("label", random_state=0)):
            p = model.fit(X, y).predict_proba(new)[:, 1]
            # Probabilities that go to 0 and 1 would be off by almost 0.2.
            assert np.abs(p - link(z))[clear].mean() < 0.1

    def test_the_best_round_is_kept(self):
        X, y, _ = simulate(100)
        y[::3] = 1 - y[::3]  # enough noise that the hold-out's error rises again
        model = SLIsotron(patience=5, random_state=0).fit(X, y)
        assert model.converged_
        assert model.n_iter_ == len(model.holdout_errors_) == model.best_iter_ + 5
        assert model.best_iter_ == model.holdout_errors_.argmin() + 1

    @quiet
    def test_the_steepest_slope_of_the_link_is_1_and_the_unit_of_the_scores(self):
        """[NM20] bounds the slopes; twice the bound halves the weights and tells no more."""
        X, y, _ = simulate(200)
        one = BregmanTron(max_iter=3, random_state=0).fit(X, y)
        slopes = np.diff(one.link_.values) / np.diff(one.link_.scores)
        assert slopes.max() == pytest.approx(1, rel=1e-6)  # attained where it goes on to 0 and 1
        two = BregmanTron(max_slope=2.0, max_iter=3, random_state=0).fit(X, y)
        # The slopes' lower bounds scale along, so every step is the same but for rounding.
        np.testing.assert_allclose(2 * two.coef_, one.coef_, rtol=1e-6)
        np.testing.assert_allclose(two.predict_proba(X), one.predict_proba(X), atol=1e-6)


class TestLinks:
    def test_inverse(self):
        places = np.array([-1.0, 0.0, 2.0])
        values = np.array([0.2, 0.5, 0.6])
        link = PiecewiseLinearLink.onto(places, values, 0.5)
        p = np.linspace(0.03, 0.97, 48)  # none of them at a kink
        np.testing.assert_allclose(link(link.inverse(p)), p, rtol=1e-12)
        difference = (link.inverse(p + 1e-6) - link.inverse(p - 1e-6)) / 2e-6
        np.testing.assert_allclose(link.inverse_slope(p), difference, rtol=1e-6)

    def test_extends_to_0_and_1(self):
        link = PiecewiseLinearLink.onto(np.array([-1.0, 1.0]), np.array([0.25, 0.5]), 0.5)
        np.testing.assert_allclose(link.scores, [-1.5, -1, 1, 2])
        np.testing.assert_allclose(link(np.array([-9, -1.25, 1.5, 9])), [0, 0.125, 0.75, 1])

    def test_points_that_rounding_has_made_equal(self):
        values = np.array([0.0, 0.3, 0.3 - 1e-17, 0.7, 1.0])
        link = PiecewiseLinearLink.onto(np.arange(5.0), values, 1.0)
        assert (np.diff(link.values) > 0).all() and (np.diff(link.scores) > 0).all()
        assert link.values[0] == 0 and link.values[-1] == 1
