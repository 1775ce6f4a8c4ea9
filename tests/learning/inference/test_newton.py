import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from textbook_joint import prior_of, simulate

from bayesloss import GP, ISGP, Gaussian, TrigonometricKernel, laplace
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import choose_prior, find_mode, find_modes

# torch.func compiles a helper by torch.jit, which recent releases deprecate.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@pytest.fixture(params=[ISGP, GP], ids=["ISGP", "GP"])
def prior(request):
    return prior_of(request.param)


class TestSearch:
    def setup_method(self):
        self.prior = prior_of(ISGP)
        self.x, self.y = simulate()

    def joint(self, prior):
        likelihood = Gaussian(25.0)
        return LogJoint(prior, likelihood, likelihood.condense(prior.features, self.x, self.y))

    def fit(self, **settings):
        return laplace(self.prior, Gaussian(25.0), self.x, self.y, **settings)

    def test_mode_is_a_stationary_point(self, prior):
        posterior = laplace(prior, Gaussian(25.0), self.x, self.y)
        slope = torch.func.grad(self.joint(prior))(posterior.mode)
        assert posterior.converged
        # What is left to gain is below 1e-18 nats (or rounding): a step below 1e-9 prior units,
        # against slopes of order 100.
        assert float((slope / prior.precision.sqrt()).abs().max()) < 1e-7

    def test_either_twin_gives_the_same_source(self):
        """w and -w: whichever the search finds, nu, its band and the evidence are the same."""
        start = self.prior.start(self.x)
        one = self.fit(start=start)
        other = self.fit(start=torch.cat([-start[:-1], start[-1:]]))
        torch.testing.assert_close(other.mode[:-1], -one.mode[:-1], rtol=0, atol=1e-8)
        for first, second in zip(one.moments(self.x), other.moments(self.x), strict=True):
            torch.testing.assert_close(first, second, rtol=0, atol=1e-8)
        assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-9)
        assert other.evidence_bound == pytest.approx(one.evidence_bound, abs=1e-9)

    def test_a_start_at_the_saddle_escapes(self):
        """w = 0 is a stationary point of every log posterior: an answer there would be silent."""
        escaped = self.fit(start=self.prior.location)
        usual = self.fit()
        assert escaped.converged
        assert escaped.least_curvature > 0
        assert escaped.log_evidence == pytest.approx(usual.log_evidence, abs=1e-8)

    def test_too_few_steps_are_reported(self):
        with pytest.warns(ConvergenceWarning, match=r"no mode in 1 steps .* raise max_iter"):
            posterior = self.fit(max_iter=1)
        assert not posterior.converged
        assert posterior.n_iter == 1
        assert self.fit().converged

    def test_newton_converges_fast(self):
        """Quadratic convergence: a wrong gradient or Hessian would need many more steps."""
        assert self.fit().n_iter <= 12
        assert laplace(prior_of(GP), Gaussian(25.0), self.x, self.y).n_iter <= 2

    def test_every_step_ascends(self):
        joint = self.joint(self.prior)
        start = self.prior.sample(1, torch.Generator().manual_seed(9))[0] * 5
        values = [float(joint(find_mode(joint, start, max_iter=n).Gamma)) for n in range(10)]
        assert np.all(np.diff(values) >= -1e-9)

    def test_stops_where_rounding_hides_what_is_left_to_gain(self):
        """Data without noise under a precision of 1e8: the values themselves are rounded to 1e-10.

        A step that cannot be seen to ascend is not halved and tried again, 200 times over.
        """
        x = torch.linspace(-1, 1, 40, dtype=torch.float64)
        y = torch.exp(5 * x) / 30
        for alpha in (1e8, 1e10):
            prior = prior_of(ISGP, a=6.0, b=15_000.0, c=0.25, n_basis=8)
            posterior = laplace(prior, Gaussian(alpha), x, y)
            assert posterior.converged
            assert posterior.n_iter < 100

    @pytest.mark.parametrize("kind", [ISGP, GP])
    def test_ends_where_rounding_hides_the_least_eigenvalue(self, kind):
        """Under a precision of 1e16 the largest eigenvalue's errors exceed the least.

        Steps that only rounding errors call for once went on up to the limit of 200.
        """
        x = torch.linspace(-1, 1, 30, dtype=torch.float64)
        prior = prior_of(kind, a=16.0, b=3.0, c=0.25, n_basis=16)
        for alpha, known in ((1e12, True), (1e16, False)):
            mode = find_mode(LogJoint.of(prior, Gaussian(alpha), x, x), prior.start(x))
            largest = float(torch.linalg.eigvalsh(mode.curvature)[-1])
            assert (largest * torch.finfo(x.dtype).eps < 0.1) == known
            assert mode.converged == known
            assert mode.n_iter < 30


