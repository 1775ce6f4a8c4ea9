"""Several Gaussians on one mode: how much of the gap to the evidence is the shape of one.

In the metric of the best Gaussian q, Gamma = m + R z, a mixture sum_k pi_k N(a_k, T_k T_k^T) of z
has the bound sum_k pi_k E_k [log p(D, Gamma) - log q_mixture(Gamma)], raised by stochastic
gradients along the few directions in which p / q changes most; elsewhere the mixture is q.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.evidence.importance import log_ratios
from bayesloss.learning.evidence.variational import variational
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.threads import one_thread
from bayesloss_book.problems.source_problems import cells as problems
from bayesloss_book.problems.source_problems import data_set, prior_and_likelihood
from paperledger.stores.results import runs

_FROM = 4000  # draws of q that tell the directions
_APART = 0.3  # standard deviation of the first means
_RATE = 0.01  # of the first steps; then along a half cosine to zero


def directions(
    joint: LogJoint, q: Posterior, generator: torch.Generator
) -> tuple[Float[Tensor, " D"], Float[Tensor, "D D"]]:
    """The mean squared slope of the log ratio along orthonormal directions of z, largest first."""
    z = torch.randn((_FROM, len(q.mode)), dtype=torch.float64, generator=generator)
    (slopes,) = torch.autograd.grad(log_ratios(joint, q, z.requires_grad_()).sum(), z)
    values, vectors = torch.linalg.eigh(slopes.T @ slopes / _FROM)
    return values.flip(0), vectors.flip(1)


class Mixture:
    """K Gaussians of z, with what a search moves: means, logarithms of roots, and weights."""

    def __init__(self, joint: LogJoint, q: Posterior, K: int, d: int, seed: int) -> None:
        self.joint, self.generator = joint, torch.Generator().manual_seed(seed)
        self.slopes, turn = directions(joint, q, self.generator)
        self.mode = q.mode
        self.root = q.root @ turn
        self.d = d
        self.back, self.log_det = torch.linalg.inv(self.root), torch.linalg.slogdet(self.root)[1]
        noise = torch.randn((K, d), dtype=torch.float64, generator=self.generator)
        apart = _APART if K > 1 else 0.0  # one begins as q
        self.free = [apart * noise, noise.new_zeros((K, d, d)), noise.new_zeros(K)]
        for each in self.free:
            each.requires_grad_()

    def ratios(self, n: int) -> tuple[Float[Tensor, " K"], Float[Tensor, "K n"]]:
        """The weights, and log p(D, Gamma) - log q(Gamma) at n draws of each, in mirrored pairs."""
        a, L, weight = self.free
        log_pi = torch.log_softmax(weight, dim=0)
        T = L.tril(-1) + torch.diag_embed(L.diagonal(dim1=1, dim2=2).exp())
        e = torch.randn((n // 2, len(self.mode)), dtype=torch.float64, generator=self.generator)
        e = torch.cat([e, -e])
        inner = a[:, None] + e[:, : self.d] @ T.mT
        z = torch.cat([inner, e[:, self.d :].expand(len(a), -1, -1)], dim=2).flatten(0, 1)
        Gamma = self.mode + z @ self.root.T
        mirrored = torch.cat([-Gamma[:, :-1], Gamma[:, -1:]], dim=1) - self.mode
        log_q = []
        for at in (z, mirrored @ self.back.T):
            off = (at[None, :, : self.d] - a[:, None]).mT
            off = torch.linalg.solve_triangular(T, off, upper=False)
            squares = (off**2).sum(dim=1) + (at[:, self.d :] ** 2).sum(dim=1)
            scale = T.diagonal(dim1=1, dim2=2).log().sum(dim=1)
            log_q.append((log_pi - scale)[:, None] - 0.5 * squares)
        log_mixture = torch.cat(log_q).logsumexp(dim=0) - math.log(2) - self.log_det
        prior = self.joint.prior
        data = self.joint.data
        nu = prior.coefficients(Gamma) @ data.features.T
        # The constants of the normal densities are one, and left out.
        squares = (Gamma - prior.location) ** 2 @ prior.precision - prior.precision.log().sum()
        log_joint = self.joint.likelihood.log_density(nu, data) - 0.5 * squares
        return log_pi.exp(), (log_joint - log_mixture).view(len(a), n)

    def climb(self, n_steps: int, n_draws: int) -> None:
        """Raise the bound."""
        search = torch.optim.Adam(self.free, lr=_RATE, betas=(0.9, 0.99))
        slower = torch.optim.lr_scheduler.CosineAnnealingLR(search, n_steps)
        for _ in range(n_steps):
            search.zero_grad()
            weights, ratios = self.ratios(n_draws)
            (-weights @ ratios.mean(dim=1)).backward()
            search.step()
            slower.step()

    @torch.no_grad()
    def bound(self, n: int) -> tuple[float, float]:
        """The bound in nats by n new draws of each Gaussian, and its standard error."""
        weights, ratios = self.ratios(n)
        # Mirrored draws depend on each other: their means do not.
        pairs = ratios.view(len(weights), 2, -1).mean(dim=1)
        error = weights**2 @ (pairs.var(dim=1) / pairs.shape[1])
        return float(weights @ ratios.mean(dim=1)), math.sqrt(float(error))


@one_thread()
def measure(
    *, task: str, n: int, seed: int, K: int, n_basis: int, d: int, n_steps: int
) -> dict[str, float]:
    """The bound by K Gaussians in nats, its ``error``, and the slopes' share beyond d."""
    prior, likelihood = prior_and_likelihood(task, n_basis)
    x, y = data_set(task, n, seed)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
    mixture = Mixture(joint, variational(prior, likelihood, x, y), K, d, seed)
    mixture.climb(n_steps, 128)
    bound, error = mixture.bound(10_000)
    left_out = float(mixture.slopes[d:].sum() / mixture.slopes.sum())
    return {"bound": bound, "error": error, "left_out": left_out}


def cells() -> list[dict[str, Any]]:
    """The toy problems with 50 labels, by one Gaussian, two and four."""
    some = [each for each in problems() if (each["task"], each["n"]) == ("classification", 50)]
    return [{**each, "K": K} for each in some for K in (1, 2, 4)]


run = runs(measure, cells, "variational_several", n_basis=64, d=8, n_steps=1500)
