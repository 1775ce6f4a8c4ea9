r"""Gaussian process classification with a probit likelihood, for many data sets at once.

LHG section 4.2; GPML is Rasmussen and Williams (2006), *Gaussian Processes for Machine Learning*.
The paper's :math:`\theta = K_{DD}^{-1} f_D` does not exist where inputs coincide.
So everything is written in *whitened* weights z with a standard normal prior, :math:`f_D = Az` with
:math:`AA^\top = K_{DD}`, and :math:`\theta = U S^{-1/2} z` with the eigenvectors and eigenvalues
that are not numerically zero. The map is linear, so results, Laplace's too, are those of theta.
For many inputs A is a pivoted Cholesky factor, which takes a tenth of the time. In shapes,
``*m`` are data sets, n training inputs, s new ones, r weights.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpstrf, dtrtri
from torch import Tensor

from bayesloss.kernels import SquaredExponential
from bayesloss.threads import one_thread
from bayesloss.warnings import warn_unconverged

Inference = Literal["ep", "laplace"]

# Directions of the prior whose variance is below this part of the largest are left out, and inputs
# whose variance given the pivots is below this part of k(x, x). What is left out of k(x, x) is of
# the same size, far below the noise variance 1 that it is added to.
_RANK_TOLERANCE = 1e-11
# Inputs beyond which a matrix of theirs is worth care: eigenvectors of 600 take 50 milliseconds and
# of 3,000 eight seconds, a Cholesky factor 3 milliseconds and .3 seconds.
MANY_INPUTS = 500

# Of data sets, maybe: features of n inputs, labels +1 and -1, other numbers a training input, and
# whitened weights.
Features = Float[Tensor, "*m n r"]
Labels = Float[Tensor, "*m n"]
PerInput = Float[Tensor, "*m n"]
Weights = Float[Tensor, "*m r"]


class Moments(NamedTuple):
    """Of values of the latent function."""

    mean: Tensor
    variance: Tensor


class Sites(NamedTuple):
    """Gaussian factors exp(shift f - precision f^2 / 2) of the latent values f, one an input."""

    precision: PerInput
    shift: PerInput

    def select(self, rows: Tensor) -> "Sites":
        """The same for some of the data sets."""
        return Sites(precision=self.precision[rows], shift=self.shift[rows])


class NaturalGaussian(NamedTuple):
    """A Gaussian factor exp(shift . z - z . precision z / 2) of the weights z."""

    precision: Float[Tensor, "*m r r"]
    shift: Weights

    def select(self, rows: Tensor) -> "NaturalGaussian":
        """The same for some of the data sets."""
        return NaturalGaussian(precision=self.precision[rows], shift=self.shift[rows])


def log_likelihood(margin: Tensor) -> Tensor:
    r"""LHG (24): :math:`\log\Phi(m)` of margins m = y f, accurate in both tails."""
    return torch.special.log_ndtr(margin)


def hazard(margin: Tensor) -> Tensor:
    r"""GPML (3.16), the slope :math:`\varphi(m)/\Phi(m)` of :math:`\log\Phi`, also in the tails."""
    # Phi(m) = phi(m) sqrt(pi / 2) erfcx(-m / sqrt 2); erfcx overflows where the ratio underflows.
    return math.sqrt(2 / math.pi) / torch.special.erfcx(-margin / math.sqrt(2))


def curvature(margin: Tensor) -> Tensor:
    r"""Minus the second derivative of :math:`\log\Phi`: h (h + m), between 0 and 1."""
    ratio = hazard(margin)
    # h + m is about -1/m far on the left, where rounding would take over.
    far = margin < -1e4
    safe = torch.where(far, margin, -torch.ones_like(margin))
    near = (ratio * (ratio + margin)).clamp(0.0, 1.0)
    return torch.where(far, 1 - safe**-2, near)


def skewness(margin: Tensor) -> Tensor:
    r"""The third derivative of :math:`\log\Phi`: h ((h + m) (2h + m) - 1)."""
    ratio = hazard(margin)
    # The bracket cancels on the left, where Phi(m) is phi(m) / -m (1 - u + 3 u^2 - 15 u^3 + ...),
    # u = 1 / m^2. The series is the third derivative of this one's logarithm, over that of -log -m,
    # -2 / m^3; it is good to 3e-9 from here on.
    far = margin < -20.0
    safe = torch.where(far, margin, -torch.ones_like(margin))
    u = safe**-2
    series = 1 + u * (-12 + u * (150 + u * (-2072 + u * (31770 - 538692 * u))))
    near = ratio * ((ratio + margin) * (2 * ratio + margin) - 1)
    return torch.where(far, -2 / safe**3 * series, near)


def cavity(mean: PerInput, variance: PerInput, precision: PerInput, shift: PerInput) -> Moments:
    """GPML (3.56): mean and variance of a marginal without its own Gaussian factor."""
    inflation = 1 / (1 - precision * variance)
    return Moments(mean=inflation * (mean - shift * variance), variance=inflation * variance)


@dataclass(frozen=True)
class WhitenedGP:
    """A GP prior at training inputs: f = features z and theta = basis z."""

    kernel: SquaredExponential
    inputs: Float[Tensor, "..."]
    features: Features
    basis: Features

    @classmethod
    def at(cls, kernel: SquaredExponential, inputs: Tensor, *, batch_dims: int = 0) -> "WhitenedGP":
        """Whiten the prior at inputs, whose first ``batch_dims`` dimensions are data sets."""
        K = _gram(kernel, inputs, inputs, batch_dims)
        whiten = _by_eigenvectors if K.shape[-1] <= MANY_INPUTS else _by_pivots
        features, basis = whiten(K)
        return cls(kernel=kernel, inputs=inputs, features=features, basis=basis)

    def project(self, inputs: Tensor) -> tuple[Float[Tensor, "*m s r"], Float[Tensor, "*m s"]]:
        """LHG (24) and (18) with noise variance 1: at new inputs, K_xD basis and sigma_x."""
        batch_dims = self.features.ndim - 2
        features = _gram(self.kernel, inputs, self.inputs, batch_dims) @ self.basis
        variance_given_z = (self.kernel.b - (features**2).sum(-1)).clamp(min=0.0)
        return features, (1 + variance_given_z).sqrt()

    def draw_labels(
        self, z: Float[Tensor, "*m k r"], inputs: Tensor, generator: torch.Generator
    ) -> Bool[Tensor, "*m k s"]:
        """For each z, which of the labels at new inputs, drawn together, are +1."""
        features, _ = self.project(inputs)
        batch_dims = self.features.ndim - 2
        covariance_given_z = _gram(self.kernel, inputs, inputs, batch_dims) - features @ features.mT
        values, vectors = torch.linalg.eigh(covariance_given_z)
        root = vectors * values.clamp(min=0.0).sqrt()[..., None, :]
        shape = (*z.shape[:-1], features.shape[-2])
        normal = torch.randn(shape, dtype=z.dtype, generator=generator)
        noise = torch.randn(shape, dtype=z.dtype, generator=generator)
        return z @ features.mT + normal @ root.mT + noise > 0


@dataclass(frozen=True)
class GaussianWeights:
    """A Gaussian approximation to the posterior of the whitened weights; loss-EM's has no sites."""

    mean: Weights
    covariance: Float[Tensor, "*m r r"]
    log_evidence: Float[Tensor, "*m"]
    converged: Bool[Tensor, "*m"]
    n_iterations: int
    sites: Sites | None = None
    at_inputs: Moments | None = None
    """Of the latent values at the training inputs, where the fit has come by them."""

    def latent(self, features: Features) -> Moments:
        """Mean and variance of features z."""
        return Moments(
            mean=(features @ self.mean[..., None]).squeeze(-1),
            variance=((features @ self.covariance) * features).sum(-1),
        )

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "*m n r"]:
        """Draw n weights of each data set."""
        shape = (*self.mean.shape[:-1], n, self.mean.shape[-1])
        noise = torch.randn(shape, dtype=self.mean.dtype, generator=generator)
        return self.mean[..., None, :] + noise @ torch.linalg.cholesky(self.covariance).mT

    def margin(self, features: Tensor, noise: Tensor) -> Float[Tensor, "*m s"]:
        """The argument of Phi in LHG (25), at new inputs."""
        mean, variance = self.latent(features)
        return mean / (noise**2 + variance).sqrt()

    def label_sites(self) -> Sites:
        """The sites, or a ValueError if there are none."""
        if self.sites is None:
            raise ValueError("expected a Gaussian with sites, as EP and Laplace make them")
        return self.sites

    def held_out(self, features: Features) -> Moments:
        """Mean and variance of f at the training inputs, each without its own label."""
        mean, variance = self.latent(features) if self.at_inputs is None else self.at_inputs
        sites = self.label_sites()
        return cavity(mean, variance, sites.precision, sites.shift)

    def write(self, rows: Int[Tensor, " k"], new: "GaussianWeights") -> None:
        """Overwrite the Gaussians of some data sets, and what is optional if both have it."""
        self.mean[rows] = new.mean
        self.covariance[rows] = new.covariance
        self.log_evidence[rows] = new.log_evidence
        self.converged[rows] = new.converged
        if self.sites is not None and new.sites is not None:
            self.sites.precision[rows] = new.sites.precision
            self.sites.shift[rows] = new.sites.shift
        if self.at_inputs is not None and new.at_inputs is not None:
            self.at_inputs.mean[rows] = new.at_inputs.mean
            self.at_inputs.variance[rows] = new.at_inputs.variance


