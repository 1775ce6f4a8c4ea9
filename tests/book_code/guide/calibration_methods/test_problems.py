import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit
from scipy.stats import cauchy

from bayesloss_book.guide.calibration_methods import problems

INVERSE_LINKS = {
    "logistic": expit,
    "asymmetric": lambda s: 1 - np.exp(-np.exp(s)),
    "kinked": lambda s: expit(np.minimum(s, 0) * 0.3 + np.maximum(s, 0) * 2.5),
    "heavy-tailed": cauchy.cdf,
}


@pytest.mark.parametrize("link", problems.LINKS)
@pytest.mark.parametrize("score", [-6.0, -1.3, -0.01, 0.4, 2.0])
def test_log_odds_are_those_of_the_link_and_slopes_their_derivative(link, score):
    nu, slope = problems.log_odds(link, np.array([score]))
    # The independent form 1 - exp(-exp(s)) loses digits near 0.
    assert expit(nu[0]) == pytest.approx(INVERSE_LINKS[link](score), rel=1e-9)
    numeric = approx_fprime([score], lambda s: problems.log_odds(link, s)[0][0], 1e-7)
    assert slope[0] == pytest.approx(numeric[0], rel=1e-4)  # forward differences


def test_log_odds_stay_finite_far_out():
    """Where 1 - exp(-exp(s)) is 0 or 1 in floating point."""
    for link in problems.LINKS:
        nu, slope = problems.log_odds(link, np.array([-50.0, 6.0]))
        assert np.isfinite([*nu, *slope]).all(), link
        assert nu[0] < nu[1]


@pytest.mark.parametrize("link", problems.LINKS)
def test_simulated_labels_have_the_stated_probabilities(link):
    found = problems.problem(link, "skewed", 20_000, 3)
    p = INVERSE_LINKS[link]
    offset = {"asymmetric": -0.5}.get(link, 0.0)
    expected = p(offset + found.X @ found.weights)
    residual = found.y - expected
    # Four standard errors of a mean of 20,000 residuals, and of their products with the scores.
    bound = 4 * np.sqrt((expected * (1 - expected)).mean() / len(expected))
    assert abs(residual.mean()) < bound
    score = found.X @ found.weights
    assert abs((residual * score).mean()) < bound * np.abs(score).max()
    assert found.truth == pytest.approx(p(offset + found.X_test @ found.weights), rel=1e-9)


@pytest.mark.parametrize("name", problems.EMBEDDED)
def test_embedded_sets_are_split_and_standardised_by_the_training_part(name):
    found = problems.problem(name, problems.EMBEDDED[name][0], 0, 4)
    assert len(found.X) == pytest.approx(2 * len(found.X_test), abs=2)
    assert found.X.mean(axis=0) == pytest.approx(0, abs=1e-12)
    deviation = found.X.std(axis=0)
    assert deviation[deviation > 0] == pytest.approx(1)
    assert found.y.mean() == pytest.approx(found.truth.mean(), abs=0.03)  # stratified
    assert found.weights is None


def test_seeds_have_images_of_their_own(monkeypatch):
    train = np.arange(100)
    test = np.arange(9_000)
    images = (train[:, None].astype(float), train, test[:, None].astype(float), test)
    monkeypatch.setattr(problems, "_shuffled", lambda name: images)
    first, second = (problems.problem("mnist", "odd", 40, seed) for seed in (0, 1))
    assert not set(first.X.flat) & set(second.X.flat)
    assert not set(first.X_test.flat) & set(second.X_test.flat)
    assert first.y.tolist() == [False, True] * 20
    with pytest.raises(ValueError, match="images of their own"):
        problems.problem("mnist", "odd", 40, 2)
