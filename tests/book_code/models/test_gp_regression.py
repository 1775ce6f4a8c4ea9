"""GP regression as a decision, beyond its page: another prior variance, two inputs, refusals."""

import math

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from bayesloss.kernels import SquaredExponential
from bayesloss_book.models.gp_regression import GPRegression, normal_nodes

X = torch.tensor([-1.4, -0.5, 0.3, 1.0, 1.9], dtype=torch.float64)
Y = torch.tensor([0.2, -0.7, 0.5, 1.0, -0.3], dtype=torch.float64)
NOISE = 0.09
MODEL = GPRegression(SquaredExponential(a=2.0), X, Y, noise_variance=NOISE)


@pytest.mark.parametrize("shape", [(5,), (5, 2)])
def test_predictive_is_scikit_learns(shape):
    rng = np.random.default_rng(0)
    x = 2 * rng.normal(size=shape)
    test = 2 * rng.normal(size=(7, *shape[1:]))
    # Another prior variance than one: the printed K_xx is no constant.
    model = GPRegression(SquaredExponential(a=2.0, b=1.7), torch.tensor(x), Y, noise_variance=NOISE)
    mean, variance = model.predictive(torch.tensor(test), model.mean, model.covariance)
    other = GaussianProcessRegressor(1.7 * RBF(2.0**-0.5), alpha=NOISE, optimizer=None)
    other.fit(x.reshape(5, -1), Y.numpy())
    m, s = other.predict(test.reshape(7, -1), return_std=True)
    np.testing.assert_allclose(mean, m, atol=1e-8)
    np.testing.assert_allclose(variance, s**2 + NOISE, atol=1e-8)
    np.testing.assert_allclose(model.action(torch.tensor(test), model.mean), m, atol=1e-8)


def test_divergence_is_the_form_of_the_loss_matrix():
    """The page compares that matrix with the definition."""
    points, weights = normal_nodes(1.0, 0.7)
    gap = Y - MODEL.mean
    value = float(MODEL.divergence(Y, points, weights))
    assert value == pytest.approx(float(gap @ MODEL.loss_matrix(points, weights) @ gap), rel=1e-10)


def test_far_test_inputs_cost_nothing():
    far = torch.tensor([50.0, 1e6], dtype=torch.float64)
    mean, variance = MODEL.predictive(far, MODEL.mean, MODEL.covariance)
    assert mean.tolist() == [0, 0]
    np.testing.assert_allclose(variance, 1 + NOISE)
    assert float(MODEL.divergence(Y, far)) == 0
    assert float(MODEL.loss_matrix(far).abs().max()) == 0


def test_repeated_inputs_have_decisions_and_no_covariance():
    """The page has the refusal of the covariance, and the decision as a limit."""
    twice = GPRegression(
        MODEL.kernel, torch.cat([X, X[1:2]]), torch.cat([Y, Y[1:2] + 1]), noise_variance=NOISE
    )
    assert float(twice.divergence(twice.mean, X)) == 0
    for ask in (
        lambda: twice.observation(X, twice.mean),
        lambda: twice.kl(twice.mean, torch.eye(6, dtype=torch.float64)),
    ):
        with pytest.raises(ValueError, match="K has an inverse.*condition number"):
            ask()


def test_refuses_test_inputs_and_means():
    points = torch.tensor([0.0, 1.0], dtype=torch.float64)
    for ask, said in [
        (lambda: MODEL.loss_matrix(points * math.nan), "finite test inputs"),
        (lambda: MODEL.loss_matrix(points, torch.ones(2)), "sum to 1"),
        (lambda: MODEL.loss_matrix(points[:, None]), "x and z of shape"),
        (lambda: MODEL.divergence(Y[:1], points), "with its zeros"),
        (lambda: MODEL.action(points, Y[:2]), "comes with its support"),
        (lambda: MODEL.action(points, Y[:2], [0, 0]), "distinct indices"),
        (lambda: MODEL.action(points, Y[:2], [0, 5]), "distinct indices"),
        (lambda: MODEL.action(points, Y[:0], []), "distinct indices"),
        (lambda: MODEL.kl(Y, -torch.eye(5, dtype=torch.float64)), "positive definite"),
    ]:
        with pytest.raises(ValueError, match=said):
            ask()
