"""Sparse means: against generic optimisers, limits, and the theorems of their page."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from bayesloss.kernels import SquaredExponential
from bayesloss_book.models import sparse_means as means
from bayesloss_book.models.gp_regression import GPRegression, normal_nodes
from bayesloss_book.models.sparse_means import mean_by_cg, sparse_mean_calibrated, sparse_mean_kl

NOISE = 0.09
POINTS, WEIGHTS = normal_nodes(1.0, 0.7)
SUPPORT = [0, 2, 5]
BOTH = (sparse_mean_kl, lambda *given: sparse_mean_calibrated(*given, POINTS, WEIGHTS))


def model_of(y=None, n=6, b=1.0):
    x = torch.linspace(-1.5, 2, n, dtype=torch.float64)
    y = torch.cos(3 * x) + 0.3 * x if y is None else y
    return GPRegression(SquaredExponential(a=2.0, b=b), x, y, noise_variance=NOISE)


def search(objective):
    """The minimiser by a generic quasi-Newton method, with automatic gradients."""

    def value(m):
        m = torch.tensor(m, requires_grad=True)
        result = objective(m)
        result.backward()
        return float(result.detach()), m.grad.numpy()

    return minimize(value, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-11}).x


def whole(m):
    return torch.zeros(6, dtype=torch.float64).index_put((torch.tensor(SUPPORT),), m)


def kl(model, m):
    return model.kl(whole(m), torch.eye(6, dtype=torch.float64))


@pytest.mark.parametrize("b", [1.0, 3.0])
def test_both_are_what_a_generic_optimiser_finds(b):
    """The measure asked for is 1e-6."""
    model = model_of(b=b)
    best_kl = search(lambda m: kl(model, m))
    best_loss = search(lambda m: model.divergence(whole(m), POINTS, WEIGHTS))
    np.testing.assert_allclose(sparse_mean_kl(model, SUPPORT), best_kl, atol=1e-6)
    found = sparse_mean_calibrated(model, SUPPORT, POINTS, WEIGHTS)
    np.testing.assert_allclose(found, best_loss, atol=1e-6)
    for weight in (1e-3, 1.0):
        both = search(
            lambda m, w=weight: model.divergence(whole(m), POINTS, WEIGHTS) + w * kl(model, m)
        )
        mixed = sparse_mean_calibrated(model, SUPPORT, POINTS, WEIGHTS, kl_weight=weight)
        np.testing.assert_allclose(mixed, both, atol=1e-6)


def test_close_support_points_do_no_harm():
    """On all of 60 close points the sparse decision is the exact one; K_SS is singular there."""
    model = model_of(n=60)
    exact = model.action(POINTS, model.mean)
    found = model.action(POINTS, sparse_mean_kl(model, range(60)), range(60))
    # Directions left out have less than 1e-12 of the prior variance: 1e-6 of its root.
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-6)


def test_repeated_points_in_the_support():
    """Equal support points share a coefficient: the decision is that of one of them."""
    x = torch.tensor([0.0, 0.0, 1.0, 2.0], dtype=torch.float64)
    y = torch.tensor([1.0, 0.5, -1.0, 0.3], dtype=torch.float64)
    model = GPRegression(SquaredExponential(a=2.0), x, y, noise_variance=NOISE)
    for find in BOTH:
        twice = find(model, [0, 1, 3])
        once = find(model, [0, 3])
        found, expected = (
            model.action(POINTS, mean, support)
            for mean, support in ((twice, [0, 1, 3]), (once, [0, 3]))
        )
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
        assert float(twice[0] - twice[1]) == pytest.approx(0, abs=1e-8)


def test_fewer_test_inputs_than_coefficients():
    """Of many minimisers the smoothest: least m^T K_SS m with the right values."""
    model = model_of()
    points = torch.tensor([0.4], dtype=torch.float64)
    found = sparse_mean_calibrated(model, SUPPORT, points)
    K_SS = model.K[SUPPORT][:, SUPPORT]
    direction = torch.linalg.solve(K_SS, model.kernel(model.x[SUPPORT], points))[:, 0]
    scale = model.action(points, model.mean) / model.action(points, direction, SUPPORT)
    torch.testing.assert_close(found, scale * direction, rtol=0, atol=1e-8)


def test_far_test_inputs_ask_for_nothing():
    far = torch.tensor([1e3, 2e3], dtype=torch.float64)
    assert sparse_mean_calibrated(model_of(), SUPPORT, far).tolist() == [0, 0, 0]


def test_conjugate_gradients_find_the_mean():
    model = model_of(n=40)
    solved = mean_by_cg(model, rtol=1e-12)
    assert solved.converged and solved.residual <= 1e-11 and 0 < solved.n_iter < 80
    # The condition number is below 500, so the error is below 500 residuals.
    torch.testing.assert_close(solved.mean, model.mean, rtol=1e-8, atol=1e-8)


def test_conjugate_gradients_say_when_they_did_not():
    with pytest.warns(ConvergenceWarning, match=r"residual of 1\.0e-12, got .* after 3 iter"):
        solved = mean_by_cg(model_of(n=40), rtol=1e-12, max_iter=3)
    assert not solved.converged and solved.n_iter == 3 and solved.residual > 1e-12


def test_conjugate_gradients_of_nothing():
    solved = mean_by_cg(model_of(torch.zeros(6, dtype=torch.float64)))
    assert solved.converged and solved.mean.tolist() == [0] * 6 and solved.residual == 0


ASKED = torch.tensor([1.1, 2.0, 2.4, 0.9, 3.0, 1.6, 2.0], dtype=torch.float64)  # one of them twice
MASSES = torch.tensor([0.1, 0.1, 0.3, 0.1, 0.1, 0.2, 0.1], dtype=torch.float64)
ELSEWHERE = torch.tensor([1.3, 2.2, 2.9], dtype=torch.float64)


def test_inputs_of_training_points_are_a_support_like_their_indices():
    model = model_of()
    for find in BOTH:
        by_index = find(model, SUPPORT)
        by_input = find(model, model.x[SUPPORT])
        torch.testing.assert_close(by_index, by_input, rtol=0, atol=0)
    found = model.divergence(by_index, POINTS, WEIGHTS, support=model.x[SUPPORT])
    expected = model.divergence(whole(by_index), POINTS, WEIGHTS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_divergence_elsewhere_is_a_mean_square():
    """By a sum over a fine grid, of scikit-learn's posterior mean."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    model = model_of()
    mean = sparse_mean_kl(model, ELSEWHERE)
    process = GaussianProcessRegressor(RBF(0.5**0.5), alpha=NOISE, optimizer=None)
    process.fit(model.x.numpy()[:, None], model.y.numpy())
    grid = np.linspace(-5, 7, 4001)
    decision = np.exp(-((grid[:, None] - ELSEWHERE.numpy()) ** 2)) @ mean.numpy()
    density = np.exp(-0.5 * ((grid - 1) / 0.7) ** 2)
    square = (decision - process.predict(grid[:, None])) ** 2
    expected = density @ square / density.sum()
    found = float(model.divergence(mean, POINTS, WEIGHTS, support=ELSEWHERE))
    assert found == pytest.approx(expected, rel=1e-8)


