"""Means of a Gaussian q with few non-zero entries (LHG section 4.1, appendix 7.2).

On a support S of k training points there are two of interest: the one that minimises the KL
divergence, which needs no solve with the N x N kernel matrix, and the one that minimises the loss
divergence, which needs the posterior mean of the process at the test inputs. What supplies that is
left to the caller: an exact solve, conjugate gradients, or the KL solution on a larger support.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse.linalg import cg
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.gp_regression import GPRegression, checked_points

__all__ = ["SolvedMean", "mean_by_cg", "on_all", "sparse_mean_calibrated", "sparse_mean_kl"]

# Directions of K_SS with less than this part of the largest eigenvalue are left out. Rounding errs
# by 1e-16 of the largest, so those that stay are known to four digits or more.
_RANK = 1e-12


@dataclass(frozen=True)
class SolvedMean:
    """The posterior mean by conjugate gradients.

    Attributes
    ----------
    mean : Tensor of shape (N,)
    residual : float
        The norm of (K + sigma^2 I) mean - y, as a part of the norm of y.
    n_iter : int
        Products of K with a vector.
    converged : bool
    """

    mean: Tensor
    residual: float
    n_iter: int
    converged: bool


def sparse_mean_kl(model: GPRegression, support: Sequence[int]) -> Tensor:
    r"""The mean on a support that minimises the KL divergence, LHG eq. (34).

    Up to constants the KL divergence is
    :math:`(\lVert y - K_{DS} m\rVert^2 + \sigma^2 m^T K_{SS}\, m) / (2 \sigma^2)`. It is minimised
    as a least-squares problem in functions that are orthonormal under the kernel, in
    O(k^3 + N k^2) like the printed form, but without its condition number.

    Parameters
    ----------
    model : GPRegression
    support : sequence of int
        Distinct indices of training points.

    Returns
    -------
    Tensor of shape (k,)
    """
    basis = _basis(model, support)
    return basis @ _least_squares(*_kl_rows(model, support, basis))  # LHG eq. (34)


def sparse_mean_calibrated(
    model: GPRegression,
    support: Sequence[int],
    points: Tensor,
    weights: Tensor | None = None,
    *,
    target: Tensor | None = None,
    kl_weight: float = 0.0,
) -> Tensor:
    r"""The mean on a support that minimises d_L, or d_L + kl_weight KL, LHG appendix 7.2.

    It is the least-squares fit of the posterior mean at the test points by kernels on S, in
    O(k^3 + m k^2) once the target is known. Where several minimise, it is the one whose decision is
    smoothest, that is, of the least norm under the kernel.

    Parameters
    ----------
    model : GPRegression
    support : sequence of int
        Distinct indices of training points.
    points, weights : Tensor
        The test distribution, as for :meth:`GPRegression.loss_matrix`.
    target : Tensor of shape (m,), optional
        The posterior mean of f at the points, or what is to stand for it; by default the exact one,
        in O(N^3).
    kl_weight : float
        Not negative. Few samples of the test distribution leave d_L flat in some directions; there
        a little of the KL divergence decides.

    Returns
    -------
    Tensor of shape (k,)

    Raises
    ------
    ValueError
        If shapes do not fit, values are not finite, or an index is not one of a training point.
    """
    if not 0 <= kl_weight < math.inf:
        raise ValueError(f"expected a finite kl_weight >= 0, got {kl_weight}")
    root = checked_points(points, weights).sqrt()
    if target is None:
        target = model.action(points, model.mean)
    if target.shape != points.shape[:1] or not bool(torch.isfinite(target).all()):
        raise ValueError(
            f"expected a finite target of shape ({len(points)},), got shape {tuple(target.shape)}"
            + ("" if target.shape != points.shape[:1] else " with values that are not finite")
        )
    basis = _basis(model, support)
    rows = root[:, None] * model.kernel(points, model.x[model.indices_of(support)]) @ basis
    right = root * target
    if kl_weight:
        more, values = _kl_rows(model, support, basis)
        scale = math.sqrt(kl_weight / (2 * model.noise_variance))
        rows, right = torch.cat([rows, scale * more]), torch.cat([right, scale * values])
    return basis @ _least_squares(rows, right)  # LHG appendix 7.2


def on_all(model: GPRegression, support: Sequence[int], mean: Tensor) -> Tensor:
    """A sparse mean with its zeros, of shape (N,)."""
    whole = torch.zeros(len(model.y), dtype=torch.float64)
    whole[model.indices_of(support)] = mean
    return whole


def mean_by_cg(
    model: GPRegression, *, rtol: float = 1e-6, max_iter: int | None = None
) -> SolvedMean:
    """The posterior mean by conjugate gradients, in O(N^2) an iteration.

    Parameters
    ----------
    model : GPRegression
    rtol : float
        The residual to be reached, as a part of the norm of y.
    max_iter : int, optional
        By default 10 N. Warns if the residual is not reached in as many.
    """
    operator, y = model.K.numpy().copy(), model.y.numpy()
    operator[np.diag_indices_from(operator)] += model.noise_variance  # LHG appendix 7.2
    steps: list[None] = []
    found, failed = cg(
        operator, y, rtol=rtol, atol=0.0, maxiter=max_iter, callback=lambda _: steps.append(None)
    )
    size = float(np.linalg.norm(y))
    residual = float(np.linalg.norm(operator @ found - y)) / size if size else 0.0
    if failed:
        warnings.warn(
            f"expected a residual of {rtol:.1e}, got {residual:.1e} after {len(steps)} iterations "
            "of conjugate gradients",
            ConvergenceWarning,
            stacklevel=2,
        )
    return SolvedMean(torch.from_numpy(found), residual, len(steps), not failed)


def _basis(model: GPRegression, support: Sequence[int]) -> Tensor:
    """Coefficients of orthonormal functions that the kernels on S span, of shape (k, r).

    Orthonormal in the kernel's own inner product, so that a penalty m^T K_SS m becomes the squared
    length of the coefficients. Computed from K_SS and m it would lose all digits once supports are
    close: m is then large, and tiny eigenvalues are known to rounding only. These are left out.
    """
    inputs = model.x[model.indices_of(support)]
    values, vectors = torch.linalg.eigh(model.kernel(inputs, inputs))
    kept = values > _RANK * values[-1]
    return vectors[:, kept] / values[kept].sqrt()


def _kl_rows(model: GPRegression, support: Sequence[int], basis: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix and a vector whose squared distance is 2 sigma^2 KL, up to constants."""
    fit = model.kernel(model.x, model.x[model.indices_of(support)]) @ basis
    penalty = math.sqrt(model.noise_variance) * torch.eye(basis.shape[1], dtype=torch.float64)
    # LHG eq. (22)
    return torch.cat([fit, penalty]), torch.cat([model.y, torch.zeros_like(penalty[0])])


def _least_squares(rows: Tensor, right: Tensor) -> Tensor:
    # gelsd: by singular values, so that a matrix without full rank has a shortest solution.
    return torch.linalg.lstsq(rows, right[:, None], driver="gelsd").solution[:, 0]
