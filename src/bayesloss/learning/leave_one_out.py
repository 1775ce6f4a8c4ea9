r"""Scores that data would have had, had the weights not seen them.

Weights fitted to few data per column tell the training labels apart better than they tell others.
A link fitted to the training scores takes that for the truth, and is overconfident. So links are
fitted to leave-one-out scores. One Newton step from the fit leaves a datum out:

    x_n - h_n s_n / (1 - h_n d_n),   h_n = z_n . H^-1 z_n,   H = sum_m d_m z_m z_m^T + 1/C,

where s_n is the slope of the log probability of the label of n in the score, d_n its expected
curvature, and inputs are centred. With a linear link and Gaussian noise this is exact.
"""

import math

import torch
from torch import Tensor

from bayesloss.learning.linear_scores import LinearScores, product

__all__ = ["LeaveOneOut"]

_ROWS = 4096  # data in a block
_SKETCH = 64  # random directions in which leverages are first estimated, to a sixth or so
_LARGE = 0.05  # share of its own score that a datum makes up, above which it is computed exactly
_LARGEST = 0.99  # of such shares: one Newton step is not to be trusted farther
_LEFT_OUT = 0.01  # part of the curvature, that of the flattest data, that H does without
_DAMPING = 1e-2  # without a penalty, added to the diagonal of H in units in which that is 1


class LeaveOneOut:
    """Leave-one-out scores of several problems, round after round.

    H is formed in rounds 1, 2, 4, 8, ... In between, h_n / (1 - h_n d_n), on which the datum's own
    curvature has no influence, is taken to fall as the sum of the curvatures rises: both follow the
    scale of the link. Links and shifts of the scores depend on each other, and could chase each
    other for ever; so round t moves the shifts only 2 / (t + 1) of the way.

    Parameters
    ----------
    data : LinearScores
    seed : int
        Of the directions of the sketch.
    """

    def __init__(self, data: LinearScores, seed: int) -> None:
        self._data = data
        self._Z, self._centre = data.Z, data.centre
        if len(self._centre) > len(self._Z):  # as many coordinates as data will do
            self._Z = torch.linalg.qr((data.Z - data.centre).T, mode="r").R.T
            self._centre = torch.zeros_like(self._Z[0])
        # For each problem: the rounds so far, h_n / (1 - h_n d_n) times the sum of the curvatures,
        # and the shifts of the scores.
        self._rounds: dict[int, int] = {}
        self._leverage: dict[int, Tensor] = {}
        self._shift: dict[int, Tensor] = {}
        generator = torch.Generator().manual_seed(seed)
        shape = (len(self._centre), _SKETCH)
        directions = torch.randn(shape, dtype=data.Z.dtype, generator=generator)
        self._directions = directions.to(data.Z.device) / math.sqrt(_SKETCH)

    def __call__(self, problem: int, scores: Tensor, slopes: Tensor) -> Tensor:
        """The scores without each datum, of shape (n,).

        Of a datum that counts several times, one is left out.

        Parameters
        ----------
        problem : int
        scores : Tensor of shape (n,)
        slopes : Tensor of shape (2, n)
            Of the log probabilities of the labels 0 and 1 in the scores.
        """
        weight = self._data.weight
        labels = self._data.labels[problem]
        slope = torch.where(labels == 1, slopes[1], slopes[0])
        # The mean of the squared slope over the labels, which have probabilities that make the mean
        # slope zero: -s_0 s_1.
        curvature = (-slopes[0] * slopes[1]).clamp_min(0)
        total = float(weight @ curvature)
        if total == 0:
            return scores
        count = self._rounds[problem] = self._rounds.get(problem, 0) + 1
        own = weight.clamp_max(1)
        if count & (count - 1) == 0:  # a power of two
            leverage = self._leverages(curvature)
            rest = 1 - (own * curvature * leverage).clamp_max(_LARGEST)
            self._leverage[problem] = total * leverage / rest
        shift = own * self._leverage[problem] / total * slope
        if count > 1:
            previous = self._shift[problem]
            shift = previous + 2 / (count + 1) * (shift - previous)
        self._shift[problem] = shift
        return scores - shift

    def _leverages(self, curvature: Tensor) -> Tensor:
        """h_n, of shape (n,)."""
        root = self._root(curvature)
        if len(root) <= _SKETCH:
            return self._squares(self._Z, root)
        out = self._squares(self._Z, root @ self._directions)
        large = torch.nonzero(out * curvature > _LARGE)[:, 0]
        for rows in large.split(_ROWS):
            out[rows] = self._squares(self._Z[rows], root)
        return out

    def _squares(self, inputs: Tensor, directions: Tensor) -> Tensor:
        """The squared lengths of inputs (any, d), centred, along directions (d, any)."""
        offset = self._centre @ directions
        parts = [product(part, directions) - offset for part in inputs.split(_ROWS)]
        return torch.cat([part.square().sum(1) for part in parts])

    def _root(self, curvature: Tensor) -> Tensor:
        """A matrix R with R R^T = H^-1, of shape (d, d)."""
        ascending, order = curvature.sort()
        part = (self._data.weight[order] * ascending).cumsum(0)
        kept = curvature >= ascending[int((part <= _LEFT_OUT * part[-1]).sum())]
        H = torch.zeros((len(self._centre),) * 2, dtype=curvature.dtype, device=curvature.device)
        for rows in torch.nonzero(kept)[:, 0].split(_ROWS):
            share = (self._data.weight[rows] * curvature[rows]).sqrt()
            inputs = self._Z[rows].sub_(self._centre).mul_(share[:, None])
            H += product(inputs.T, inputs)
        H.diagonal().add_(self._data.ridge * self._data.total)
        # In units in which all columns matter alike; a column of zeros stays one.
        scale = torch.where(H.diagonal() > 0, H.diagonal().rsqrt(), 0.0)
        H = scale[:, None] * H * scale
        # Without a penalty, data that can be separated would have infinite scores without some of
        # them. The search for weights is stopped on its way there; so are these.
        H.diagonal().add_(1e-12 if self._data.ridge else _DAMPING).masked_fill_(scale == 0, 1.0)
        identity = torch.eye(len(H), dtype=H.dtype, device=H.device)
        factor = torch.linalg.cholesky(H)
        return scale[:, None] * torch.linalg.solve_triangular(factor, identity, upper=False).T
