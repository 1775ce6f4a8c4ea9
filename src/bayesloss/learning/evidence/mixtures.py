"""Average over hyper-parameters instead of fixing the best, whose posterior of nu is too narrow.

As in nested Laplace approximations (Rue, Martino and Chopin 2009, section 3), nu gets the mixture

    q(Gamma | D) = sum_k omega_k q(Gamma | D, Theta_k).

*A few priors, equally probable* (:func:`average_priors`): omega_k is proportional to exp L_k, with
lower bounds L_k on the evidence, because Laplace's own overfits labels.

*All a, k(0, 0) and alpha* (:func:`average_hyperparameters`), under Gaussian noise. 1/a, the ratio
of eigenvalues in (14), is least determined: uniform on (0, 1), on eight midpoints. At each, the
evidence bound is maximised over zeta = (log k(0, 0), log alpha), flat a priori, and integrated by
five points zeta_j = best + V z_j. V V^T is the inverse of minus the Hessian; z_j are four points at
distance r on the axes, of weight 1 / (2 r^2), and the origin with the rest, so that z has mean 0
and covariance 1:

    omega = det(V) weight(z) exp(value + z^T z / 2),

exact where the value is quadratic in zeta. The value is the *importance-weighted* bound on the log
evidence (Burda, Grosse and Salakhutdinov 2016), as the plain one is too low for rough functions,
but at most five nats above that: beyond, the Gaussian misrepresents the posterior.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.evidence.evidence import (
    EvidenceGradient,
    evidence_gradient,
    joint_at,
    theta_of,
)
from bayesloss.learning.evidence.importance import log_ratios
from bayesloss.learning.inference.laplace import Posterior, approximate, even_normals
from bayesloss.learning.inference.likelihoods import (
    Bernoulli,
    Gaussian,
    Likelihood,
    Observations,
    normal_average,
)
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import Mode, find_mode, find_modes
from bayesloss.learning.sources.priors import ISGP, SourcePrior, StraightEnds
from bayesloss.threads import on_one_thread, one_thread

Fit = Callable[[LogJoint, Mode], Posterior]

_STRETCH = 0.125  # of which ends take their slope, in halves of the range: longer is too sure
_ZETA = [1, 4]  # its places in theta
_SLICES = 8  # values of 1 / a
_RADIUS = 1.1 * math.sqrt(2)  # as Rue, Martino and Chopin have it, section 6.5
_ON_AXIS = 1 / (2 * _RADIUS**2)  # weight of a point on an axis: four give z covariance 1
_DESIGN = {  # the points z, and their weights
    (0.0, 0.0): 1 - 2 / _RADIUS**2,
    (_RADIUS, 0.0): _ON_AXIS,
    (-_RADIUS, 0.0): _ON_AXIS,
    (0.0, _RADIUS): _ON_AXIS,
    (0.0, -_RADIUS): _ON_AXIS,
}
_WIDEST = 1.5  # standard deviation of a log hyper-parameter where the evidence is flat
_STEP = 0.02  # for the Hessian, by differences of the gradient
_OUT = 12.0  # nats below the best: such a node has no weight, and ends the walk
_TRUST = 5.0  # nats that the plain bound may fall behind: beyond, draws of q miss the data
_DRAWS = 128  # half of them mirror images
_AT_TOP = 1e-3  # standard deviations of a log hyper-parameter from the bound's maximum
_LONGEST = 2.0  # standard deviations that a step of a climb may go: the Hessian changes
_CLIMB_STEPS = 30  # of a climb, at most
_NEWTON_STEPS = 100  # to the mode under each prior
_COUNTS = 1e-3  # probability from which a component that has not converged is worth a word
_NEGLIGIBLE = 1e-4  # probability below which a component only costs time
_BISECTIONS = 40  # 2^-40 of the first bracket
_FIT_NODES = 15  # of Gauss and Hermite's rule for each normal nu


class NormalBernoulli(Bernoulli):
    """The Bernoulli likelihood averaged over normal nu, as its bound penalises rough posteriors."""

    def expected_log_density(self, mean: Tensor, variance: Tensor, data: Observations) -> Tensor:
        return normal_average(self, mean, variance, data, _FIT_NODES)


@on_one_thread
@dataclass(frozen=True)
class PosteriorMixture:
    """Gaussian posteriors at different hyper-parameters, and their probabilities."""

    components: list[Posterior]
    weights: Float[Tensor, " k"]  # they sum to 1

    @property
    def best(self) -> Posterior:
        """The most probable component."""
        return self.components[int(self.weights.argmax())]

    @property
    def converged(self) -> bool:
        """Whether the search for the mode converged wherever it counts."""
        pairs = zip(self.components, self.weights, strict=True)
        return all(posterior.converged for posterior, weight in pairs if weight >= _COUNTS)

    @property
    def noise_variances(self) -> Float[Tensor, " k"]:
        """The variance of the Gaussian noise under each component."""
        return torch.stack([1 / _gaussian(q).alpha.detach() for q in self.components])

    def moments(self, x: Float[Tensor, " n"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Mean and variance of nu(x)."""
        means, variances = self._component_moments(x)
        mean = self.weights @ means
        variance = self.weights @ (variances + (means - mean) ** 2)
        return mean, variance

    def quantile(
        self, x: Float[Tensor, " n"], level: float, *, observation: bool = False
    ) -> Float[Tensor, " n"]:
        """The quantile of nu(x), or of a new target, Gaussian under each component."""
        means, variances = self._component_moments(x)
        if observation:
            variances = variances + self.noise_variances[:, None]
        stds = variances.sqrt()
        z = torch.special.ndtri(stds.new_tensor(level))
        quantiles = means + z * stds
        if len(quantiles) == 1:
            return quantiles[0]
        # The mixture's lies between its components'.
        low = quantiles.amin(dim=0)
        high = quantiles.amax(dim=0)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            # Where a variance is zero, its component is a step.
            shares = torch.special.ndtr((middle - means) / stds.clamp_min(1e-300))
            below = self.weights @ shares < level
            low = torch.where(below, middle, low)
            high = torch.where(below, high, middle)
        return (low + high) / 2

    def draws(self, noise: Float[Tensor, "s p"]) -> Float[Tensor, "s p"]:
        """Gamma from standard normal noise: each component gets its share of the rows."""
        ends = (self.weights.cumsum(0) * len(noise)).round().to(torch.int64).tolist()
        pairs = zip(self.components, noise.tensor_split(ends[:-1]), strict=True)
        return torch.cat([q.mode + rows @ q.root.T for q, rows in pairs])

    def sample_source(
        self, x: Float[Tensor, " n"], n: int, generator: torch.Generator
    ) -> Float[Tensor, "s n"]:
        """The values at x of n functions nu, each from a component drawn by weight."""
        if len(self.components) == 1:
            posterior = self.components[0]
            return posterior.prior.source(x, posterior.sample(n, generator))
        sources = x.new_empty((n, len(x)))
        if n == 0:
            return sources
        component = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        for k in component.unique().tolist():
            posterior = self.components[k]
            rows = component == k
            Gamma = posterior.sample(int(rows.sum()), generator)
            sources[rows] = posterior.prior.source(x, Gamma)
        return sources

    def with_straight_ends(self) -> "PosteriorMixture":
        """The mixture of ISGPs that go on straight beyond [-1, 1]; one of other priors stays."""
        if not isinstance(self.best.prior, ISGP):
            return self
        components = [
            replace(q, prior=StraightEnds(q.prior, 1.0, _STRETCH)) for q in self.components
        ]
        return replace(self, components=components)

    def _component_moments(self, x: Tensor) -> tuple[Float[Tensor, "k n"], Float[Tensor, "k n"]]:
        means = []
        variances = []
        for posterior in self.components:
            mean, variance = posterior.moments(x)
            means.append(mean)
            variances.append(variance)
        return torch.stack(means), torch.stack(variances)


