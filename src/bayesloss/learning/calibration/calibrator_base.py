r"""What calibrators share: how wide their bands are, and how much cases of a group count.

With logits ``u = t l + b`` of K classes, H is the information of independent cases on (b, t), and J
the covariance of their score vector summed over groups,

    H = sum_n w_n A_n^T (diag p_n - p_n p_n^T) A_n,   A_n = (I, l_n),
    J = sum_g s_g s_g^T,   s_g = sum_{n in g} w_n A_n^T (y_n - p_n).

The likelihood to the power ``rank(H) / tr(H^+ J)`` has the right mean curvature (Pauli, Racugno and
Ventura 2011). The trace is the same in any parameters: for two classes log odds would do.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from bayesloss.arrays import Array

Scale = Literal["auto", "probability", "real"]

# What the half widths of bands are multiplied by, on the scale of log odds: priors are smooth, and
# where the truth has steps and corners the posterior is off by more than it knows.
WIDER = 1.2
# Of the prior of a SoftmaxCalibrator's log t: a factor of seven either way is one deviation.
LOG_TEMPERATURE_VARIANCE = 4.0
_NULL = 1e-10  # the part of the largest eigenvalue of H below which one is rounding error


def composite_power(logits: Array, codes: NDArray, weight: Array, groups: NDArray) -> float:
    """The power of the likelihood, at most 1, at the (n, K) logits of a calibrated classifier."""
    K = logits.shape[1]
    centred = logits - logits.mean(axis=1, keepdims=True)
    p = softmax(centred, axis=1)
    mean = (p * centred).sum(axis=1)
    # The columns of A^T (diag p - p p^T) A: those of b, and that of t.
    edge = weight @ (p * (centred - mean[:, None]))
    spread = weight @ ((p * centred**2).sum(axis=1) - mean**2)
    inner = np.diag(weight @ p) - (p * weight[:, None]).T @ p
    information = np.block([[inner, edge[:, None]], [edge[None], np.array([[spread]])]])
    residual = weight[:, None] * (np.eye(K)[codes] - p)
    scores = np.column_stack([residual, (residual * centred).sum(axis=1)])
    _, group = np.unique(groups, return_inverse=True)
    sums = np.stack([np.bincount(group, column) for column in scores.T])
    values, vectors = np.linalg.eigh(information)
    counted = values > _NULL * values[-1]  # equal b of all classes change nothing
    along = (vectors.T @ sums)[counted]
    rank = float(counted.sum())
    trace = float(((along**2).sum(axis=1) / values[counted]).sum())
    if trace > 0:
        return min(1.0, rank / trace)
    return 1.0


def matrix_precision(K: int) -> Array:
    """Prior precisions of the W of a :class:`~bayesloss.SoftmaxCalibrator`, then of its b."""
    precision = np.full((K, K + 1), 2.0 * K * (K - 1))
    precision[:, K] = 2 * K
    np.fill_diagonal(precision, 2 * K)
    return precision
