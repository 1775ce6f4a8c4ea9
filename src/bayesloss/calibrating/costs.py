"""What a wrong decision between two classes costs, and the decisions that follow.

LHG section 4.2 and appendix 7.3.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

__all__ = ["CostMatrix"]


@dataclass(frozen=True)
class CostMatrix:
    """The costs of the two errors; a right decision costs nothing.

    Parameters
    ----------
    c_plus : float, default=1
        Of a false positive: deciding +1 where the label is -1.
    c_minus : float, default=1
        Of a false negative: deciding -1 where the label is +1.

    Raises
    ------
    ValueError
        If a cost is not positive and finite: without a cost for one error the decision is always
        the same, and no inference is needed.

    Examples
    --------
    >>> from bayesloss import CostMatrix
    >>> CostMatrix(c_plus=1, c_minus=19).decide([0.02, 0.04, 0.06, 0.5])
    array([-1, -1,  1,  1])
    """

    c_plus: float = 1.0
    c_minus: float = 1.0

    def __post_init__(self) -> None:
        for name in ("c_plus", "c_minus"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"expected a finite cost {name} > 0, got {name}={value}")

    @property
    def threshold(self) -> float:
        """The probability of +1 above which +1 is decided: c_plus / (c_minus + c_plus)."""
        return 1 / (1 + self.c_minus / self.c_plus)

    @property
    def probit_threshold(self) -> float:
        """LHG (26): b_c, the threshold on the probit scale."""
        # From the smaller side, so that b_c stays finite where the threshold rounds to 1.
        if self.c_plus <= self.c_minus:
            return float(ndtri(self.threshold))
        return -float(ndtri(1 / (1 + self.c_plus / self.c_minus)))

    def decide(self, probabilities: ArrayLike) -> NDArray[np.int64]:
        """The decisions of least expected cost: LHG (35) and the choice rule below it.

        Parameters
        ----------
        probabilities : array-like of shape (n,) or (n, 2)
            Of the label +1, or of the labels -1 and +1 as ``predict_proba`` returns them.

        Returns
        -------
        ndarray of shape (n,)
            +1 or -1; -1 where both cost the same.

        Raises
        ------
        ValueError
            If the shape is another one, or a value is no probability.
        """
        p = np.asarray(probabilities, dtype=float)
        if p.ndim not in (1, 2) or (p.ndim == 2 and p.shape[1] != 2):
            raise ValueError(f"expected probabilities of shape (n,) or (n, 2), got {p.shape}")
        bad = ~((p >= 0) & (p <= 1))
        if bad.any():
            raise ValueError(f"expected probabilities in [0, 1], got {p[bad][0]}")
        negative, positive = (1 - p, p) if p.ndim == 1 else p.T
        return np.where(self.c_plus * negative < self.c_minus * positive, 1, -1)
