r"""Means of a Gaussian q with few non-zero entries (LHG section 4.1, appendix 7.2).

On a support S of k points there are two of interest: the one that minimises the KL divergence,
which needs no solve with the N x N kernel matrix, and the one that minimises the loss divergence,
which needs the posterior mean of the process at the test inputs. What supplies that is left to the
caller: an exact solve, conjugate gradients, or a sparse mean on a larger support.

Where test inputs are known, the support may lie among them. Then most data are far from it, and
the least KL believes them all the same. FITC's mean discounts each by what S cannot explain of it,

.. math:: \sum_n \frac{\sigma^2 (y_n - K_{nS} m)^2}{\sigma^2 + K_{nn} - Q_{nn}}
          + \sigma^2 m^T K_{SS}\, m, \qquad Q_{nn} = K_{nS} K_{SS}^{-1} K_{Sn} ,

at the same order of cost. :func:`sparse_mean_targeted` puts the two together.
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

from bayesloss.optimise import differentiated, minimise
from bayesloss_book.models.gp_regression import GPRegression, checked_points

# Of the prior variance: what a moving support may not do is to use huge coefficients.
_RIDGE = 1e-6

# Directions of K_SS with less than this part of the largest eigenvalue are left out. Rounding errs
# by 1e-16 of the largest, so those that stay are known to four digits or more.
_RANK = 1e-12


@dataclass(frozen=True)
class SolvedMean:
    """The posterior mean by conjugate gradients."""

    mean: Tensor  # (N,)
    residual: float  # the norm of (K + sigma^2 I) mean - y, as a part of the norm of y
    n_iter: int  # products of K with a vector
    converged: bool


def sparse_mean_kl(
    model: GPRegression,
    support: Sequence[int] | Tensor,
    *,
    fitc: bool = False,
    weights: Tensor | None = None,
) -> Tensor:
    r"""The mean on a support that minimises the KL divergence, LHG eq. (34); or FITC's.

    Up to constants the KL divergence is :math:`(\lVert y - K_{DS} m\rVert^2 + \sigma^2 m^T K_{SS}\,
    m) / (2 \sigma^2)`. It is minimised as a least-squares problem in functions that are orthonormal
    under the kernel, in O(k^3 + N k^2) like the printed form, but without its condition number. It
    is the mean of the subset of regressors, of the projected process and of Titsias' variational
    posterior, too. With ``fitc`` each datum is discounted by what the support cannot explain of it
    (Snelson and Ghahramani): no longer the least KL, but better where the support lies among test
    inputs far from most data. With ``weights`` (N,) the data count by them.
    """
    basis = _basis(model, support)
    return basis @ _least_squares(*_kl_rows(model, support, basis, fitc, weights))  # LHG eq. (34)


def sparse_mean_calibrated(
    model: GPRegression,
    support: Sequence[int] | Tensor,
    points: Tensor,
    weights: Tensor | None = None,
    *,
    target: Tensor | None = None,
    kl_weight: float = 0.0,
) -> Tensor:
    r"""The mean on a support that minimises d_L, or d_L + kl_weight KL, LHG appendix 7.2.

    It is the least-squares fit of the target, by default the posterior mean in O(N^3), at the test
    points by kernels on S, in O(k^3 + m k^2). Where several minimise, it is the one whose decision
    is smoothest, that is, of the least norm under the kernel. Few samples of the test distribution
    leave d_L flat in some directions; there a little of the KL divergence decides.
    """
    root = checked_points(points, weights).sqrt()
    if target is None:
        target = model.action(points, model.mean)
    basis = _basis(model, support)
    rows = root[:, None] * model.kernel(points, model.inputs_of(support)) @ basis
    right = root * target
    if kl_weight:
        more, values = _kl_rows(model, support, basis)
        scale = math.sqrt(kl_weight / (2 * model.noise_variance))
        rows = torch.cat([rows, scale * more])
        right = torch.cat([right, scale * values])
    return basis @ _least_squares(rows, right)  # LHG appendix 7.2


def sparse_mean_targeted(
    model: GPRegression,
    points: Tensor,
    weights: Tensor | None = None,
    *,
    k: int,
    oversampling: float = 2.0,
    n_moves: int = 20,
) -> tuple[Tensor, Tensor]:
    """A mean of k functions that is good where predictions are asked for: LHG's open problem.

    First a teacher: FITC's mean on k' = oversampling k of the points, spread among them. Then a fit
    of k functions to the teacher at all points: of its inputs the best k, one by one, moved a few
    steps downhill. No N x N matrix is built, and of the test distribution nothing but the points is
    known: O(N k'^2 + m k'^2), and O(m k^2 + m k D) a step. What the teacher is off by at the points
    bounds what the fit loses. Returns the inputs, a support for :meth:`GPRegression.action`, and
    the mean; fewer than k where fewer say the same. With no moves and an oversampling of 1 it is
    the teacher.
    """
    size = min(len(points), math.ceil(oversampling * k))
    larger = points[spread_support(model, points, size, weights)]
    teacher = sparse_mean_kl(model, larger, fitc=True)
    if oversampling == 1 and not n_moves:
        return larger, teacher
    target = model.action(points, teacher, larger)
    kept = choose_support(model, larger, points, weights, target=target, k=min(k, len(larger)))
    inputs = move_support(model, larger[kept], points, weights, target=target, n_moves=n_moves)
    return inputs, sparse_mean_calibrated(model, inputs, points, weights, target=target)


def spread_support(
    model: GPRegression, candidates: Tensor, k: int, weights: Tensor | None = None
) -> list[int]:
    """Indices of k candidates of which each is the least known, given those before it.

    The pivots of a Cholesky factorisation of the kernel at the candidates, in O(n k^2): the next
    one has the largest prior variance given the others, times its weight. Fewer where rounding
    would hide the next.
    """
    masses = checked_points(candidates, weights)
    n = len(candidates)
    variance = torch.full((n,), float(model.kernel.b), dtype=torch.float64)
    floor = _RANK * float(variance[0])
    rows = torch.empty(0, n, dtype=torch.float64)
    chosen: list[int] = []
    for _ in range(k):
        best = int((masses * variance).argmax())
        if variance[best] <= floor or not masses[best]:
            break
        chosen.append(best)
        new = model.kernel(candidates[best : best + 1], candidates) - rows[:, best] @ rows
        rows = torch.cat([rows, new / variance[best].sqrt()])
        variance = (variance - rows[-1] ** 2).clamp(min=0.0)
    return chosen


def choose_support(
    model: GPRegression,
    candidates: Tensor,
    points: Tensor,
    weights: Tensor | None = None,
    *,
    target: Tensor,
    k: int,
) -> list[int]:
    """Indices of k candidates whose functions fit a target at the points, chosen one by one.

    Orthogonal least squares: the next one is that which lowers the mean squared distance most, once
    all are fitted anew. O(m n k) for n candidates and m points. Fewer where what is left is
    rounding.
    """
    root = checked_points(points, weights).sqrt()
    columns = root[:, None] * model.kernel(points, candidates)
    right = root * target
    size = (columns**2).sum(dim=0)
    floor = _RANK * float(size.max())
    chosen: list[int] = []
    for _ in range(k):
        gain = torch.where(size > floor, (columns.T @ right) ** 2 / size.clamp(min=floor), -1.0)
        best = int(gain.argmax())
        if gain[best] < 0:
            break
        chosen.append(best)
        unit = columns[:, best] / size[best].sqrt()
        columns = columns - torch.outer(unit, unit @ columns)
        size = (columns**2).sum(dim=0)
    return chosen


def move_support(
    model: GPRegression,
    inputs: Tensor,
    points: Tensor,
    weights: Tensor | None = None,
    *,
    target: Tensor,
    n_moves: int = 20,
) -> Tensor:
    """Inputs near given ones whose functions fit a target at the points better.

    Quasi-Newton steps on the logarithm of the mean squared distance, coefficients fitted anew at
    each (Golub and Pereyra's variable projection). The search is short by intent: every step is a
    gain, and the last ones gain little.
    """
    root = checked_points(points, weights).sqrt()
    b = model.kernel.b
    start = model.inputs_of(inputs)
    eye = torch.eye(len(inputs), dtype=torch.float64)
    right = root * target
    size = right @ right
    if not n_moves or not size:
        return start

    def distance(flat: Tensor) -> Tensor:
        """The logarithm of the part of the target that is left."""
        places = flat.reshape(start.shape)
        K = model.kernel(places, places) + 1e-8 * b * eye
        rows = root[:, None] * model.kernel(points, places)
        unit, _ = torch.linalg.qr(torch.cat([rows, torch.linalg.cholesky(_RIDGE * b * K).T]))
        left = 1 - ((unit[: len(points)].T @ right) ** 2).sum() / size
        return left.clamp(min=1e-14).log()

    found = minimise(differentiated(distance), start.flatten(), options={"maxiter": n_moves})
    return torch.from_numpy(found.x.reshape(start.shape))


def on_all(model: GPRegression, support: Sequence[int], mean: Tensor) -> Tensor:
    """A sparse mean with its zeros, of shape (N,)."""
    whole = torch.zeros(len(model.y), dtype=torch.float64)
    whole[model.indices_of(support)] = mean
    return whole


def mean_by_cg(
    model: GPRegression, *, rtol: float = 1e-6, max_iter: int | None = None
) -> SolvedMean:
    """The posterior mean by conjugate gradients, in O(N^2) an iteration, 10 N at most by default.

    The residual to be reached is ``rtol`` of the norm of y; warns where it is not.
    """
    operator = model.K.numpy().copy()
    y = model.y.numpy()
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


def _basis(model: GPRegression, support: Sequence[int] | Tensor) -> Tensor:
    """Coefficients of orthonormal functions that the kernels on S span, of shape (k, r).

    Orthonormal in the kernel's own inner product, so that a penalty m^T K_SS m becomes the squared
    length of the coefficients. Computed from K_SS and m it would lose all digits once supports are
    close: m is then large, and tiny eigenvalues are known to rounding only. These are left out.
    """
    inputs = model.inputs_of(support)
    values, vectors = torch.linalg.eigh(model.kernel(inputs, inputs))
    kept = values > _RANK * values[-1]
    return vectors[:, kept] / values[kept].sqrt()


def _kl_rows(
    model: GPRegression,
    support: Sequence[int] | Tensor,
    basis: Tensor,
    fitc: bool = False,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A matrix and a vector whose squared distance is 2 sigma^2 KL, up to constants; or FITC's."""
    fit = model.kernel(model.x, model.inputs_of(support)) @ basis
    y = model.y
    if fitc:
        unexplained = (model.kernel.b - (fit**2).sum(dim=1)).clamp(min=0.0)  # K_nn - Q_nn
        root = (1 + unexplained / model.noise_variance).rsqrt()
        fit = root[:, None] * fit
        y = root * y
    if weights is not None:
        fit = weights.sqrt()[:, None] * fit
        y = weights.sqrt() * y
    penalty = math.sqrt(model.noise_variance) * torch.eye(basis.shape[1], dtype=torch.float64)
    # LHG eq. (22)
    return torch.cat([fit, penalty]), torch.cat([y, torch.zeros_like(penalty[0])])


def _least_squares(rows: Tensor, right: Tensor) -> Tensor:
    # gelsd: by singular values, so that a matrix without full rank has a shortest solution.
    return torch.linalg.lstsq(rows, right[:, None], driver="gelsd").solution[:, 0]
