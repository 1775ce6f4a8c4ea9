r"""Gaussian process classification with a probit likelihood, for many data sets at once.

LHG section 4.2. The paper's parameter is :math:`\theta = K_{DD}^{-1} f_D`, whose prior covariance
is :math:`K_{DD}^{-1}`. That matrix does not exist where inputs coincide, and hardly where they are
close. So everything is written in *whitened* weights z with a standard normal prior:
:math:`f_D = Az`, :math:`AA^\top = K_{DD}`, and :math:`\theta = U S^{-1/2} z` with the eigenvectors
and eigenvalues that are not numerically zero. All that is computed from z is the same as from
theta; a Laplace approximation, too, for the map is linear.

Leading dimensions, written ``...``, are data sets.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from bayesloss.arrays import as_float64
from bayesloss.kernels import SquaredExponential

__all__ = [
    "GaussianWeights",
    "WhitenedGP",
    "cavity",
    "check_data",
    "check_max_iter",
    "curvature",
    "decide",
    "hazard",
    "log_likelihood",
    "predictive",
    "skewness",
]

# Directions of the prior whose variance is below this part of the largest are left out. What is
# left out of k(x, x) is of the same size, far below the noise variance 1 that it is added to.
_RANK_TOLERANCE = 1e-11
_LARGEST_FEATURE = 1e12


def log_likelihood(margin: Tensor) -> Tensor:
    r"""LHG (24): :math:`\log\Phi(m)` of margins m = y f, accurate in both tails."""
    return torch.special.log_ndtr(margin)


def hazard(margin: Tensor) -> Tensor:
    r"""The derivative of :math:`\log\Phi`: :math:`\varphi(m)/\Phi(m)`, accurate in both tails.

    GPML (3.16), as the curvature.
    """
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
    # The bracket cancels on the left; the asymptotic series is good to 3e-9 from here on.
    far = margin < -20.0
    safe = torch.where(far, margin, -torch.ones_like(margin))
    u = safe**-2
    series = 1 + u * (-12 + u * (150 + u * (-2072 + u * (31770 - 538692 * u))))
    near = ratio * ((ratio + margin) * (2 * ratio + margin) - 1)
    return torch.where(far, -2 / safe**3 * series, near)


def cavity(
    mean: Tensor, variance: Tensor, precision: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """GPML (3.56): mean and variance of a marginal without its own Gaussian factor."""
    left = 1 / (1 - precision * variance)
    return left * (mean - shift * variance), left * variance


def check_data(features: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Features of shape (m, n, r) and labels of shape (m, n), as float64 tensors.

    Raises
    ------
    ValueError
        If the shapes do not fit together, a feature is complex, not finite or huge, or a label is
        neither +1 nor -1.
    """
    features, y = check_real(features, "features"), check_real(y, "y")
    if features.ndim != 3 or features.shape[:2] != y.shape:
        raise ValueError(
            "expected features of shape (m, n, r) and y of shape (m, n), got "
            f"{tuple(features.shape)} and {tuple(y.shape)}"
        )
    # NaN is no number below.
    if not bool((features.abs() <= _LARGEST_FEATURE).all()):
        raise ValueError(
            f"expected finite features up to {_LARGEST_FEATURE:g}, where rounding errors of the "
            f"prior outweigh the probit noise, got {float(features.abs().max()):g}"
        )
    if not bool((y.abs() == 1).all()):
        raise ValueError(f"expected labels +1 or -1, got {float(y[y.abs() != 1][0]):g}")
    return features, y


def check_real(values: ArrayLike | Tensor, name: str) -> Tensor:
    """Numbers as a float64 tensor.

    Raises
    ------
    ValueError
        If they are complex.
    """
    if torch.is_complex(values) if isinstance(values, Tensor) else np.iscomplexobj(values):
        raise ValueError(f"expected real {name}, got complex numbers")
    return as_float64(values)


def check_max_iter(max_iter: int) -> None:
    """Refuse to do nothing.

    Raises
    ------
    ValueError
        If ``max_iter`` is less than 1.
    """
    if max_iter < 1:
        raise ValueError(f"expected max_iter of at least 1, got {max_iter}")