@pytest.mark.parametrize(("value", "allowed"), [(-1.0, 1e-10), (-1e3, 1e-10), (1e6, 1e-8)])
@pytest.mark.parametrize("part", [0.9, 1.1])
def test_what_may_be_left_to_gain_at_a_mode(value, allowed, part):
    """1e-10 nats, or 1e-14 of the value: before a parabola's top, at a distance that leaves it."""
    start = torch.tensor([math.sqrt(2 * part * allowed)], dtype=torch.float64)

    class Parabola(LogJoint):
        prior = SimpleNamespace(precision=torch.ones(1, dtype=torch.float64))

        def __init__(self):
            pass

        def __call__(self, Gamma):
            return value - 0.5 * (Gamma @ Gamma)

        def derivatives(self, Gamma):
            return -Gamma, torch.eye(1, dtype=torch.float64)

    mode = find_mode(Parabola(), start, max_iter=0)
    assert mode.converged == (part < 1), f"{part * allowed} nats are left"


@pytest.mark.parametrize("kind", [ISGP, GP])
class TestRivalPriors:
    """A mode under each of several."""

    def joints(self, kind, smoothness):
        x, y = simulate()
        priors = [prior_of(kind, a=a) for a in smoothness]
        data = Gaussian(20.0).condense(priors[0].features, x, y)
        self.start = priors[-1].start(x)
        return {i: LogJoint(prior, Gaussian(20.0), data) for i, prior in enumerate(priors)}

    def test_each_is_a_mode(self, kind):
        joints = self.joints(kind, (1.3, 2.0, 6.0))
        found = find_modes(joints, self.start)
        assert list(found) == [2, 1, 0]
        for i, mode in found.items():
            assert mode.converged
            whitened = joints[i].root(mode.curvature).T @ joints[i].derivatives(mode.Gamma)[0]
            assert float(whitened.abs().max()) < 1e-6


def joints_of(variances):
    """Of labels that change at zero: the variance of log odds is large in truth."""
    x = torch.linspace(-1, 1, 60, dtype=torch.float64)
    y = (x > 0).to(x.dtype)
    joints = {}
    for place, variance in enumerate(variances):
        prior = GP(TrigonometricKernel(a=2.0, c=0.5, n_basis=6).scaled(variance), gamma=1.0)
        joints[place] = LogJoint(prior, Bernoulli(), Bernoulli().condense(prior.features, x, y))
    return joints


def test_the_highest_evidence_wins_and_what_is_far_behind_is_out():
    joints = joints_of([20.0, 10.0, 0.01])
    start = torch.zeros(7, dtype=torch.float64)
    modes = {i: find_mode(joint, start) for i, joint in joints.items()}
    evidence = {i: float(joints[i].log_evidence(mode.Gamma)) for i, mode in modes.items()}
    best = max(evidence, key=lambda i: evidence[i])
    behind = max(evidence.values()) - min(evidence[0], evidence[1]) + 0.1
    assert min(evidence, key=lambda i: evidence[i]) == 2
    chosen, log_evidence, near = choose_prior(joints, {}, start, behind)
    assert chosen == best
    assert log_evidence == pytest.approx(evidence[best], abs=1e-4)
    assert sorted(near) == [0, 1]
    for i, mode in near.items():
        torch.testing.assert_close(mode.Gamma, modes[i].Gamma, rtol=1e-3, atol=1e-3)
    known = {i: mode.Gamma for i, mode in near.items()}
    again, _, modes = choose_prior({i: joints[i] for i in near}, known, start, behind)
    assert again == best
    assert modes[best].n_iter == 0  # searches begin where they ended


def test_without_a_mode_there_is_no_choice():
    class Saddle(LogJoint):
        """Its curvature is never positive."""

        def derivatives(self, Gamma):
            return 0 * Gamma, -torch.eye(len(Gamma), dtype=Gamma.dtype)

    joint = joints_of([1.0])[0]
    saddle = Saddle(joint.prior, joint.likelihood, joint.data)
    with pytest.raises(ValueError, match="expected a mode under one of 1 priors, got none"):
        choose_prior({0: saddle}, {}, torch.zeros(7, dtype=torch.float64), 1.0)