def warn_if_unsettled(q: GaussianWeights, what: str, trouble: str, cure: str) -> None:
    """Warn of data sets that have not converged, with what may help."""
    unsettled = int((~q.converged).sum())
    broken = int((~q.log_evidence.isfinite()).sum())
    advice = f"use a larger max_iter, or {cure}"
    if broken:
        trouble = f"{trouble}; {broken} have cavities without variance"
        advice = f"use {cure}"
    if unsettled:
        warn_unconverged(
            f"the {what} of {unsettled} of {len(q.mean)} data sets {trouble}: {advice}"
        )


def predictive(q: GaussianWeights, features: Tensor, noise: Tensor) -> Float[Tensor, "*m s"]:
    """LHG (25): the probability of +1 at new inputs under q."""
    return torch.special.ndtr(q.margin(features, noise))


def decide(q: GaussianWeights, features: Features, noise: PerInput, threshold: float) -> Labels:
    """LHG (26): the decisions of least risk under q, +1 or -1."""
    mean, variance = q.latent(features)
    positive = mean > threshold * (noise**2 + variance).sqrt()
    return torch.where(positive, 1.0, -1.0).to(mean.dtype)


def lower_gram(features: Features, weight: PerInput) -> Float[Tensor, "*m r r"]:
    """A' diag(weight) A, right in the lower triangle, which is what a Cholesky factor reads."""
    n, r = features.shape[-2:]
    if r <= MANY_INPUTS:
        return features.mT @ (features * weight[..., None])
    weighted = (features * weight.sqrt()[..., None]).cpu().reshape(-1, n, r)
    grams = [torch.from_numpy(dsyrk(1.0, half.numpy().T, lower=1).T).mT for half in weighted]
    return torch.stack(grams).reshape(*features.shape[:-2], r, r).to(features)