def test_fitc_is_the_exact_mean_of_its_own_prior():
    """A dense solve with FITC's N x N prior covariance, Q with the diagonal of K."""
    model = model_of(b=3.0)
    K_ND = model.kernel(ELSEWHERE, model.x)
    Q = K_ND.T @ torch.linalg.solve(model.kernel(ELSEWHERE, ELSEWHERE), K_ND)
    prior = Q - torch.diag(Q.diagonal()) + torch.diag(model.K.diagonal())
    noisy = prior + NOISE * torch.eye(6, dtype=torch.float64)
    x = torch.tensor([-1.0, 0.5, 2.5], dtype=torch.float64)
    cross = model.kernel(x, ELSEWHERE)
    Q_xD = cross @ torch.linalg.solve(model.kernel(ELSEWHERE, ELSEWHERE), K_ND)
    expected = Q_xD @ torch.linalg.solve(noisy, model.y)
    found = model.action(x, sparse_mean_kl(model, ELSEWHERE, fitc=True), ELSEWHERE)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_spread_points_are_least_known():
    """Each has the largest conditional variance given those before, by a dense solve."""
    model = model_of(b=3.0)
    for weights in (None, MASSES):
        chosen = means.spread_support(model, ASKED, 5, weights)
        K = model.kernel(ASKED, ASKED)
        for j in range(5):
            before = chosen[:j]
            cross = K[before]
            left = K.diagonal() - (cross * torch.linalg.solve(K[before][:, before], cross)).sum(0)
            left = left * (1 if weights is None else MASSES)
            assert float(left[chosen[j]]) == pytest.approx(float(left.max()), rel=1e-9)


def test_spread_points_do_not_come_twice():
    assert sorted(means.spread_support(model_of(), ASKED, 7)) in (
        [0, 1, 2, 3, 4, 5],
        [0, 2, 3, 4, 5, 6],
    )
    nowhere = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0, 0.0, 0.0], dtype=torch.float64)
    assert sorted(means.spread_support(model_of(), ASKED, 7, nowhere)) == [1, 3]


