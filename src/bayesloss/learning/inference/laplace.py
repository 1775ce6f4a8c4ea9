r"""Laplace's approximation to the posterior over sources (W&N section 4.1 and appendix D).

Newton's method finds a mode of the log joint density of the data and Gamma = (w, nu_0). The Hessian
there, eq. (11), gives the Gaussian q(Gamma | D) with covariance H^-1, and mode and Hessian give the
approximate evidence of appendix D.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.learning.inference.likelihoods import Likelihood
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import Mode, find_mode
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.warnings import warn_caller

__all__ = [
    "LogDensity",
    "LogJoint",
    "Mode",
    "Posterior",
    "approximate",
    "check_data",
    "find_mode",
    "laplace",
]

_EXACT = 1e-18  # nats still to gain: the mode is known to half the digits that floating point has
_CLOSE = 1e-10  # nats still to gain at a mode that rounding errors keep from becoming exact


class Beforehand(Protocol):
    """What a density asks of a prior: that parameters are independent and normal."""

    @property
    def location(self) -> Tensor:
        """The means, (D,)."""

    @property
    def precision(self) -> Tensor:
        """The inverse variances, (D,)."""

    @property
    def n_twins(self) -> int:
        """2 where w and -w are one model."""


class LogDensity(ABC):
    """The log joint density log p(D, Gamma) as a function of Gamma, with its derivatives."""

    prior: Beforehand

    @abstractmethod
    def log_likelihood(self, Gamma: Tensor) -> Tensor:
        """The log density log p(D | Gamma), as a scalar."""

    @abstractmethod
    def derivatives(self, Gamma: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient in Gamma, and H of eq. (11): minus the second derivative."""

    def __call__(self, Gamma: Tensor) -> Tensor:
        """The log density, all constants included, as a scalar."""
        precision = self.prior.precision
        log_prior = torch.log(precision / (2 * math.pi))
        log_prior = log_prior - precision * (Gamma - self.prior.location) ** 2  # definition 2
        return self.log_likelihood(Gamma) + 0.5 * log_prior.sum()

    def gradient(self, Gamma: Tensor) -> Tensor:
        """The derivative with respect to Gamma, of shape (M + 1,)."""
        return self.derivatives(Gamma)[0]

    def hessian(self, Gamma: Tensor) -> Tensor:
        """The matrix H of eq. (11): minus the second derivative, of shape (M + 1, M + 1)."""
        return self.derivatives(Gamma)[1]

    def curvature(self, Gamma: Tensor) -> Tensor:
        """The Hessian in units of the prior's standard deviations; the prior alone gives 1."""
        scale = self.prior.precision.rsqrt()
        return scale[:, None] * self.hessian(Gamma) * scale

    def root(self, Gamma: Tensor, curvature: Tensor | None = None) -> Tensor:
        """A matrix R with R R^T = H^-1, from the curvature: H may be ill-conditioned."""
        factor = torch.linalg.cholesky(self.curvature(Gamma) if curvature is None else curvature)
        identity = torch.eye(len(Gamma), dtype=Gamma.dtype, device=Gamma.device)
        inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
        return self.prior.precision.rsqrt()[:, None] * inverse.T

    def log_evidence(self, Gamma: Tensor, curvature: Tensor | None = None) -> Tensor:
        """Laplace's approximation to log p(D) with the mode at Gamma, as a scalar in nats.

        Appendix D, with the constants that it leaves out: the Gaussian's (M + 1)/2 log(2 pi), and
        the twin mode's share.
        """
        curvature = self.curvature(Gamma) if curvature is None else curvature
        log_det = torch.logdet(curvature) + torch.log(self.prior.precision / (2 * math.pi)).sum()
        return self(Gamma) - 0.5 * log_det + self._twin(Gamma, curvature)  # appendix D

    def _twin(self, Gamma: Tensor, curvature: Tensor) -> Tensor:
        """What the mode at -w adds to the entropy of q: log 2, less where the two overlap.

        The twins differ in the sign of w. Already their marginals of w, Gaussians at w and -w with
        one covariance S, tell which of the two a draw is from, and the entropy of the mixture
        exceeds theirs by at least log 2 - log(1 + exp(-w^T S^-1 w / 2)): Kolchinsky and Tracey's
        (2017) bound, with the Bhattacharyya distance. S^-1 is the Schur complement of nu_0.
        """
        if self.prior.n_twins == 1:
            return Gamma.new_zeros(())
        w = Gamma[:-1] * self.prior.precision[:-1].sqrt()
        cross, corner = curvature[:-1, -1], curvature[-1, -1]
        distance = 0.5 * (w @ curvature[:-1, :-1] @ w - (w @ cross) ** 2 / corner)
        return math.log(2) - torch.nn.functional.softplus(-distance)  # Kolchinsky and Tracey (2017)


