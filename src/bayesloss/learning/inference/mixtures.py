r"""Average over hyper-parameters instead of taking the best for true.

The posterior of nu at the best hyper-parameters is too sure: others explain the data nearly as
well. As nested Laplace approximations do (Rue, Martino and Chopin 2009, section 3), nu gets the
mixture

    q(Gamma | D) = sum_k omega_k q(Gamma | D, Theta_k).

Most of all the data leave the smoothness open: between a = 2 and a = 31 the evidence often differs
by less than a nat. So 1/a, the ratio of neighbouring eigenvalues in (14), has a uniform prior on
(0, 1) and a grid of eight midpoints. At each node the evidence bound is maximised over
zeta = (log k(0, 0), log alpha), flat a priori. Five points around the maximum,
zeta_j = best + V z_j, integrate over zeta. V V^T is the inverse of minus the Hessian there, and z_j
are the origin and four points at distance r on the axes: weights 1 / (2 r^2) a point, and the rest
for the origin, give z mean 0 and covariance 1. At each point

    omega = det(V) weight(z) exp(value + z^T z / 2),

exact where the value is quadratic in zeta. mu and gamma, which say little, stay where they are.

Mixtures of nearly the same data are to be nearly the same. So nodes and draws are fixed, every
climb ends at its maximum, and the draws are as symmetric as the model: mirrored in both axes a
source has the sines' weights and the intercept with the other sign, and for each draw there is its
mirror image.

The value is the *importance-weighted* bound on the log evidence (Burda, Grosse and Salakhutdinov
2016): the plain bound gives away nats just where functions are rough, and would call the smooth
ones too likely; Laplace's own evidence can be far too high. But where the plain bound is more than
five nats below, the Gaussian is no picture of the posterior (near a saddle point its band can be
many times too wide), and the plain bound plus five counts instead.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesloss.learning.inference.evidence import evidence_gradient
from bayesloss.learning.inference.importance import importance_weighted_bound
from bayesloss.learning.inference.laplace import Posterior, approximate
from bayesloss.learning.inference.likelihoods import Gaussian, Observations
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import Mode, find_mode
from bayesloss.learning.inference.posterior_draws import even_normals
from bayesloss.learning.inference.variational import nearest
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.threads import fixed_threads

__all__ = ["PosteriorMixture", "average_hyperparameters"]

_NODES = 8
_RADIUS = 1.1 * math.sqrt(2)  # as Rue, Martino and Chopin have it, section 6.5
_DESIGN = _RADIUS * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
_SHARES = np.array([1 - 2 / _RADIUS**2] + 4 * [1 / (2 * _RADIUS**2)])
_WIDEST = 1.5  # standard deviation of a log hyper-parameter where the evidence is flat
_STEP = 0.02  # for the Hessian, by differences of the gradient
_OUT = 12.0  # nats below the best: a node that has no say, and ends the walk
_TRUST = 5.0  # nats that the plain bound may fall behind: beyond, draws of q miss the data
_DRAWS = 128  # half of them mirror images
_NEGLIGIBLE = 1e-4  # components of less weight only cost time
_AT_TOP = 1e-3  # standard deviations of a log hyper-parameter from the bound's maximum
_CLIMB = 30  # steps to a node's maximum at most


@dataclass(frozen=True)
class PosteriorMixture:
    """A mixture of Gaussian approximations to the posterior, at different hyper-parameters.

    Attributes
    ----------
    components : list of Posterior
        Each with its prior and its Gaussian likelihood.
    weights : Tensor of shape (K,)
        They sum to 1.
    """

    components: list[Posterior]
    weights: Tensor

    @property
    def noise_variances(self) -> Tensor:
        """The variance of the noise under each component, of shape (K,)."""
        return torch.stack([1 / _noise(part).alpha.detach() for part in self.components])

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of nu(x), each of shape (n,)."""
        if len(self.components) == 1:
            return self.components[0].moments(x)
        means, variances = self._component_moments(x)
        mean = self.weights @ means
        return mean, self.weights @ (variances + (means - mean) ** 2)

    def quantile(self, x: Tensor, level: float, *, observation: bool = False) -> Tensor:
        """The quantile of nu(x), or of a new target, taken as Gaussian under each component.

        Parameters
        ----------
        x : Tensor of shape (n,)
        level : float
            In (0, 1).
        observation : bool, default=False
            Whether the noise is added.

        Returns
        -------
        Tensor of shape (n,)
        """
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

    def sample_source(self, x: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Draw n functions nu, each from a component drawn by weight: their values, (n, len(x))."""
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

    def _component_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        means, variances = zip(*(part.moments(x) for part in self.components), strict=True)
        return torch.stack(means), torch.stack(variances)


@torch.inference_mode(False)  # the climb differentiates, wherever it is called
@torch.enable_grad()
def average_hyperparameters(
    best: Posterior, data: Observations, *, by_variation: bool = False
) -> PosteriorMixture:
    """The mixture around the posterior of highest evidence.

    Parameters
    ----------
    best : Posterior
        From :func:`bayesloss.learning.inference.evidence.maximise_evidence`, of a Gaussian
        likelihood.
    data : Observations
        The data, condensed by that likelihood.
    by_variation : bool, default=False
        Whether the Gaussians that are mixed, and weigh themselves, are the variational ones. The
        points are those that Laplace's bound chooses in any case.

    Returns
    -------
    PosteriorMixture

    Raises
    ------
    TypeError
        If the likelihood is not Gaussian.
    """
    prior, alpha = best.prior, _noise(best).alpha.detach()
    a, variance = prior.kernel.a.detach(), prior.kernel.variance.detach()

    def joint_at(theta: Tensor) -> LogJoint:
        kernel = TrigonometricKernel(
            a=1 + theta[0].exp(), c=prior.kernel.c, n_basis=prior.kernel.n_basis
        ).scaled(theta[1].exp())
        there = type(prior)(kernel, mu=prior.mu, gamma=prior.gamma)
        return LogJoint(there, Gaussian(theta[2].exp()), data)

    def climb_at(
        ratio: float, zeta: NDArray[np.float64], start: Tensor
    ) -> tuple[float, NDArray[np.float64], Mode]:
        """The bound, its gradient in zeta, and the mode."""
        value, gradient, mode = evidence_gradient(_theta(ratio, zeta), joint_at, start, "bound")
        return value, gradient[1:].numpy(), mode

    noise = _normal_draws(len(best.mode))
    top, found, log_weights = -math.inf, [], []
    nodes = (np.arange(_NODES) + 0.5) / _NODES
    middle = int(np.argmin(np.abs(nodes - 1 / float(a))))
    centre = np.log([float(variance), float(alpha)])
    with fixed_threads(1):
        first = _climb(climb_at, nodes[middle], centre, best.mode, _WIDEST * np.eye(2) / 4)
        for walk in (range(middle, _NODES), range(middle - 1, -1, -1)):
            zeta, start, V = first
            for k in walk:
                if k != middle:
                    zeta, start, V = _climb(climb_at, nodes[k], zeta, start, V)
                volume = math.log(abs(np.linalg.det(V)))
                here = []
                for z, share in zip(_DESIGN, _SHARES, strict=True):
                    with torch.no_grad():
                        joint = joint_at(_theta(nodes[k], zeta + V @ z))
                        mode = find_mode(joint, start)
                        if not mode.converged:
                            continue
                        posterior = (
                            nearest(joint, mode)[0] if by_variation else approximate(joint, mode)
                        )
                        value = float(importance_weighted_bound(joint, posterior, noise))
                        value = min(value, posterior.evidence_bound + _TRUST)
                    found.append(posterior)
                    log_weights.append(math.log(share) + volume + value + 0.5 * float(z @ z))
                    here.append(value)
                if max(here, default=-math.inf) < top - _OUT:
                    break
                top = max([top, *here])
    weights = torch.softmax(torch.tensor(log_weights, dtype=torch.float64), dim=0)
    kept = weights > _NEGLIGIBLE
    return PosteriorMixture(
        [part for part, keep in zip(found, kept.tolist(), strict=True) if keep],
        weights[kept] / weights[kept].sum(),
    )


def _noise(posterior: Posterior) -> Gaussian:
    if not isinstance(posterior.likelihood, Gaussian):
        raise TypeError(f"expected a Gaussian likelihood, got {posterior.likelihood!r}")
    return posterior.likelihood


def _normal_draws(size: int) -> Tensor:
    """The same low-discrepancy draws for all components, (S, size), with their mirror images."""
    half = even_normals(_DRAWS // 2, size)
    mirrored = half.clone()
    mirrored[:, (size - 1) // 2 :] *= -1  # the sines' weights and the intercept
    return torch.cat([half, mirrored])


def _theta(ratio: float, zeta: NDArray[np.float64]) -> Tensor:
    return torch.tensor([math.log(1 / ratio - 1), *zeta], dtype=torch.float64)


def _spread(
    gradient: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    centre: NDArray[np.float64],
    slope: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The symmetric V with V V the inverse of minus the Hessian, nowhere wider than a limit."""
    rows = [(gradient(centre + step) - slope) / _STEP for step in _STEP * np.eye(2)]
    values, vectors = np.linalg.eigh(-(np.stack(rows) + np.stack(rows).T) / 2)
    return (vectors * np.maximum(values, _WIDEST**-2) ** -0.5) @ vectors.T


def _climb(
    climb_at: Callable[..., tuple[float, NDArray[np.float64], Mode]],
    ratio: float,
    zeta: NDArray[np.float64],
    start: Tensor,
    V: NDArray[np.float64],
) -> tuple[NDArray[np.float64], Tensor, NDArray[np.float64]]:
    """Newton's method to the bound's maximum at another a: zeta, the mode and V there.

    The Hessian is taken anew when a step has brought the slope down by less than half.
    """

    def spread() -> NDArray[np.float64]:
        return _spread(lambda at: climb_at(ratio, at, mode.Gamma)[1], zeta, slope)

    value, slope, mode = climb_at(ratio, zeta, start)
    fraction, fresh = 1.0, False
    for _ in range(_CLIMB):
        uphill = V @ slope
        size = float(np.linalg.norm(uphill))
        if not math.isfinite(value) or size < _AT_TOP:
            break
        moved = zeta + V @ uphill * fraction * min(1.0, 2 / size)
        new_value, new_slope, new_mode = climb_at(ratio, moved, mode.Gamma)
        if new_value > value:
            halved = float(np.linalg.norm(V @ new_slope)) < size / 2
            zeta, value, slope, mode, fraction = moved, new_value, new_slope, new_mode, 1.0
        else:
            halved, fraction = False, fraction / 2
        fresh = not (halved or fresh)
        if fresh:
            V = spread()
    return (zeta, mode.Gamma, spread()) if math.isfinite(value) else (zeta, start, V)
