"""Draws of a Gaussian posterior, weighted to the exact one: evidence and averages.

For K draws Gamma_k of a Gaussian q, or of its even mixture with its mirror image at -w where the
prior has twins, the ratios

    r_k = p(D, Gamma_k) / q(Gamma_k)

have the evidence as their expectation. The logarithm of their mean is too low on average, by less
with every draw (Burda, Grosse and Salakhutdinov 2016, theorem 1): by KL(q || posterior) for one, as
q's bound is, and by Var(r) / (2 K E(r)^2) nats for many. Scaled to sum to one they weight draws for
averages over the exact posterior; no draw reveals a mode where q has no mass.
"""

import math
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.threads import one_thread


@dataclass(frozen=True)
class WeightedDraws:
    """Draws of Gamma from a Gaussian posterior, with importance weights.

    Attributes
    ----------
    Gamma, log_ratios : Tensor of shape (K, D), (K,)
        The draws, and log p(D, Gamma_k) - log q(Gamma_k) in nats.
    """

    Gamma: Tensor = field(repr=False)
    log_ratios: Tensor = field(repr=False)

    @property
    def log_evidence(self) -> float:
        """The log of the mean ratio, in nats: on average below the log evidence."""
        return float(torch.logsumexp(self.log_ratios, dim=0)) - math.log(len(self.log_ratios))

    @property
    def error(self) -> float:
        """The standard error of ``log_evidence`` in nats; too small where few draws dominate."""
        relative = len(self.weights) * self.weights
        return float(relative.std()) / math.sqrt(len(relative))

    @property
    def weights(self) -> Tensor:
        """Of shape (K,); they sum to 1."""
        return torch.softmax(self.log_ratios, dim=0)

    @property
    def effective_size(self) -> float:
        """The number of independent draws from the exact posterior that would be worth as much."""
        return float(1 / (self.weights**2).sum())


@one_thread()
def weigh_draws(
    posterior: Posterior,
    x: Tensor,
    y: Tensor,
    *,
    sample_weight: Tensor | None = None,
    n_draws: int = 1024,
    generator: torch.Generator | None = None,
) -> WeightedDraws:
    """Draw from a Gaussian posterior, and weight the draws by the exact one.

    Parameters
    ----------
    posterior : Posterior
        By ``laplace`` or ``variational``.
    x, y, sample_weight
        Its data, as for :func:`~bayesloss.learning.inference.laplace.laplace`.
    n_draws : int, default=1024
    generator : torch.Generator, optional
        By default PyTorch's own.

    Raises
    ------
    ValueError
        As for ``laplace``; or if ``n_draws`` is less than 2.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import ISGP, Gaussian, TrigonometricKernel, variational, weigh_draws
    >>> x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    >>> prior = ISGP(TrigonometricKernel(a=1.2, c=0.25, n_basis=16))
    >>> posterior = variational(prior, Gaussian(200.0), x, x**3)
    >>> draws = weigh_draws(posterior, x, x**3, generator=torch.Generator().manual_seed(0))
    >>> draws.log_evidence > posterior.log_evidence, draws.error < 0.2
    (True, True)
    """
    if n_draws < 2:
        raise ValueError(f"expected n_draws of at least 2, got {n_draws}")
    joint = LogJoint.of(posterior.prior, posterior.likelihood, x, y, sample_weight)
    mode = posterior.mode
    noise = torch.randn((n_draws, len(mode)), dtype=torch.float64, generator=generator).to(mode)
    Gamma = mode + noise @ posterior.root.T
    return WeightedDraws(Gamma=Gamma, log_ratios=log_ratios(joint, posterior, noise))


def log_ratios(
    joint: LogJoint, posterior: Posterior, noise: Float[Tensor, "k p"]
) -> Float[Tensor, " k"]:
    """The log p(D, Gamma_k) - log q(Gamma_k) at Gamma_k = mode + root noise_k."""
    mode = posterior.mode
    root = posterior.root
    prior = joint.prior
    Gamma = mode + noise @ root.T
    nu = prior.coefficients(Gamma) @ joint.data.features.T
    # The constant (2 pi)^(-D/2) is the same in the prior's density and in q's, and cancels.
    squares = (Gamma - prior.location) ** 2 @ prior.precision
    log_det = prior.precision.log().sum()
    log_joint = joint.likelihood.log_density(nu, joint.data) - 0.5 * (squares - log_det)
    log_q = [-0.5 * (noise**2).sum(dim=1)]
    if prior.n_twins == 2:
        mirrored = torch.cat([-Gamma[:, :-1], Gamma[:, -1:]], dim=1) - mode
        log_q.append(-0.5 * (torch.linalg.solve(root, mirrored.T) ** 2).sum(dim=0))
    log_mixture = torch.logsumexp(torch.stack(log_q), dim=0) - math.log(len(log_q))
    return log_joint - log_mixture + torch.linalg.slogdet(root).logabsdet
