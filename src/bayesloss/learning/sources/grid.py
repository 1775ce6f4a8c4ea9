"""How fine a grid of scores must be for its error to be negligible."""

import math

from bayesloss.learning.sources.priors import SourcePrior, trigonometric
from bayesloss.learning.sources.trigonometric import TrigonometricKernel


def grid_size(prior: SourcePrior[TrigonometricKernel], width: float, n: float) -> int:
    """How many nodes scores of this width need for n data.

    Spacing h moves the mode by about sqrt(n) (h/l)^2 / 12 posterior standard deviations, l the
    kernel's length-scale log(a) / (pi c); a thousandth of one is allowed.
    """
    kernel = trigonometric(prior, "whose a and c say how fine the grid of scores must be")
    scale = math.log(float(kernel.a)) / (math.pi * kernel.c)
    return max(64, math.ceil(width / scale * n**0.25 / math.sqrt(0.012)) + 1)
