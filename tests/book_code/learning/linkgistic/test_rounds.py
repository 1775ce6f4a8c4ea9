import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit, xlogy
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from bayesloss import GP, ISGP, LinkgisticClassifier, PaperLink, TrigonometricKernel, laplace
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss_book.learning.linkgistic import rounds as em

SMALL = em.kinked(300, 0, n_test=200)
QUICK = {"C": 10.0, "n_basis": 16}


@pytest.fixture(scope="module")
def rounds():
    return em.learn(SMALL, rounds=4, seed=3, **QUICK)


class TestProblems:
    def test_labels_of_a_step_climb_from_its_foot_to_its_top(self):
        problem = em.step(10, 1, n_test=40_000)
        score = problem.X_test[:, 0] - problem.X_test[:, 1]
        for part, share in ((score < -2, 0.03), (score > 0.5, 0.88)):
            n = part.sum()
            assert abs(problem.y_test[part].mean() - share) < 4 * (share * (1 - share) / n) ** 0.5
        halfway = problem.y_test[(score > -0.9) & (score < -0.7)]
        assert halfway.mean() == pytest.approx(0.455, abs=0.05)

    def test_kinked_labels_follow_the_odds(self):
        """Within four standard errors, on both sides of the kink."""
        problem = em.kinked(10, 1, n_test=40_000)
        for side in (problem.odds < -0.5, problem.odds > -0.5):
            p = expit(problem.odds[side])
            y = problem.y_test[side]
            assert abs((y - p).mean()) < 4 * np.sqrt((p * (1 - p)).mean() / side.sum())
        x = problem.X_test @ [2.0, -2.0, 1.0]
        np.testing.assert_allclose(problem.odds[x > 0], 2.5 * x[x > 0] - 0.5, rtol=1e-5, atol=1e-8)

    @pytest.mark.parametrize(("make", "shape"), [(em.cancer, 30), (lambda s: em.digit(3, s), 64)])
    def test_halves_share_nothing(self, make, shape):
        problem = make(0)
        assert problem.X.shape[1] == problem.X_test.shape[1] == shape
        assert abs(len(problem.y) - len(problem.y_test)) <= 1
        both = np.vstack([problem.X, problem.X_test])
        assert len(np.unique(both, axis=0)) == len(both)


class TestLearn:
    def test_is_what_the_classifier_does(self, rounds):
        """The first E-step and M-step: same weights, same evidence, for the default c."""
        C = QUICK.get("C", 1.0)
        link = PaperLink(n_basis=QUICK["n_basis"], random_state=3)
        model = LinkgisticClassifier(link=link, C=C, max_iter=4, tol=0.0)
        with pytest.warns(UserWarning, match="not converged"):
            model.fit(SMALL.X, SMALL.y)
        # Other draws and another tolerance of the M-step: the paths run close, not together.
        value = model.history_["log_evidence"][0, 0] - _penalty(rounds[0])
        assert rounds[0].value == pytest.approx(value, abs=1e-3)
        beta = model.coef_[0] / model.link_.slope
        np.testing.assert_allclose(rounds[-1].beta.numpy(), beta, rtol=0.05)

    def test_starts_at_logistic_regression(self):
        start = em.learn(SMALL, rounds=0, C=1.0, n_basis=2, tol=1e-10)[0]
        truth = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(SMALL.X, SMALL.y)
        # scikit-learn stops at a slope of its own; both know the weights to five digits.
        np.testing.assert_allclose(start.beta.numpy(), truth.coef_[0], rtol=1e-5)

    def test_values_are_evidence_less_the_penalty(self, rounds):
        for found in rounds:
            assert found.value == pytest.approx(found.posterior.log_evidence - _penalty(found))

    def test_draws_weigh_the_evidence(self):
        """Three parameters: the evidence and the mean log likelihood by quadrature."""
        found = em.learn(SMALL, rounds=0, C=10.0, n_basis=2)[0]
        q = found.posterior
        y = torch.from_numpy(SMALL.y)
        nodes, weights = np.polynomial.hermite_e.hermegauss(20)
        cube = torch.cartesian_prod(*[torch.from_numpy(nodes)] * 3)
        weight = torch.cartesian_prod(*[torch.from_numpy(weights / weights.sum())] * 3).prod(1)

        def fit(Gamma):
            nu = q.prior.source(found.scores, Gamma)
            return torch.nn.functional.logsigmoid(torch.where(y == 1, nu, -nu)).sum(1)

        around = q.mode + cube @ q.root.T
        normal = torch.distributions.MultivariateNormal(q.mode, scale_tril=_lower(q.root))
        prior = torch.distributions.Normal(q.prior.location, q.prior.precision.rsqrt())
        ratio = fit(around) + prior.log_prob(around).sum(1) - normal.log_prob(around)
        evidence = float(torch.logsumexp(ratio + weight.log(), 0)) + math.log(2)  # both twins
        found_draws = em.drawn(found, SMALL.y, 4000, seed=1)
        weights = np.exp(found_draws["log weight"] - evidence)
        assert abs(weights.mean() - 1) < 4 * weights.sem()
        assert weights.sem() < 0.05
        expected = float(weight @ fit(around))
        fits = found_draws["log likelihood"]
        assert abs(fits.mean() - expected) < 4 * fits.sem()

    @pytest.mark.parametrize("seed", range(5))
    def test_no_monotone_link_is_better(self, seed):
        """A dozen data, two of them at one score: the best of all steps in thousandths."""
        generator = np.random.default_rng(seed)
        x = np.append(generator.normal(size=11), 0.3).round(1)
        y = (generator.random(12) < expit(x)).astype(np.int64)
        levels = np.linspace(0, 1, 1001)
        best = np.zeros(1001)  # of the data so far, if the last probability is this level
        for score in np.unique(x):
            at = y[x == score]
            best = np.maximum.accumulate(best)
            best = best + xlogy(at.sum(), levels) + xlogy((1 - at).sum(), 1 - levels)
        # A probability off by half a thousandth costs a few 1e-6 nats.
        assert em.best_monotone(torch.from_numpy(x), y) == pytest.approx(best.max(), abs=1e-4)

    def test_filled_is_the_part_of_the_period(self):
        found = em.learn(SMALL, rounds=0, filled=0.25, **QUICK)[0]
        filled = found.posterior.prior.kernel.c * em.reach(SMALL, 10.0)
        assert filled == pytest.approx(0.25, rel=1e-3)  # reach ends its search at another place

    def test_gp(self):
        found = em.learn(SMALL, rounds=0, prior="gp", **QUICK)[0]
        assert isinstance(found.posterior.prior, GP)
        assert float(found.posterior.prior.kernel.variance) > 1