@dataclass(frozen=True)
class LogJoint(LogDensity):
    """The log joint density under a source and a likelihood."""

    prior: SourcePrior
    likelihood: Likelihood
    data: Observations

    def log_likelihood(self, Gamma: Tensor) -> Tensor:
        """The log density log p(D | Gamma), as a scalar."""
        nu = self.data.features @ self.prior.coefficients(Gamma)
        return self.likelihood.log_density(nu, self.data)

    def derivatives(self, Gamma: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient and H together.

        nu = features u(Gamma). With J = du/dGamma, and l' and l'' the derivatives of the log
        likelihood at each datum,

            H = precision - (features J)^T l'' (features J) - (features^T l') . d^2u/dGamma^2.
        """
        nu = self.data.features @ self.prior.coefficients(Gamma)
        first, second = self.likelihood.derivatives(nu, self.data)
        jacobian, pull = self.prior.jacobian(Gamma), self.data.features.T @ first
        slopes, bend = self.data.features @ jacobian, self.prior.curvature(pull)
        precision = self.prior.precision
        gradient = jacobian.T @ pull - precision * (Gamma - self.prior.location)
        # eq. (11)
        return gradient, torch.diag(precision) - slopes.T @ (second[:, None] * slopes) - bend

    def evidence_bound(self, Gamma: Tensor) -> Tensor:
        """A lower bound on log p(D), as a scalar in nats: E_q[log p(D, Gamma)] + the entropy of q.

        q is Laplace's Gaussian with the mode at Gamma, mixed with its twin at -w where the prior
        has one. Under the Gaussian likelihood the expectation is exact, because nu is quadratic in
        Gamma; under the Bernoulli likelihood with the log loss it is bounded from below. NaN for a
        likelihood without either.
        """
        prior, curvature, root = self.prior, self.curvature(Gamma), self.root(Gamma)
        mean = self.data.features @ prior.mean_coefficients(Gamma, root)
        variance = _variances(prior, Gamma, root, self.data.features)
        fit = self.likelihood.expected_log_density(mean, variance, self.data)
        if fit is None:
            return Gamma.new_tensor(math.nan)
        # The divergence of q from the prior, in units of the prior's standard deviations.
        spread = prior.precision * ((Gamma - prior.location) ** 2 + (root**2).sum(dim=1))
        divergence = 0.5 * ((spread - 1).sum() + torch.logdet(curvature))
        return fit - divergence + self._twin(Gamma, curvature)


@dataclass(frozen=True)
class Mode:
    """Where Newton's method ended.

    Attributes
    ----------
    Gamma : Tensor of shape (M + 1,)
    least_curvature : float
        The smallest eigenvalue of the Hessian in units of the prior precision.
    converged : bool
    n_iter : int
    curvature : Tensor of shape (M + 1, M + 1), optional
        That Hessian, where it is known already.
    """

    Gamma: Tensor
    least_curvature: float
    converged: bool
    n_iter: int
    curvature: Tensor | None = None


@dataclass(frozen=True)
class Posterior:
    """A Gaussian approximation to the posterior of Gamma, and what it says of nu.

    Attributes
    ----------
    prior : SourcePrior
    likelihood : Likelihood
    mode : Tensor of shape (M + 1,)
        The weights w, then nu_0.
    root : Tensor of shape (M + 1, M + 1)
        A square root of the covariance: Gamma = mode + root @ standard normal.
    log_evidence : float
        Laplace's approximation to log p(D), all constants included, in nats.
    evidence_bound : float
        A lower bound on log p(D) by the same Gaussian. The nearer the two, the better the Gaussian.
    least_curvature : float
        The smallest eigenvalue of the Hessian in units of the prior precision. The prior alone
        gives 1; near zero the Gaussian is no approximation.
    converged : bool
    n_iter : int
        Newton steps taken.
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
        """The inverse of the Hessian (11) at the mode, of shape (M + 1, M + 1)."""
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
        parts = [
            (features @ mean, ((features @ covariance) * features).sum(dim=1))
            for features in self.prior.feature_blocks(x)
        ]
        means, variances = zip(*parts, strict=True)
        # Where the variance is zero to rounding error, the rounding may fall below zero.
        return torch.cat(means), torch.cat(variances).clamp_min(0)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n independent Gamma from the approximate posterior, of shape (n, M + 1)."""
        noise = torch.randn((n, len(self.mode)), dtype=torch.float64, generator=generator)
        return self.mode + noise.to(self.mode.device) @ self.root.T  # q(Gamma | D), section 4.1


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
    """Approximate the posterior of Gamma by a Gaussian at a mode.

    Parameters
    ----------
    prior : SourcePrior
    likelihood : Likelihood
    x, y : Tensor of shape (n,)
    sample_weight : Tensor of shape (n,), optional
        How many times each datum counts; positive.
    start : Tensor of shape (M + 1,), optional
        Where Newton's method begins; by default near the prior mean of nu.
    max_iter : int, default=200
        The largest number of Newton steps.

    Returns
    -------
    Posterior

    Raises
    ------
    ValueError
        If x and y are not one-dimensional, of one length, and finite, or a weight is not positive.

    Warns
    -----
    ConvergenceWarning
        If Newton's method did not reach a mode.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import ISGP, Gaussian, TrigonometricKernel, laplace
    >>> x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    >>> y = x**3 + 0.1 * torch.sin(50 * x)
    >>> prior = ISGP(TrigonometricKernel(a=1.2, c=0.25, n_basis=16))
    >>> posterior = laplace(prior, Gaussian(alpha=200.0), x, y)
    >>> at = torch.tensor([-0.8, 0.5, 0.8], dtype=torch.float64)
    >>> posterior.mean(at).round(decimals=1).tolist()
    [-0.5, 0.1, 0.5]
    >>> bool((posterior.variance(at).sqrt() < 0.1).all())
    True
    """
    x, y, sample_weight = check_data(x, y, sample_weight)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y, sample_weight))
    mode = find_mode(joint, prior.start(x) if start is None else start, max_iter=max_iter)
    if not mode.converged:
        warn_caller(
            f"Newton's method reached no mode in {mode.n_iter} steps (least curvature "
            f"{mode.least_curvature:.3g}); raise max_iter or begin elsewhere",
            ConvergenceWarning,
        )
    return approximate(joint, mode)


def find_mode(
    joint: LogDensity, start: Tensor, *, max_iter: int = 200, exact: float = _EXACT
) -> Mode:
    """Climb to a mode of the log joint density by Newton's method.

    Steps are measured in the prior's standard deviations. Where the Hessian is not positive
    definite, the absolute values of its eigenvalues lead away from saddle points; on one, its
    lowest eigenvector does. A backtracking line search makes every step an ascent. Converged means
    that the Hessian is positive definite and the next step would gain less than ``exact``, 1e-18
    nats (1e-10, or 1e-14 of the log density, where rounding errors allow no better).
    """
    scale = joint.prior.precision.rsqrt()
    Gamma, value, n_iter = start, joint(start), 0
    while True:
        gradient, hessian = joint.derivatives(Gamma)
        slope, curvature = scale * gradient, scale[:, None] * hessian * scale
        factor, indefinite = torch.linalg.cholesky_ex(curvature)
        step = _saddle_free_step(curvature, slope) if indefinite else _solve(factor, slope)
        gain = 0.5 * float(slope @ step)
        if gain < exact and indefinite:
            step, gain = _off_the_saddle(curvature)
        if gain < exact or n_iter == max_iter:
            break
        moved = _ascend(joint, Gamma, scale * step, value, gain)
        if moved is None:
            break
        Gamma, value = moved
        n_iter += 1
    return Mode(
        Gamma=Gamma,
        least_curvature=float(torch.linalg.eigvalsh(curvature)[0]),
        converged=not indefinite and gain < max(exact, _CLOSE, 1e-14 * abs(float(value))),
        n_iter=n_iter,
        curvature=curvature,
    )


def approximate(joint: LogJoint, mode: Mode, *, with_bound: bool = True) -> Posterior:
    """The Gaussian approximation at a mode; its bound on the evidence costs more than all the rest.

    Without the bound, that is NaN. At a saddle there is no Gaussian: a ValueError.
    """
    if mode.least_curvature <= 0:
        raise ValueError(
            "expected a mode, where the Hessian is positive definite, got a least curvature of "
            f"{mode.least_curvature:.3g}: the search ended at a saddle point; begin elsewhere"
        )
    return Posterior(
        prior=joint.prior,
        likelihood=joint.likelihood,
        mode=mode.Gamma,
        root=joint.root(mode.Gamma, mode.curvature),
        log_evidence=float(joint.log_evidence(mode.Gamma, mode.curvature)),
        evidence_bound=float(joint.evidence_bound(mode.Gamma)) if with_bound else math.nan,
        least_curvature=mode.least_curvature,
        converged=mode.converged,
        n_iter=mode.n_iter,
    )


def check_data(
    x: Tensor, y: Tensor, sample_weight: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The data in float64, whatever type they came in; a ValueError where they are no data."""
    if x.ndim != 1 or y.shape != x.shape or len(x) == 0:
        raise ValueError(
            f"expected x and y of one shape (n,) with n > 0, got {tuple(x.shape)} and "
            f"{tuple(y.shape)}"
        )
    for name, values in (("x", x), ("y", y)):
        bad = int((~torch.isfinite(values)).sum())
        if bad:
            raise ValueError(f"expected finite {name}, got {bad} NaN or infinite of {len(values)}")
    x, y = x.to(torch.float64), y.to(torch.float64)
    if sample_weight is None:
        return x, y, None
    if sample_weight.shape != x.shape:
        raise ValueError(
            f"expected sample_weight of shape {tuple(x.shape)}, got {tuple(sample_weight.shape)}"
        )
    good = (sample_weight > 0) & torch.isfinite(sample_weight)
    if not good.all():
        raise ValueError(
            "expected sample_weight positive and finite, got "
            f"{int((~good).sum())} of {len(x)} that are not"
        )
    return x, y, sample_weight.to(torch.float64)


def _covariance(prior: SourcePrior, location: Tensor, root: Tensor, like: Tensor) -> Tensor:
    """The covariance of the coefficients, of shape (F, F); ``like`` has the shape (F,)."""
    units = torch.eye(len(like), dtype=like.dtype, device=like.device)
    fluctuations = prior.fluctuations(location, root, units)
    return fluctuations @ fluctuations.T  # [MP92, section 3.2b]


def _variances(prior: SourcePrior, location: Tensor, root: Tensor, rows: Tensor) -> Tensor:
    """The variances of ``rows @ coefficients``: through their covariance where rows are many."""
    if len(rows) <= rows.shape[1]:
        return (prior.fluctuations(location, root, rows) ** 2).sum(dim=1)
    return ((rows @ _covariance(prior, location, root, rows[0])) * rows).sum(dim=1).clamp_min(0)


def _solve(factor: Tensor, slope: Tensor) -> Tensor:
    return torch.cholesky_solve(slope[:, None], factor)[:, 0]


def _saddle_free_step(curvature: Tensor, slope: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(curvature)
    return vectors @ ((vectors.T @ slope) / values.abs().clamp_min(1e-3))


def _off_the_saddle(curvature: Tensor) -> tuple[Tensor, float]:
    """A step along the lowest eigenvector, where the gradient is zero, and what it should gain."""
    values, vectors = torch.linalg.eigh(curvature)
    return vectors[:, 0], -0.5 * float(values[0])


def _ascend(
    joint: LogDensity, Gamma: Tensor, step: Tensor, value: Tensor, gain: float
) -> tuple[Tensor, Tensor] | None:
    """Halve the step until the log joint rises by a fair part of what Newton's model promises."""
    fraction, rounding = 1.0, 1e-14 * abs(float(value))
    # What rounding errors hide from a full step, no smaller one finds.
    least = 1.0 if gain < _CLOSE else 1e-10
    while fraction >= least:
        moved = Gamma + fraction * step
        new_value = joint(moved)
        if new_value >= value + 1e-4 * fraction * gain - rounding:
            return moved, new_value
        fraction /= 2
    return None
