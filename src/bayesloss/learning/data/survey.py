"""What a calibrator asks of all cases before it fits any, part by part if they are many."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesloss.arrays import Array

_MANY = 100  # kinds of labels that are told apart before they are refused


@dataclass(frozen=True)
class Survey:
    """What is asked of all cases before a fit."""

    labels: NDArray  # the first of the sorted kinds
    n: int
    weight: float
    whole: bool  # whether all weights are whole numbers
    inside: int  # how many scores lie in [0, 1]
    low: float  # the extreme scores, NaN if one is
    high: float

    @classmethod
    def of(cls, x: Array, y: NDArray, weight: Array) -> "Survey":
        """Survey a part of the cases, which may be empty."""
        return cls(
            labels=np.unique(y)[:_MANY],
            n=len(x),
            weight=float(weight.sum()),
            whole=bool((weight % 1 == 0).all()),
            inside=int(((x >= 0) & (x <= 1)).sum()),
            low=float(x.min(initial=np.inf)),
            high=float(x.max(initial=-np.inf)),
        )

    @classmethod
    def merged(cls, parts: list["Survey"]) -> "Survey":
        """The survey of all from those of parts."""
        return cls(
            labels=np.unique(np.concatenate([part.labels for part in parts]))[:_MANY],
            n=sum(part.n for part in parts),
            weight=sum(part.weight for part in parts),
            whole=all(part.whole for part in parts),
            inside=sum(part.inside for part in parts),
            low=float(np.min([part.low for part in parts])),
            high=float(np.max([part.high for part in parts])),
        )
