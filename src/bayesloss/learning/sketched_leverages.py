r"""Leverages where columns are too many for a matrix with a row for each.

With c the centre, d_n the data's weighted curvatures and r the penalty,

    h_n = (z_n - c) . H^-1 (z_n - c),   H = A^T A,   A = [D^1/2 (Z - 1 c^T); r^1/2 I].

Let q_1, ..., q_S be vectors of random signs over S^1/2, one a row of A. Since the mean of q q^T is
a multiple of the identity, the x_s that solve

    H x_s = A^T q_s,   s = 1, ..., S,

have sum_s ((z_n - c) . x_s)^2 = h_n on average, with a relative standard error of (2 / S)^1/2.
Conjugate gradients find all x_s together: two products with what is stored an iteration.

Few vectors are a rough sketch. But there are many rows, and a formula that is nearly right,

    g_n = sum_j (z_nj - c_j)^2 / H_jj,

h_n if columns are orthogonal. The mean of the sketch's ratio to it, as a polynomial in log g_n,
corrects its bias. What is left of the spread of that ratio, beyond the sketch's own, says how much
the formula still misses in a single row, tau; and each row's leverage is the mean of formula and
sketch with the precisions 1 / tau^2 and S / 2: as good as the better of the two, but for the error
of the mean ratio, which all rows share. Where documents have a few topics, and words with them, the
formula is off by 10 per cent at r = 1 and by 27 at r = 0.1. Leverages then are off by 8 and 18 per
cent, and by 50 from a sketch alone of as many vectors.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from bayesloss.learning.inputs import SparseInputs

__all__ = ["sketched_leverages"]

_SIGNS = 8  # S
_DEGREE = 2  # of the polynomial in log g
_SOLVED = 0.02  # of the right sides' lengths may be left
_ITERATIONS = 100
_DAMPING = 1e-2  # without a penalty, the part of a column's curvature that is added to it
_LEAST = 0.1  # of the formula: no leverage is taken to be smaller


def sketched_leverages(
    inputs: SparseInputs, centre: Tensor, mass: Tensor, ridge: float, seed: int = 0
) -> Tensor:
    """The h_n above.

    Parameters
    ----------
    inputs : SparseInputs
    centre : Tensor of shape (d,)
    mass : Tensor of shape (n,)
        Weighted curvatures d_n, not negative.
    ridge : float
        The penalty r; where it is zero, a hundredth of the diagonal of H stands in for it.
    seed : int
        Of the signs.

    Returns
    -------
    Tensor of shape (n,)
    """
    diagonal = inputs.squares_about(centre, mass)
    added = torch.full_like(diagonal, ridge) if ridge else _DAMPING * diagonal
    diagonal = diagonal + added
    diagonal[diagonal == 0] = 1.0  # of columns that do not vary

    generator = torch.Generator().manual_seed(seed)

    def signs(n: int) -> Tensor:
        drawn = torch.randint(2, (n, _SIGNS), generator=generator)
        return (2 * drawn - 1).to(mass.dtype) / math.sqrt(_SIGNS)

    def pulled(rows: Tensor) -> Tensor:
        return inputs.pull_back(rows.T).T - centre[:, None] * rows.sum(0)

    b = pulled(mass.sqrt()[:, None] * signs(len(mass)))
    b += added.sqrt()[:, None] * signs(len(centre))

    def product(p: Tensor) -> Tensor:
        return pulled(mass[:, None] * inputs.along(p, centre)) + added[:, None] * p

    x = _solve(product, b, diagonal)
    sketch = inputs.along(x, centre).square_().sum(1)
    formula = inputs.scaled_lengths(diagonal.reciprocal(), centre)
    return _combined(sketch, formula)


def _solve(product: Callable[[Tensor], Tensor], b: Tensor, diagonal: Tensor) -> Tensor:
    """Conjugate gradients for all columns of b, in units in which the diagonal is 1."""
    x, r = torch.zeros_like(b), b.clone()
    z = r / diagonal[:, None]
    p, rho = z, (r * z).sum(0)
    enough = _SOLVED**2 * rho
    for _ in range(_ITERATIONS):
        if bool((rho <= enough).all()):
            break
        q = product(p)
        curvature = (p * q).sum(0)
        step = torch.where(curvature > 0, rho / curvature, 0.0)
        x += step * p
        r -= step * q
        z = r / diagonal[:, None]
        before, rho = rho, (r * z).sum(0)
        p = z + torch.where(before > 0, rho / before, 0.0) * p
    return x


def _combined(sketch: Tensor, formula: Tensor) -> Tensor:
    """Leverages from both, of shape (n,)."""
    seen = formula > 1e-12 * formula.max()
    if int(seen.sum()) <= 10 * _DEGREE:
        return sketch
    log_g = formula[seen].log()
    log_g = (log_g - log_g.mean()) / log_g.std().clamp_min(1e-12)
    powers = torch.stack([log_g**k for k in range(_DEGREE + 1)], dim=1)
    ratio = sketch[seen] / formula[seen]
    coefficients = torch.linalg.lstsq(powers, ratio[:, None], driver="gelsd").solution[:, 0]
    mean = (powers @ coefficients).clamp_min(_LEAST)
    about = ratio / mean
    noise = 2 / _SIGNS
    # The sketch's spread is that of the truth, times 1 + noise, plus the noise.
    tau2 = max((float((about - 1).square().mean()) - noise) / (1 + noise), 0.0)
    trust = tau2 / (tau2 + noise)
    values = formula.clone()
    values[seen] = formula[seen] * mean * (1 + trust * (about - 1))
    return values