def _lower(root):
    return torch.linalg.cholesky(root @ root.T)


def _penalty(found):
    return 0.5 / QUICK["C"] * float(found.beta @ found.beta)


class TestAscent:
    def test_joint_by_hand(self):
        paths = em.atoms(3, 0)
        Z = torch.from_numpy(SMALL.X[:5])
        y = torch.from_numpy(SMALL.y[:5]).double()
        beta = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
        found = em.joint_of_atoms(paths, Z, y, beta)
        prior, Gamma = paths
        for value, path in zip(found, Gamma, strict=True):
            psi = prior.kernel.psi(Z @ beta).numpy()
            w = path[:-1].numpy()
            u = expit(float(path[-1]) + np.einsum("i,nij,j->n", w, psi, w))
            expected = np.log(np.where(y.numpy() == 1, u, 1 - u)).sum() - np.log(3)
            assert float(value) == pytest.approx(expected, abs=1e-10)


def test_by_round_scores_what_a_classifier_would(rounds):
    table = em.by_round(SMALL, rounds, (0, 4))
    assert list(table.index) == [0, 4]
    found = rounds[4]
    x = (SMALL.X_test - SMALL.X.mean(axis=0)) @ found.beta.numpy()
    draws = found.posterior.sample(4000, torch.Generator().manual_seed(9))
    u = expit(found.posterior.prior.source(torch.from_numpy(x), draws).numpy()).mean(axis=0)
    # 64 draws against 4000: a few hundredths of the band.
    assert table.loc[4, "test log loss"] == pytest.approx(log_loss(SMALL.y_test, u), abs=0.01)
    slope = np.polyfit(found.scores.numpy(), found.posterior.mean(found.scores).numpy(), 1)[0]
    assert table.loc[4, "slope"] == pytest.approx(slope)
    assert table.loc[4, "product"] == pytest.approx(slope * float(found.beta.norm()))


def test_bent_draws_counts_paths_that_fall():
    x = torch.linspace(-2, 2, 100, dtype=torch.float64)
    y = (x > 0).double()
    kernel = TrigonometricKernel(a=1.2, c=0.25, n_basis=16)
    counts = {
        kind: em.bent_draws(laplace(kind(kernel), Bernoulli(), x, y), x, 50, 0)
        for kind in (ISGP, GP)
    }
    assert counts == {ISGP: 0, GP: 50}
    posterior = laplace(ISGP(kernel), Bernoulli(), x, y)
    flat = replace(posterior, mode=0 * posterior.mode, root=0 * posterior.root)
    assert em.bent_draws(flat, x, 50, 0) == 0  # a flat path does not fall