def test_chosen_points_are_those_of_a_search():
    """Forward selection by fitting each candidate set anew, with weights."""
    model = model_of()
    target = torch.sin(3 * ASKED)
    candidates = torch.tensor([-1.0, 0.5, 1.4, 2.1, 2.6, 3.3], dtype=torch.float64)
    rows = MASSES.sqrt()[:, None] * model.kernel(ASKED, candidates)
    expected = []
    for _ in range(3):
        errors = {}
        for i in set(range(6)) - set(expected):
            fit = np.linalg.lstsq(rows[:, [*expected, i]], MASSES.sqrt() * target, rcond=None)
            errors[i] = float(fit[1][0])
        expected.append(min(errors, key=errors.get))
    assert means.choose_support(model, candidates, ASKED, MASSES, target=target, k=3) == expected


def test_chosen_points_stop_where_nothing_is_left():
    """Equal candidates have one function between them."""
    model = model_of()
    twice = torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64)
    chosen = means.choose_support(model, twice, ASKED, target=torch.sin(ASKED), k=3)
    assert len(chosen) == 2 and {*chosen} in ({0, 2}, {1, 2})


def shifted(n=300, m=60):
    rng = np.random.default_rng(3)
    x = torch.tensor(rng.normal(size=(n, 2)))
    y = torch.sin(2 * x[:, 0]) * torch.cos(x[:, 1]) + 0.2 * torch.tensor(rng.normal(size=n))
    model = GPRegression(SquaredExponential(a=1.0), x, y, noise_variance=0.04)
    return model, torch.tensor([1.8, 0.0]) + 0.4 * torch.tensor(rng.normal(size=(m, 2)))


def test_targeted_mean_with_everything_is_the_best_fit():
    """With all points the teacher interpolates what the data say about them: Pythagoras bounds."""
    model, points = shifted()
    inputs, mean = means.sparse_mean_targeted(model, points, k=8, oversampling=100, n_moves=5)
    larger = points[means.spread_support(model, points, 60)]
    coarse = model.action(points, sparse_mean_kl(model, larger, fitc=True), larger)
    off = float(((coarse - model.action(points, model.mean)) ** 2).mean())
    best = sparse_mean_calibrated(model, inputs, points)
    least = float(model.divergence(best, points, support=inputs))
    found = float(model.divergence(mean, points, support=inputs))
    assert least - 1e-12 <= found <= least + off + 1e-12


def test_targeted_mean_with_few_points():
    """As many functions as differ, and weights on quadrature nodes of which most are empty."""
    model = model_of()
    inputs, mean = means.sparse_mean_targeted(model, ASKED, k=7)
    assert len(inputs) == 6 == len(mean)
    inputs, mean = means.sparse_mean_targeted(model, POINTS, WEIGHTS, k=5)
    assert float((inputs - 1).abs().max()) < 4  # deviations of 0.7: not at the outermost nodes
    kl = sparse_mean_kl(model, inputs)
    found, other = (model.divergence(m, POINTS, WEIGHTS, inputs) for m in (mean, kl))
    assert float(found) < 0.5 * float(other)


def test_moved_support_fits_better_until_nothing_is_gained():
    """By NumPy's least squares, and a search by values alone."""
    model, points = shifted()
    masses = torch.linspace(1, 3, 60, dtype=torch.float64) / 120
    target = model.action(points, model.mean)
    start = points[:3]

    def left(places):
        """Squared distance with the ridge of 1e-6 of the prior variance, written out."""
        rows = masses.sqrt()[:, None] * model.kernel(points, places)
        K = model.kernel(places, places) + 1e-8 * torch.eye(3, dtype=torch.float64)
        both = torch.cat([rows, torch.linalg.cholesky(1e-6 * K).T])
        right = torch.cat([masses.sqrt() * target, torch.zeros(3, dtype=torch.float64)])
        return float(np.linalg.lstsq(both, right, rcond=None)[1][0])

    few, many = (
        means.move_support(model, start, points, masses, target=target, n_moves=n) for n in (3, 500)
    )
    assert left(many) < left(few) < 0.9 * left(start)
    by_values = minimize(  # a search without gradients
        lambda flat: math.log(left(torch.tensor(flat.reshape(3, 2)))),
        start.numpy().ravel(),
        method="Nelder-Mead",
        options={"maxfev": 4_000, "maxiter": 4_000},
    )
    assert math.log(left(many)) < by_values.fun + 0.05  # 5 %: both stop on relative gains


def test_support_stays_where_there_is_nothing_to_do():
    model, points = shifted()
    for target, n in ((torch.zeros(60).double(), 20), (points[:, 0], 0)):
        moved = means.move_support(model, points[:3], points, target=target, n_moves=n)
        torch.testing.assert_close(moved, points[:3], rtol=0, atol=0)
