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

from bayesloss.learning.evidence.evidence import evidence_gradient, joint_at, theta_of
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
_NODES = 8
_RADIUS = 1.1 * math.sqrt(2)  # as Rue, Martino and Chopin have it, section 6.5
_DESIGN = ((0.0, 0.0), (_RADIUS, 0.0), (-_RADIUS, 0.0), (0.0, _RADIUS), (0.0, -_RADIUS))
_SHARES = (1 - 2 / _RADIUS**2, *4 * (1 / (2 * _RADIUS**2),))
_WIDEST = 1.5  # standard deviation of a log hyper-parameter where the evidence is flat
_STEP = 0.02  # for the Hessian, by differences of the gradient
_OUT = 12.0  # nats below the best: such a node has no weight, and ends the walk
_TRUST = 5.0  # nats that the plain bound may fall behind: beyond, draws of q miss the data
_DRAWS = 128  # half of them mirror images
_AT_TOP = 1e-3  # standard deviations of a log hyper-parameter from the bound's maximum
_NEWTON_STEPS = 100  # to the mode under each prior


class NormalBernoulli(Bernoulli):
    """The Bernoulli likelihood averaged over normal nu, as its bound penalises rough posteriors."""

    def expected_log_density(self, mean: Tensor, variance: Tensor, data: Observations) -> Tensor:
        return normal_average(self, mean, variance, data, 15)


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
        return all(part.converged for part, weight in pairs if weight >= 1e-3)

    @property
    def noise_variances(self) -> Float[Tensor, " k"]:
        """The variance of the Gaussian noise under each component."""
        return torch.stack([1 / _gaussian(part).alpha.detach() for part in self.components])

    def moments(self, x: Float[Tensor, " n"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Mean and variance of nu(x)."""
        means, variances = self._component_moments(x)
        mean = self.weights @ means
        return mean, self.weights @ (variances + (means - mean) ** 2)

    def quantile(
        self, x: Float[Tensor, " n"], level: float, *, observation: bool = False
    ) -> Float[Tensor, " n"]:
        """The quantile of nu(x), or of a new target, Gaussian under each component."""
        means, variances = self._component_moments(x)
        if observation:
            variances = variances + self.noise_variances[:, None]
        stds = variances.sqrt()
        z = torch.special.ndtri(stds.new_tensor(level))
        low, high = (means + z * stds).amin(dim=0), (means + z * stds).amax(dim=0)
        for _ in range(40 if len(means) > 1 else 0):  # bisection: 2^-40 of the first bracket
            middle = (low + high) / 2
            # Where a variance is zero, its component is a step.
            shares = torch.special.ndtr((middle - means) / stds.clamp_min(1e-300))
            below = self.weights @ shares < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def draws(self, noise: Float[Tensor, "s p"]) -> Float[Tensor, "s p"]:
        """Gamma from standard normal noise: each component gets its share of the rows."""
        ends = (self.weights.cumsum(0) * len(noise)).round().to(torch.int64).tolist()
        parts = noise.tensor_split(ends[:-1])
        pairs = zip(self.components, parts, strict=True)
        return torch.cat([q.mode + part @ q.root.T for q, part in pairs])

    def sample_source(
        self, x: Float[Tensor, " n"], n: int, generator: torch.Generator
    ) -> Float[Tensor, "s n"]:
        """The values at x of n functions nu, each from a component drawn by weight."""
        if len(self.components) == 1:
            part = self.components[0]
            return part.prior.source(x, part.sample(n, generator))
        out = x.new_empty((n, len(x)))
        if n:
            chosen = torch.multinomial(self.weights, n, replacement=True, generator=generator)
            for k in chosen.unique().tolist():
                part, mine = self.components[k], chosen == k
                out[mine] = part.prior.source(x, part.sample(int(mine.sum()), generator))
        return out

    def with_straight_ends(self) -> "PosteriorMixture":
        """The mixture of ISGPs that go on straight beyond [-1, 1]; one of other priors stays."""
        if not isinstance(self.best.prior, ISGP):
            return self
        priors = [StraightEnds(part.prior, 1.0, _STRETCH) for part in self.components]
        parts = zip(self.components, priors, strict=True)
        return replace(self, components=[replace(part, prior=prior) for part, prior in parts])

    def _component_moments(self, x: Tensor) -> tuple[Float[Tensor, "k n"], Float[Tensor, "k n"]]:
        means, variances = zip(*(part.moments(x) for part in self.components), strict=True)
        return torch.stack(means), torch.stack(variances)


def average_priors(
    priors: Sequence[SourcePrior], likelihood: Likelihood, data: Observations, start: Tensor
) -> PosteriorMixture:
    """The posteriors under priors with the same features, weighted by their evidence bounds."""
    joints = {i: LogJoint(prior, likelihood, data) for i, prior in enumerate(priors)}
    found = find_modes(joints, start, max_iter=_NEWTON_STEPS)
    parts = [approximate(joints[i], found[i]) for i in sorted(found)]
    bounds = torch.tensor([part.evidence_bound for part in parts], dtype=torch.float64)
    if bounds.isnan().any():
        raise ValueError(f"expected a likelihood with a bound on the evidence, got {likelihood!r}")
    return PosteriorMixture(parts, torch.softmax(bounds, dim=0))


@one_thread()
@torch.inference_mode(False)  # the climb differentiates, wherever it is called
@torch.enable_grad()
def average_hyperparameters(
    best: Posterior, data: Observations, fit: Fit = approximate
) -> PosteriorMixture:
    """The mixture of Gaussians by ``fit`` around the best posterior under Gaussian noise."""
    begin, noise = LogJoint(best.prior, _gaussian(best), data), _normal_draws(len(best.mode))
    slices = [_Slice(begin, (k + 0.5) / _NODES) for k in range(_NODES)]
    middle = min(slices, key=lambda each: abs(each.ratio - 1 / float(best.prior.kernel.a)))
    split, zeta = slices.index(middle), theta_of(begin)[_ZETA]
    found: list[tuple[Posterior, float, float]] = []
    highest = -math.inf
    first = _climb(middle, _Top(zeta, best.mode, _WIDEST / 4 * torch.eye(2).to(zeta)))
    for walk in (slices[split:], slices[:split][::-1]):
        top = first
        for here in walk:
            top = top if here is middle else _climb(here, top)
            points = here.points(top, noise, fit)
            found += points
            value = max((value for _, value, _ in points), default=-math.inf)
            if value < highest - _OUT:
                break
            highest = max(highest, value)
    if not found:
        return PosteriorMixture([best], torch.ones(1, dtype=torch.float64))
    parts, _, log_weights = zip(*found, strict=True)
    weights = torch.softmax(torch.tensor(log_weights, dtype=torch.float64), dim=0)
    kept = (weights > 1e-4).nonzero()[:, 0]  # others only cost time
    return PosteriorMixture([parts[k] for k in kept], weights[kept] / weights[kept].sum())


def _gaussian(posterior: Posterior) -> Gaussian:
    if not isinstance(posterior.likelihood, Gaussian):
        raise TypeError(f"expected a Gaussian likelihood, got {posterior.likelihood!r}")
    return posterior.likelihood


def _normal_draws(size: int) -> Float[Tensor, "s {size}"]:
    """The same low-discrepancy draws for all components, half of them mirror images."""
    half, signs = even_normals(_DRAWS // 2, size), torch.ones(size, dtype=torch.float64)
    signs[(size - 1) // 2 :] = -1
    return torch.cat([half, signs * half])


@dataclass(frozen=True)
class _Top:
    """Where a climb ended: zeta, the mode there, and V."""

    zeta: Float[Tensor, " 2"]
    Gamma: Float[Tensor, " p"]
    V: Float[Tensor, "2 2"]


@dataclass(frozen=True)
class _Slice:
    """The bound as a function of zeta at one a; with mu and gamma as they were."""

    begin: LogJoint
    ratio: float  # 1 / a

    def __call__(self, zeta: Tensor, start: Tensor) -> tuple[float, Float[Tensor, " 2"], Mode]:
        value, gradient, mode = evidence_gradient(
            self._theta(zeta), partial(joint_at, self.begin), start, "bound"
        )
        return value, gradient[_ZETA], mode

    @torch.no_grad()
    def points(self, top: _Top, noise: Tensor, fit: Fit) -> list[tuple[Posterior, float, float]]:
        """The five points around a top, where they have a mode: posterior, value, log weight."""
        volume, found = math.log(abs(float(torch.linalg.det(top.V)))), []
        for z, share in zip(torch.tensor(_DESIGN, dtype=torch.float64), _SHARES, strict=True):
            joint = joint_at(self.begin, self._theta(top.zeta + top.V @ z))
            mode = find_mode(joint, top.Gamma)
            if not mode.converged:
                continue
            posterior = fit(joint, mode)
            value = float(log_ratios(joint, posterior, noise).logsumexp(dim=0)) - math.log(_DRAWS)
            value = min(value, posterior.evidence_bound + _TRUST)
            log_weight = math.log(share) + volume + value + 0.5 * float(z @ z)
            found.append((posterior, value, log_weight))
        return found

    def _theta(self, zeta: Float[Tensor, " 2"]) -> Float[Tensor, " 5"]:
        theta = theta_of(self.begin)
        theta[0], theta[_ZETA] = math.log(1 / self.ratio - 1), zeta
        return theta


def _climb(bound: _Slice, begin: _Top) -> _Top:
    """Newton's method to the bound's maximum at another a; stalling slopes renew the Hessian."""
    zeta, V = begin.zeta, begin.V
    value, slope, mode = bound(zeta, begin.Gamma)
    if not math.isfinite(value):
        return begin

    def spread() -> Tensor:
        """The symmetric V with V V the inverse of minus the Hessian, nowhere wider than a limit."""
        steps = _STEP * torch.eye(2).to(zeta)
        rows = torch.stack([bound(zeta + step, mode.Gamma)[1] - slope for step in steps]) / _STEP
        values, vectors = torch.linalg.eigh(-(rows + rows.T) / 2)
        return (vectors * values.clamp_min(_WIDEST**-2).rsqrt()) @ vectors.T

    fraction, fresh = 1.0, False
    for _ in range(30):
        uphill = V @ slope
        size = float(uphill.norm())
        if size < _AT_TOP:
            break
        moved = zeta + V @ uphill * fraction * min(1.0, 2 / size)
        new_value, new_slope, new_mode = bound(moved, mode.Gamma)
        rises = new_value > value
        fresh = not (fresh or (rises and float((V @ new_slope).norm()) < size / 2))
        if rises:
            zeta, value, slope, mode, fraction = moved, new_value, new_slope, new_mode, 1.0
        else:
            fraction /= 2
        if fresh:
            V = spread()
    return _Top(zeta, mode.Gamma, spread())
