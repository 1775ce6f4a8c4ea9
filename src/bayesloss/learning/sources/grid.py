"""How fine a grid of scores has to be, so that spreading data on it is not felt."""

import math

from bayesloss.learning.sources.priors import SourcePrior, trigonometric
from bayesloss.learning.sources.trigonometric import TrigonometricKernel


def grid_size(prior: SourcePrior[TrigonometricKernel], width: float, n: float) -> int:
    """How many nodes scores of this width need for n data.

    Linear weights with spacing h change the log likelihood of a datum by h^2/12 times its second
    derivative in x, on average. For n data that moves the mode by about sqrt(n) (h/l)^2 / 12
    posterior standard deviations, where l = log(a) / (pi c) is the scale on which the kernel's
    functions vary. A thousandth of one is allowed, so the grid grows with the fourth root of n.
    """
    kernel = trigonometric(prior, "whose a and c say how fine the grid of scores must be")
    scale = math.log(float(kernel.a)) / (math.pi * kernel.c)
    return max(64, math.ceil(width / scale * n**0.25 / math.sqrt(0.012)) + 1)
