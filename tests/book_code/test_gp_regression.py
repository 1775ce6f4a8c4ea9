"""GP regression as a decision: against automatic differentiation, scikit-learn and definitions."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from bayesloss.kernels import SquaredExponential
from bayesloss_book.gp_regression import GPRegression, normal_nodes

X = torch.tensor([-1.4, -0.5, 0.3, 1.0, 1.9], dtype=torch.float64)
Y = torch.tensor([0.2, -0.7, 0.5, 1.0, -0.3], dtype=torch.float64)
NOISE = 0.09
MODEL = GPRegression(SquaredExponential(a=2.0), X, Y, noise_variance=NOISE)
# K has a condition number of some hundreds, so that twelve digits survive its inverse.
EXACT = 1e-9


def gaussian(seed):
    rng = np.random.default_rng(seed)
    root = torch.tensor(rng.normal(size=(5, 5)))
    eye = torch.eye(5, dtype=torch.float64)
    return torch.tensor(rng.normal(size=5)), root @ root.T + 0.1 * eye


def test_posterior_is_that_of_the_log_joint():
    def log_joint(theta):
        mean, variance = MODEL.observation(X, theta)
        return -0.5 * (theta @ MODEL.K @ theta) - 0.5 * ((Y - mean) ** 2 / variance).sum()

    zero = torch.zeros(5, dtype=torch.float64)
    precision = -torch.autograd.functional.hessian(log_joint, zero)
    mean = torch.linalg.solve(precision, torch.autograd.functional.jacobian(log_joint, zero))
    torch.testing.assert_close(MODEL.precision, precision, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(MODEL.mean, mean, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(
        MODEL.covariance @ precision, torch.eye(5).double(), atol=1e-8, rtol=0
    )


@pytest.mark.parametrize("shape", [(5,), (5, 2)])
def test_predictive_is_scikit_learns(shape):
    rng = np.random.default_rng(0)
    x, test = 2 * rng.normal(size=shape), 2 * rng.normal(size=(7, *shape[1:]))
    # Another prior variance than one: the printed K_xx is no constant.
    model = GPRegression(SquaredExponential(a=2.0, b=1.7), torch.tensor(x), Y, noise_variance=NOISE)
    mean, variance = model.predictive(torch.tensor(test), model.mean, model.covariance)
    other = GaussianProcessRegressor(1.7 * RBF(2.0**-0.5), alpha=NOISE, optimizer=None)
    other.fit(x.reshape(5, -1), Y.numpy())
    m, s = other.predict(test.reshape(7, -1), return_std=True)
    np.testing.assert_allclose(mean, m, atol=1e-8)
    np.testing.assert_allclose(variance, s**2 + NOISE, atol=1e-8)
    np.testing.assert_allclose(model.action(torch.tensor(test), model.mean), m, atol=1e-8)


def test_divergence_is_its_definition():
    """R_p(h_q) - R_p(h_p), by quadrature over x and y; the measure asked for is 1e-8."""
    mean, _ = gaussian(0)

    def risk(of):
        def at(x):
            place = torch.tensor([x], dtype=torch.float64)
            centre, spread = (
                float(v) for v in MODEL.predictive(place, MODEL.mean, MODEL.covariance)
            )
            action, sd = float(MODEL.action(place, of)), math.sqrt(spread)
            nodes, weights = np.polynomial.hermite_e.hermegauss(4)
            return (
                norm.pdf(x, 1, 0.7) * weights @ (centre + sd * nodes - action) ** 2 / weights.sum()
            )

        return quad(at, -5, 7, epsabs=1e-12, epsrel=1e-12, points=[1.0])[0]

    points, weights = normal_nodes(1.0, 0.7)
    value = float(MODEL.divergence(mean, points, weights))
    assert value == pytest.approx(risk(mean) - risk(MODEL.mean), rel=1e-8)
    gap = mean - MODEL.mean
    assert value == pytest.approx(float(gap @ MODEL.loss_matrix(points, weights) @ gap), rel=1e-10)


def test_nodes_integrate_polynomials():
    points, weights = normal_nodes(1.5, 0.5, 6)
    moments = [float(weights @ (points - 1.5) ** k) for k in range(7)]
    np.testing.assert_allclose(moments, [1, 0, 0.25, 0, 3 * 0.5**4, 0, 15 * 0.5**6], atol=1e-12)


def test_repeated_inputs_have_decisions_and_no_covariance():
    x, y = torch.cat([X, X[1:2]]), torch.cat([Y, Y[1:2] + 1])
    twice = GPRegression(MODEL.kernel, x, y, noise_variance=NOISE)
    near = GPRegression(MODEL.kernel, torch.cat([X, X[1:2] + 1e-8]), y, noise_variance=NOISE)
    test = torch.linspace(-2, 3, 9, dtype=torch.float64)
    # The right limit: of inputs that draw together.
    torch.testing.assert_close(
        twice.action(test, twice.mean), near.action(test, near.mean), rtol=0, atol=1e-6
    )
    assert float(twice.divergence(twice.mean, test)) == 0
    for ask in (
        lambda: twice.covariance,
        lambda: twice.observation(test, twice.mean),
        lambda: twice.kl(twice.mean, torch.eye(6, dtype=torch.float64)),
    ):
        with pytest.raises(ValueError, match="K has an inverse.*condition number"):
            ask()


def test_far_test_inputs_cost_nothing():
    far = torch.tensor([50.0, 1e6], dtype=torch.float64)
    mean, variance = MODEL.predictive(far, MODEL.mean, MODEL.covariance)
    assert mean.tolist() == [0, 0]
    np.testing.assert_allclose(variance, 1 + NOISE)
    assert float(MODEL.divergence(gaussian(0)[0], far)) == 0
    assert float(MODEL.loss_matrix(far).abs().max()) == 0


def test_refuses_test_inputs_and_means():
    points = torch.tensor([0.0, 1.0], dtype=torch.float64)
    for ask, said in [
        (lambda: MODEL.loss_matrix(points * math.nan), "finite test inputs"),
        (lambda: MODEL.loss_matrix(points, torch.ones(2)), "sum to one"),
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
