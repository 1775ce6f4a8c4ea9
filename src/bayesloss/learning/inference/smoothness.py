r"""Smoothness from the data: the posterior at several values of a, weighed by the evidence bound.

The kernel's a says how smooth nu is. W&N's appendix D would choose it by Laplace's evidence; under
the Bernoulli likelihood that overfits, because a Gaussian at the mode misjudges the volume of a
rough posterior. The lower bound on the evidence by the same Gaussian q,

    L(a) = E_q[log p(D, Gamma | a)] + the entropy of q  <=  log p(D | a),

is low exactly where q is no good approximation. Over a grid of values, all as probable beforehand,

    p(nu | D) ~ sum_a pi_a q_a(nu),   pi_a = exp L(a) / sum_b exp L(b),

which is the mixture of the q_a with the highest bound, if they do not overlap: variational Bayes
over (a, Gamma). Where the data say little of a, the average says so.

Features depend on the kernel's c and M alone, so all values share the condensed data, and a mode is
sought from that of the smoother neighbour.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from bayesloss.arrays import as_number
from bayesloss.learning.inference.evidence import at_smoothness
from bayesloss.learning.inference.laplace import Posterior, approximate
from bayesloss.learning.inference.likelihoods import Bernoulli, Likelihood, Observations
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss.learning.sources.priors import SourcePrior

__all__ = [
    "SMOOTHNESS",
    "NormalBernoulli",
    "SmoothnessAverage",
    "average_priors",
    "average_smoothness",
]

# Equal steps of log log a: log(a) / (pi c) is the scale on which nu varies.
SMOOTHNESS = (1.1, 1.16, 1.28, 1.48, 1.87, 2.7, 4.8, 12.0, 50.0)

_NODES, _WEIGHTS = (torch.from_numpy(v) for v in np.polynomial.hermite_e.hermegauss(15))

_FORGOTTEN = 1e-3  # the weight below which a posterior has no part in the average


class NormalBernoulli(Bernoulli):
    """The Bernoulli likelihood, each nu taken for normal where it is averaged over.

    Under q the mean and the variance of nu(x) are exact. Given them, the quadratic bound of
    :meth:`Bernoulli.expected_log_density` holds for any distribution, and gives away the more the
    larger the variance: it holds rough posteriors down. Quadrature gives away nothing; its error is
    that of the normal shape. It serves every loss.
    """

    def expected_log_density(self, mean: Tensor, variance: Tensor, data: Observations) -> Tensor:
        """The mean of the log probability by Gauss and Hermite's rule with 15 points."""
        nu = mean[:, None] + variance.clamp_min(0).sqrt()[:, None] * _NODES
        by_label, _, _ = self.loss.log_probabilities(nu)
        average = by_label @ (_WEIGHTS / _WEIGHTS.sum())
        return (data.weights * torch.lerp(average[0], average[1], data.targets)).sum()


