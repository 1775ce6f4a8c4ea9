"""The book's workshop: what its pages call, laid out like its table of contents."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
