"""Laplace's approximation to the posterior over sources (W&N section 4.1 and appendix D).

Newton's method finds a mode of the log joint density of the data and Gamma, of D numbers. The
Hessian there, eq. (11), gives a Gaussian with covariance H^-1, and the evidence of appendix D.

Few deterministic draws represent it. Let F = U S V^T be the derivative of nu at points x by z, with
Gamma = mode + R z. The first coordinates of V^T z, standard normal too, move nu most, and Sobol's
points are most even in these: 64 give E_q u(nu(x)) as exactly as thousands of random draws.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.inference.likelihoods import Likelihood
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import Mode, find_mode
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.threads import on_one_thread, one_thread
from bayesloss.warnings import warn_unconverged

_POINTS = 64  # at which the derivative of nu is taken: a column each for the default basis


@on_one_thread
@dataclass(frozen=True)
class Posterior:
    """A Gaussian approximation to the posterior of Gamma, and of nu.

    Attributes
    ----------
    prior, likelihood : SourcePrior, Likelihood
    mode, root : Tensor of shape (D,), (D, D)
        The D parameters Gamma of the prior, nu_0 last; and a square root of the covariance, with
        Gamma = mode + root z for standard normal z.
    log_evidence, evidence_bound : float
        Laplace's log p(D) in nats, and a lower bound by the same Gaussian: the nearer, the better.
    least_curvature : float
        The Hessian's least eigenvalue in units of the prior precision: 1 for the prior alone; near
        0 the Gaussian is no approximation.
    converged, n_iter : bool, int
        Whether Newton's method reached a mode, and its steps.
    """

    prior: SourcePrior
    likelihood: Likelihood
    mode: Tensor = field(repr=False)
    root: Tensor = field(repr=False)
    log_evidence: float
    evidence_bound: float
    least_curvature: float
    converged: bool
    n_iter: int

    @property
    def covariance(self) -> Tensor:
        """The inverse of the Hessian (11) at the mode, of shape (D, D)."""
        return self.root @ self.root.T  # section 4.1: H^-1

    def mean(self, x: Tensor) -> Tensor:
        """The posterior mean of nu(x), of shape (n,): lemma 7, with psi(x) for its last Sigma_w."""
        return self.moments(x)[0]

    def variance(self, x: Tensor) -> Tensor:
        """The posterior variance of nu(x), of shape (n,), in squared units of nu."""
        return self.moments(x)[1]

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of nu(x) together, each of shape (n,)."""
        mean = self.prior.mean_coefficients(self.mode, self.root)  # lemma 7, as corrected
        covariance = self.prior.covariance(self.mode, self.root)  # [MP92, section 3.2b]
        means = []
        variances = []
        for h in self.prior.feature_blocks(x):
            means.append(h @ mean)
            variances.append(((h @ covariance) * h).sum(dim=1))
        # Where the variance is zero to rounding error, the rounding may fall below zero.
        return torch.cat(means), torch.cat(variances).clamp_min(0)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n independent Gamma from the approximate posterior, of shape (n, D)."""
        noise = torch.randn((n, len(self.mode)), dtype=torch.float64, generator=generator)
        return self.mode + noise.to(self.mode.device) @ self.root.T  # q(Gamma | D), section 4.1


@one_thread()
def laplace(
    prior: SourcePrior,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    *,
    sample_weight: Tensor | None = None,
    start: Tensor | None = None,
    max_iter: int = 200,
) -> Posterior:
    """Approximate the posterior of Gamma by a Gaussian at a mode: a :class:`Posterior`.

    Parameters
    ----------
    prior, likelihood : SourcePrior, Likelihood
    x, y : Tensor of shape (n,)
    sample_weight : Tensor of shape (n,), optional
        How many times each datum counts; positive.
    start : Tensor of shape (D,), optional
        Where Newton's method begins; by default near the prior mean of nu.
    max_iter : int, default=200
        The most Newton steps; if they reach no mode, there is a ConvergenceWarning.

    Raises
    ------
    ValueError
        If x and y are not one-dimensional, finite and of one length, or a weight is not positive.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import ISGP, Gaussian, TrigonometricKernel, laplace
    >>> x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    >>> prior = ISGP(TrigonometricKernel(a=1.2, c=0.25, n_basis=16))
    >>> laplace(prior, Gaussian(alpha=200.0), x, x**3).mean(x[::13]).round(decimals=1).tolist()
    [-1.0, -0.0, 0.0, 1.0]
    """
    joint = LogJoint.of(prior, likelihood, x, y, sample_weight)
    if start is None:
        start = prior.start(x)
    mode = find_mode(joint, start, max_iter=max_iter)
    if not mode.converged:
        warn_unconverged(
            f"Newton's method reached no mode in {mode.n_iter} steps (least curvature "
            f"{mode.least_curvature:.3g}); raise max_iter or begin elsewhere"
        )
    return approximate(joint, mode)


def approximate(joint: LogJoint, mode: Mode, *, with_bound: bool = True) -> Posterior:
    """The Gaussian at a mode, or a ValueError at a saddle; its bound, or NaN, costs most."""
    if mode.least_curvature <= 0:
        raise ValueError(
            "expected a mode, where the Hessian is positive definite, got a least curvature of "
            f"{mode.least_curvature:.3g}: the search ended at a saddle point; begin elsewhere"
        )
    evidence_bound = math.nan
    if with_bound:
        evidence_bound = float(joint.evidence_bound(mode.Gamma))
    return Posterior(
        prior=joint.prior,
        likelihood=joint.likelihood,
        mode=mode.Gamma,
        root=joint.root(mode.curvature),
        log_evidence=float(joint.log_evidence(mode.Gamma, mode.curvature)),
        evidence_bound=evidence_bound,
        least_curvature=mode.least_curvature,
        converged=mode.converged,
        n_iter=mode.n_iter,
    )


@lru_cache(maxsize=8)
def even_normals(n: int, width: int) -> Float[Tensor, "{n} {width}"]:
    """Standard normal points of low discrepancy; the same at each call."""
    engine = torch.quasirandom.SobolEngine(width, scramble=True, seed=0)
    points = engine.draw(n, dtype=torch.float64)
    least = 2.0**-31  # half of the points' resolution: 0 would be infinite
    return torch.special.ndtri(points.clamp(least, 1 - least))


def ordered_root(posterior: Posterior, low: float, high: float) -> Float[Tensor, "p p"]:
    """A root R V of the covariance; its first columns move nu on [low, high] most, and upwards."""
    prior = posterior.prior
    mode = posterior.mode
    root = posterior.root
    x = torch.linspace(low, high, _POINTS, dtype=mode.dtype)
    slopes = prior.features(x) @ (prior.jacobian(mode) @ root)
    left, _, right = torch.linalg.svd(slopes, full_matrices=True)
    # Each column moves nu upwards where it moves it most.
    largest = left.abs().argmax(dim=0)
    signs = left[largest, torch.arange(len(largest))].sign()
    k = min(len(left), len(right))  # columns of the root that move nu at the points
    right[:k] *= signs[:k, None]
    return root @ right.T
