r"""How sure a SoftmaxCalibrator is: Laplace's posterior of all its parameters, structured.

With z_k the logits, the derivatives of z_k in the parameters of class k are

    g_k = (s_k (l, 1), d z_k / d Gamma_k),   s_k = d z_k / d u_k,

and the posterior precision of all parameters is

    D + sum_n w_n G_n^T (diag p_n - p_n p_n^T) G_n - a a^T / (1 / v + m^T a),

with D diagonal and G_n = blockdiag(g_n1, ...). The last term is the temperature's: its own prior,
of variance v of log t, widens that of W along m = (I + W, b); a is D m.

As K classes have K^2 parameters, the inverse of so large a matrix is kept with structure:

* for each class the block of its own parameters: W_kk, b_k, Gamma_k, and the rest of row k of W
  along the directions V in which logits of doubtful cases vary most, those of the largest
  eigenvalues of sum_n w_n (1 - p_n^T p_n) l_n l_n^T;
* between the own parameters of different classes, the ``_RANK`` directions of most correlation;
* across V the prior of the rows, which is tight.

Of up to 50 classes, or 40 with sources, V has all directions, and what is left out are correlations
after those. Of more the posterior is somewhat wider than the full one. Of a thousand V has one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.utils import gen_batches

from bayesloss.arrays import Array
from bayesloss.learning.calibration.calibrator_base import (
    LOG_TEMPERATURE_VARIANCE,
    matrix_precision,
)
from bayesloss.threads import threads_for

_OWN = 3_000  # own parameters: the eigenvectors of so large a matrix take five seconds
_RANK = 256  # directions
_NO_VARIANCE = 1e-9  # beside variances of 1 / (2 K): it can still be divided by
_PART = 2**21  # numbers that are made of some rows at a time
_TINY = float(np.finfo(np.float64).tiny)  # the least normal number of 64 bits


@dataclass(frozen=True)
class Slopes:
    """What is known of the logits of n cases: l, probabilities, and the derivatives of z."""

    logits: Array  # l, (n, K)
    p: Array  # (n, K)
    by_u: Array  # (n, K)
    by_Gamma: Array  # (K, n, S), S = 0 without sources

    def some(self, rows: slice) -> "Slopes":
        """Those of some cases."""
        return Slopes(
            logits=self.logits[rows],
            p=self.p[rows],
            by_u=self.by_u[rows],
            by_Gamma=self.by_Gamma[:, rows],
        )

    def own_parameters(self, V: NDArray) -> Array:
        """Those of W_kk, b_k, of row k of W along the columns of V (K, R), and of Gamma_k.

        Of shape (K, n, 2 + R + S).
        """
        own = np.stack([self.by_u * self.logits, self.by_u], axis=2).swapaxes(0, 1)
        along = self.by_u.T[:, :, None] * (self.logits @ V)
        return np.concatenate([own, along, self.by_Gamma], axis=2)


@dataclass(frozen=True)
class SoftmaxPosterior:
    """Blocks of own parameters, with the covariance B (1 + Q diag(gain) Q^T) B^T, B block diagonal.

    Across V, rows of W have their prior's precision.
    """

    V: NDArray  # (K, R), in single precision, as Q
    blocks: Array  # (K, q, q), those of B
    Q: NDArray  # (K, q, r)
    gain: Array  # (r,)
    tight: float

    @classmethod
    def fit(
        cls, slopes: Slopes, weight: Array, matrix: Array, intercept: Array, of_sources: Array
    ) -> "SoftmaxPosterior":
        """The posterior at a mode, from the cases that it was fitted to.

        ``of_sources`` is the prior precision of each Gamma_k, of shape (S,). Sources of so many
        classes that their parameters would not fit are taken as known.
        """
        n, K = slopes.p.shape
        if K * (2 + len(of_sources)) > _OWN:
            of_sources = of_sources[:0]
        S = len(of_sources)
        prior = matrix_precision(K)
        tight = float(prior[0, 1])
        R = min(K, max(0, _OWN // K - 2 - S))
        V: NDArray = _directions(slopes, weight, R).astype(np.float32)
        # W_kk beside the whole row: their variances add up to its own. Of two classes the row's is
        # all of it.
        alone = 1 / (1 / prior.diagonal() - 1 / tight).clip(min=_NO_VARIANCE)
        along = np.full((K, R), tight)
        own = np.column_stack([alone, prior[:, K], along, np.tile(of_sources, (K, 1))])
        rows = (matrix - np.diag(matrix.diagonal())) @ V
        m = np.column_stack([matrix.diagonal(), intercept, rows, np.zeros((K, S))])
        q = own.shape[1]
        blocks = np.zeros((K, q, q))
        blocks[:, range(q), range(q)] = own
        cross = np.zeros((K * q, K * q))
        with threads_for(n, K * q, K * q):
            for some in gen_batches(n, max(1, _PART // (K * q))):
                part = slopes.some(some)
                g = part.own_parameters(V)[:, :, :q]
                w = weight[some]
                blocks += g.swapaxes(1, 2) @ ((w[:, None] * part.p * (1 - part.p)).T[..., None] * g)
                mean = (np.sqrt(w)[:, None] * part.p)[:, :, None] * g.swapaxes(0, 1)
                mean = mean.reshape(-1, K * q)
                cross += mean.T @ mean
            for k in range(K):  # its own block is exact, and not among the correlations
                cross[k * q : (k + 1) * q, k * q : (k + 1) * q] = 0
            cross += _of_temperature(own, m)
            B = np.linalg.inv(np.linalg.cholesky(blocks)).swapaxes(1, 2)
            cross = cross.reshape(K, q, K, q).swapaxes(1, 2)
            cross = B.swapaxes(1, 2)[:, None] @ cross @ B[None]
            values, vectors = eigh(cross.swapaxes(1, 2).reshape(K * q, K * q))
        kept = np.argsort(-np.abs(values))[:_RANK]
        return cls(
            V=V,
            blocks=B,
            Q=vectors[:, kept].reshape(K, q, -1).astype(np.float32),
            gain=values[kept] / (1 - values[kept]),
            tight=tight,
        )

    def log_odds_deviations(self, slopes: Slopes) -> Array:
        """Standard deviations of the log odds of each class against the rest, of shape (n, K)."""
        n, K = slopes.p.shape
        parts = gen_batches(n, max(1, 4 * _PART // (K * len(self.gain))))
        variances = np.concatenate([self._variances(slopes.some(rows)) for rows in parts])
        # The log odds have the derivatives (e_k - p) / (1 - p_k) in z.
        rest = (1 - slopes.p).clip(min=_TINY)
        return np.sqrt(variances.clip(min=0)) / rest

    def _variances(self, slopes: Slopes) -> Array:
        """Those of (e_k - p)^T z: the sum of what a class has alone and of what it shares."""
        p = slopes.p
        own = self._own(slopes)
        across = (slopes.logits**2).sum(axis=1) - ((slopes.logits @ self.V) ** 2).sum(axis=1)
        alone = (own**2).sum(axis=2).T
        alone += slopes.by_u**2 * across.clip(min=0)[:, None] / self.tight
        correlated = own @ self.Q
        correlated -= np.einsum("nk,knr->nr", p, correlated)
        together = (correlated**2 @ self.gain).T
        return alone * (1 - 2 * p) + (p**2 * alone).sum(axis=1, keepdims=True) + together

    def draw(self, slopes: Slopes, rng: np.random.Generator) -> Array:
        """What one draw adds to the logits z, of shape (n, K)."""
        K, q, _ = self.Q.shape
        noise = rng.standard_normal((K, q))
        of_directions = np.einsum("kqr,kq->r", self.Q, noise)
        noise += self.Q @ ((np.sqrt(1 + self.gain) - 1) * of_directions)
        z = np.einsum("knq,kq->nk", self._own(slopes), noise)
        across = slopes.logits - (slopes.logits @ self.V) @ self.V.T
        rows = rng.standard_normal((K, K)) / np.sqrt(self.tight)
        return z + slopes.by_u * (across @ rows.T)

    def _own(self, slopes: Slopes) -> Array:
        """B^T g of own parameters, of shape (K, n, q)."""
        q = self.blocks.shape[1]
        return slopes.own_parameters(self.V)[:, :, :q] @ self.blocks


def _directions(slopes: Slopes, weight: Array, R: int) -> Array:
    """Orthonormal columns (K, R) along which logits of doubtful cases vary most."""
    K = slopes.p.shape[1]
    doubt = weight * (1 - (slopes.p**2).sum(axis=1))
    _, vectors = eigh(slopes.logits.T @ (doubt[:, None] * slopes.logits))
    return vectors[:, K - R :]


def _of_temperature(precision: Array, m: Array) -> Array:
    """What the temperature's prior takes away from a precision D: a a^T / (1 / v + m^T a)."""
    a = (precision * m).ravel()
    return np.outer(a, a) / (1 / LOG_TEMPERATURE_VARIANCE + m.ravel() @ a)