def inverse_of_factor(factor: Float[Tensor, "r r"]) -> Float[Tensor, "r r"]:
    """Of a lower triangular matrix, in a third of the time that a solve takes."""
    with one_thread():  # like inverses of symmetric matrices
        inverse, _ = dtrtri(factor.numpy(), lower=1)
    return torch.from_numpy(inverse)


class _Whitened(NamedTuple):
    """A with AA' = K, and B with KB = A."""

    features: Features
    basis: Features


def _by_eigenvectors(K: Float[Tensor, "*m n n"]) -> _Whitened:
    """U S^(1/2) and U S^(-1/2)."""
    values, vectors = torch.linalg.eigh(K)
    kept = values > _RANK_TOLERANCE * values[..., -1:]
    rank = int(kept.sum(-1).max())
    values = values[..., -rank:]
    vectors = vectors[..., -rank:]
    kept = kept[..., -rank:]
    root = torch.where(kept, values, torch.zeros_like(values)).sqrt()
    inverse = torch.where(kept, 1 / root, torch.zeros_like(root))
    return _Whitened(vectors * root[..., None, :], vectors * inverse[..., None, :])


def _by_pivots(K: Float[Tensor, "*m n n"]) -> _Whitened:
    """The columns of a pivoted Cholesky factor, and its inverse at the pivots."""
    n = K.shape[-1]
    factors = [_pivoted(gram) for gram in K.cpu().reshape(-1, n, n)]
    rank = max(factor.features.shape[1] for factor in factors)
    shape = (*K.shape[:-1], rank)
    features = K.new_zeros((len(factors), n, rank))
    basis = K.new_zeros((len(factors), n, rank))
    for i, factor in enumerate(factors):
        features[i, :, : factor.features.shape[1]] = factor.features
        basis[i, :, : factor.features.shape[1]] = factor.basis
    return _Whitened(features.reshape(shape), basis.reshape(shape))


def _pivoted(K: Float[Tensor, "n n"]) -> _Whitened:
    left_out = _RANK_TOLERANCE * float(K.diagonal().max())
    factor, pivots, rank, _ = dpstrf(K.numpy().T, tol=left_out, lower=1)  # K.T: as Fortran has it
    inverse = inverse_of_factor(torch.from_numpy(factor[:rank, :rank]))
    order = torch.from_numpy(pivots).long() - 1
    transposed = torch.from_numpy(factor.T)[:rank].triu()
    basis = K.new_zeros((len(K), rank))
    basis[order[:rank]] = inverse.mT.triu()
    return _Whitened(features=transposed[:, order.argsort()].mT, basis=basis)


def _gram(kernel: SquaredExponential, x: Tensor, z: Tensor, batch_dims: int) -> Tensor:
    """All k(x, z), for each of the data sets in the first dimensions."""
    gram = kernel.__call__
    for _ in range(batch_dims):
        gram = torch.vmap(gram)
    return gram(x, z)