@dataclass(frozen=True)
class WhitenedGP:
    """A GP prior as seen from training inputs: f = features z, z standard normal.

    Attributes
    ----------
    kernel : SquaredExponential
    inputs : Tensor of shape (..., n) or (..., n, D)
    features : Tensor of shape (..., n, r)
        A of the module's docstring; r is the largest rank of the kernel matrices.
    basis : Tensor of shape (..., n, r)
        U S^(-1/2), so that theta = basis z and K_xD theta = K_xD basis z.
    """

    kernel: SquaredExponential
    inputs: Tensor
    features: Tensor
    basis: Tensor

    @classmethod
    def at(cls, kernel: SquaredExponential, inputs: Tensor, *, batch_dims: int = 0) -> "WhitenedGP":
        """Whiten the prior at training inputs.

        Parameters
        ----------
        kernel : SquaredExponential
        inputs : Tensor of shape (..., n) or (..., n, D)
        batch_dims : int, default=0
            How many leading dimensions are data sets.

        Raises
        ------
        ValueError
            If an input is complex or not finite.
        """
        inputs = check_real(inputs, "inputs")
        if not bool(torch.isfinite(inputs).all()):
            raise ValueError("expected finite inputs, got NaN or infinities")
        values, vectors = torch.linalg.eigh(_gram(kernel, inputs, inputs, batch_dims))
        kept = values > _RANK_TOLERANCE * values[..., -1:]
        rank = int(kept.sum(-1).max())
        values, vectors, kept = values[..., -rank:], vectors[..., -rank:], kept[..., -rank:]
        root = torch.where(kept, values, torch.zeros_like(values)).sqrt()
        inverse = torch.where(kept, 1 / root, torch.zeros_like(root))
        return cls(kernel, inputs, vectors * root[..., None, :], vectors * inverse[..., None, :])

    def project(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """LHG (24) and (18) with noise variance 1: what a label at new inputs depends on.

        Parameters
        ----------
        inputs : Tensor of shape (..., s) or (..., s, D)
            With the same data sets as the training inputs.

        Returns
        -------
        features : Tensor of shape (..., s, r)
            K_xD theta = features z.
        noise : Tensor of shape (..., s)
            sigma_x, the standard deviation that is left, at least 1.
        """
        batch_dims = self.features.ndim - 2
        inputs = check_real(inputs, "inputs")
        features = _gram(self.kernel, inputs, self.inputs, batch_dims) @ self.basis
        left = (self.kernel.b - (features**2).sum(-1)).clamp(min=0.0)
        return features, (1 + left).sqrt()


@dataclass(frozen=True)
class GaussianWeights:
    """A Gaussian approximation to the posterior of the whitened weights.

    Attributes
    ----------
    mean : Tensor of shape (..., r)
    covariance : Tensor of shape (..., r, r)
    log_evidence : Tensor of shape (...)
        The approximation's log probability of the labels, in nats; of loss-EM, that of labels and
        utility.
    converged : Tensor of bool, shape (...)
    n_iterations : int
    sites : tuple of two Tensors of shape (..., n), optional
        Precisions and shifts of the Gaussian factors that stand for the labels; loss-EM has none.
    """

    mean: Tensor
    covariance: Tensor
    log_evidence: Tensor
    converged: Tensor
    n_iterations: int
    sites: tuple[Tensor, Tensor] | None = None

    def latent(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of features z, each of shape (..., s)."""
        mean = (features @ self.mean[..., None]).squeeze(-1)
        variance = ((features @ self.covariance) * features).sum(-1)
        return mean, variance

    def label_sites(self) -> tuple[Tensor, Tensor]:
        """The sites of a Gaussian that has them.

        Raises
        ------
        ValueError
            If it was made without.
        """
        if self.sites is None:
            raise ValueError("expected a Gaussian with sites, as EP and Laplace make them")
        return self.sites

    def held_out(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at the training inputs, each without its own label.

        Raises
        ------
        ValueError
            If the Gaussian was made without sites.
        """
        sites = self.label_sites()
        return cavity(*self.latent(features), *sites)


def predictive(q: GaussianWeights, features: Tensor, noise: Tensor) -> Tensor:
    """LHG (25): the probability of +1 at new inputs under q, of shape (..., s)."""
    mean, variance = q.latent(features)
    return torch.special.ndtr(mean / (noise**2 + variance).sqrt())


def decide(q: GaussianWeights, features: Tensor, noise: Tensor, probit_threshold: float) -> Tensor:
    """LHG (26): the decisions of least risk under q, +1 or -1, of shape (..., s)."""
    mean, variance = q.latent(features)
    positive = mean > probit_threshold * (noise**2 + variance).sqrt()
    return torch.where(positive, 1.0, -1.0).to(mean.dtype)


def _gram(kernel: SquaredExponential, x: Tensor, z: Tensor, batch_dims: int) -> Tensor:
    call = kernel.__call__
    for _ in range(batch_dims):
        call = torch.vmap(call)
    return call(x, z)