def average_priors(
    priors: Sequence[SourcePrior], likelihood: Likelihood, data: Observations, start: Tensor
) -> PosteriorMixture:
    """The posteriors under priors with the same features, weighted by their evidence bounds."""
    joints = {i: LogJoint(prior, likelihood, data) for i, prior in enumerate(priors)}
    modes = find_modes(joints, start, max_iter=_NEWTON_STEPS)
    posteriors = [approximate(joints[i], modes[i]) for i in sorted(modes)]
    bounds = torch.tensor([q.evidence_bound for q in posteriors], dtype=torch.float64)
    if bounds.isnan().any():
        raise ValueError(f"expected a likelihood with a bound on the evidence, got {likelihood!r}")
    return PosteriorMixture(posteriors, torch.softmax(bounds, dim=0))


@one_thread()
@torch.inference_mode(False)  # the climb differentiates, wherever it is called
@torch.enable_grad()
def average_hyperparameters(
    best: Posterior, data: Observations, fit: Fit = approximate
) -> PosteriorMixture:
    """The mixture of Gaussians by ``fit`` around the best posterior under Gaussian noise."""
    begin = LogJoint(best.prior, _gaussian(best), data)
    noise = _normal_draws(len(best.mode))
    slices = [_Slice(begin, (k + 0.5) / _SLICES) for k in range(_SLICES)]
    distances = [abs(here.ratio - 1 / float(best.prior.kernel.a)) for here in slices]
    middle = distances.index(min(distances))
    zeta = theta_of(begin)[_ZETA]
    V = _WIDEST / 4 * torch.eye(2).to(zeta)  # a guess, which the climb renews
    middle_top = _climb(slices[middle], _Top(zeta=zeta, Gamma=best.mode, V=V))
    points = slices[middle].points(middle_top, noise, fit)
    highest = _highest(points)
    # Walk away from the middle to either side, each climb from where the last one ended.
    for walk in (slices[middle + 1 :], slices[:middle][::-1]):
        top = middle_top
        for here in walk:
            top = _climb(here, top)
            points_here = here.points(top, noise, fit)
            points += points_here
            if _highest(points_here) < highest - _OUT:
                break
            highest = max(highest, _highest(points_here))
    if not points:
        return PosteriorMixture([best], torch.ones(1, dtype=torch.float64))
    log_weights = torch.tensor([point.log_weight for point in points], dtype=torch.float64)
    weights = torch.softmax(log_weights, dim=0)
    kept = (weights > _NEGLIGIBLE).nonzero()[:, 0]
    components = [points[k].posterior for k in kept]
    return PosteriorMixture(components, weights[kept] / weights[kept].sum())