@dataclass(frozen=True)
class SmoothnessAverage:
    """Posteriors at several values of a, and how probable each value is.

    Attributes
    ----------
    smoothness : Tensor of shape (A,)
        The value of a of each posterior; ascending if there is one for each value.
    bounds : Tensor of shape (A,)
        The lower bounds on the log evidence, in nats.
    weights : Tensor of shape (A,)
        The probabilities of the values; their sum is 1.
    posteriors : tuple of Posterior
    """

    smoothness: Tensor
    bounds: Tensor
    weights: Tensor
    posteriors: tuple[Posterior, ...] = field(repr=False)

    @property
    def best(self) -> Posterior:
        """The posterior at the most probable smoothness."""
        return self.posteriors[int(self.weights.argmax())]

    @property
    def converged(self) -> bool:
        """Whether the search for the mode converged at every value that counts."""
        return all(
            posterior.converged
            for posterior, weight in zip(self.posteriors, self.weights, strict=True)
            if weight >= _FORGOTTEN
        )

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of nu(x) under the mixture, each of shape (n,)."""
        mean, second = torch.zeros_like(x), torch.zeros_like(x)
        for weight, posterior in zip(self.weights, self.posteriors, strict=True):
            if weight >= _FORGOTTEN:
                centre, variance = posterior.moments(x)
                mean += weight * centre
                second += weight * (variance + centre**2)
        total = self.weights[self.weights >= _FORGOTTEN].sum()
        mean, second = mean / total, second / total
        return mean, (second - mean**2).clamp_min(0)

    def draws(self, noise: Tensor) -> Tensor:
        """Gamma from the mixture, of shape (S, M + 1), for standard normal noise of that shape.

        Every component gets its share of the rows, to the nearest row.
        """
        size = len(noise)
        ends = (self.weights.cumsum(0) * size).round().to(torch.int64).tolist()
        ends[-1] = size
        parts, begin = [], 0
        for end, posterior in zip(ends, self.posteriors, strict=True):
            parts.append(posterior.mode + noise[begin:end] @ posterior.root.T)
            begin = end
        return torch.cat(parts)


def average_smoothness(
    prior: SourcePrior,
    likelihood: Likelihood,
    data: Observations,
    *,
    start: Tensor,
    smoothness: Sequence[float] = SMOOTHNESS,
    max_iter: int = 100,
) -> SmoothnessAverage:
    """Approximate the posterior at every smoothness, and weigh them by the bound on the evidence.

    Parameters
    ----------
    prior : SourcePrior
        With a kernel whose a is of no account: the others of the family differ in a alone, and have
        its c, M, k(0, 0), mu and gamma.
    likelihood : Likelihood
        One that has a bound: the Gaussian, the Bernoulli with the log loss, or
        :class:`NormalBernoulli`, with which the choice is better.
    data : Observations
        Condensed by the likelihood with the features of the prior; they do not depend on a.
    start : Tensor of shape (M + 1,)
        Where the search begins at the largest a, such as ``prior.start(x)`` or a mode found before.
    smoothness : sequence of float, default=(1.1, 1.16, 1.28, 1.48, 1.87, 2.7, 4.8, 12.0, 50.0)
        Values of a, above 1.
    max_iter : int, default=100
        The largest number of Newton steps for each value.

    Returns
    -------
    SmoothnessAverage
        Without the values at which no mode was found.

    Raises
    ------
    ValueError
        If the likelihood has no bound, or there is a mode at no value.
    """
    priors = [at_smoothness(prior, a) for a in sorted(smoothness, reverse=True)]
    return average_priors(priors[::-1], likelihood, data, start=start, max_iter=max_iter)


def average_priors(
    priors: Sequence[SourcePrior],
    likelihood: Likelihood,
    data: Observations,
    *,
    start: Tensor,
    max_iter: int = 100,
) -> SmoothnessAverage:
    """The same for any priors whose features, and parameters Gamma, are the same functions.

    The last prior is the first to be fitted, from ``start``, and each one then from the mode of its
    successor. Parameters, result and errors otherwise as for :func:`average_smoothness`.
    """
    found: list[Posterior] = []
    Gamma = start
    for prior in reversed(priors):
        joint = LogJoint(prior, likelihood, data)
        mode = find_mode(joint, Gamma, max_iter=max_iter)
        if mode.least_curvature <= 0:
            continue
        posterior = approximate(joint, mode)
        if math.isnan(posterior.evidence_bound):
            raise ValueError(
                "expected a likelihood with a bound on the evidence (Gaussian, or Bernoulli with "
                f"the log loss), got {likelihood!r}"
            )
        found.append(posterior)
        Gamma = mode.Gamma
    if not found:
        raise ValueError(f"expected a mode under one of {len(priors)} priors, got none")
    posteriors = tuple(reversed(found))
    bounds = torch.tensor([q.evidence_bound for q in posteriors], dtype=torch.float64)
    values = [as_number(q.prior.kernel.a) for q in posteriors]
    return SmoothnessAverage(
        smoothness=torch.tensor(values, dtype=torch.float64),
        bounds=bounds,
        weights=torch.softmax(bounds, dim=0),
        posteriors=posteriors,
    )