def _gaussian(posterior: Posterior) -> Gaussian:
    if not isinstance(posterior.likelihood, Gaussian):
        raise TypeError(f"expected a Gaussian likelihood, got {posterior.likelihood!r}")
    return posterior.likelihood


def _normal_draws(size: int) -> Float[Tensor, "s {size}"]:
    """The same low-discrepancy draws for all components, half of them mirror images."""
    half = even_normals(_DRAWS // 2, size)
    signs = torch.ones(size, dtype=torch.float64)
    signs[(size - 1) // 2 :] = -1
    return torch.cat([half, signs * half])


@dataclass(frozen=True)
class _Top:
    """Where a climb ended: zeta, the mode there, and V."""

    zeta: Float[Tensor, " 2"]
    Gamma: Float[Tensor, " p"]
    V: Float[Tensor, "2 2"]


@dataclass(frozen=True)
class _Point:
    """One of the five points around a top."""

    posterior: Posterior
    value: float  # on the log evidence, in nats
    log_weight: float  # log omega


def _highest(points: Sequence[_Point]) -> float:
    return max((point.value for point in points), default=-math.inf)


@dataclass(frozen=True)
class _Slice:
    """The bound as a function of zeta at one a; with mu and gamma as they were."""

    begin: LogJoint
    ratio: float  # 1 / a

    def at(self, zeta: Float[Tensor, " 2"], start: Tensor) -> EvidenceGradient:
        """The bound, its gradient by zeta, and the mode that a search from ``start`` finds."""
        joint_of = partial(joint_at, self.begin)
        by_theta = evidence_gradient(self._theta(zeta), joint_of, start, "bound")
        return by_theta._replace(gradient=by_theta.gradient[_ZETA])

    def spread(self, zeta: Float[Tensor, " 2"], here: EvidenceGradient) -> Float[Tensor, "2 2"]:
        """The symmetric V with V V the inverse of minus the Hessian, nowhere wider than a limit."""
        steps = _STEP * torch.eye(2).to(zeta)
        changes = [self.at(zeta + step, here.mode.Gamma).gradient - here.gradient for step in steps]
        hessian = torch.stack(changes) / _STEP
        values, vectors = torch.linalg.eigh(-(hessian + hessian.T) / 2)
        return (vectors * values.clamp_min(_WIDEST**-2).rsqrt()) @ vectors.T

    @torch.no_grad()
    def points(self, top: _Top, noise: Tensor, fit: Fit) -> list[_Point]:
        """Those of the five points around a top that have a mode."""
        log_volume = math.log(abs(float(torch.linalg.det(top.V))))
        points = []
        for place, share in _DESIGN.items():
            z = torch.tensor(place, dtype=torch.float64)
            joint = joint_at(self.begin, self._theta(top.zeta + top.V @ z))
            mode = find_mode(joint, top.Gamma)
            if not mode.converged:
                continue
            posterior = fit(joint, mode)
            value = float(log_ratios(joint, posterior, noise).logsumexp(dim=0)) - math.log(_DRAWS)
            value = min(value, posterior.evidence_bound + _TRUST)
            log_weight = math.log(share) + log_volume + value + 0.5 * float(z @ z)
            points.append(_Point(posterior=posterior, value=value, log_weight=log_weight))
        return points

    def _theta(self, zeta: Float[Tensor, " 2"]) -> Float[Tensor, " 5"]:
        theta = theta_of(self.begin)
        theta[0] = math.log(1 / self.ratio - 1)
        theta[_ZETA] = zeta
        return theta


def _climb(bound: _Slice, begin: _Top) -> _Top:
    """Newton's method to the bound's maximum at another a; stalling slopes renew the Hessian."""
    zeta = begin.zeta
    V = begin.V
    here = bound.at(zeta, begin.Gamma)
    if not math.isfinite(here.value):
        return begin
    fraction = 1.0
    renewed = False
    for _ in range(_CLIMB_STEPS):
        uphill = V @ here.gradient
        size = float(uphill.norm())
        if size < _AT_TOP:
            break
        moved = zeta + V @ uphill * fraction * min(1.0, _LONGEST / size)
        there = bound.at(moved, here.mode.Gamma)
        rises = there.value > here.value
        halves = float((V @ there.gradient).norm()) < size / 2
        # A Hessian that does not even halve the slope is renewed, unless it is new.
        renewed = not renewed and not (rises and halves)
        if rises:
            zeta = moved
            here = there
            fraction = 1.0
        else:
            fraction /= 2
        if renewed:
            V = bound.spread(zeta, here)
    return _Top(zeta=zeta, Gamma=here.mode.Gamma, V=bound.spread(zeta, here))
