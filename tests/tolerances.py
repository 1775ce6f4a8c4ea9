"""How far numbers may be apart that differ in nothing but how they were rounded.

A tolerance comes from the problem: what a rounding is magnified by, and how many there are. So it
holds on every processor, whose kernels add in another order.
"""

import math

UNIT = 2.0**-53  # the largest relative error of one operation


def of_a_sum(terms: float, value: float, steps: float) -> float:
    """The relative error of a value to which terms of this total size were added, in so many steps.

    Higham (2002, section 4.2): each step rounds what is there already. Their ratio, the terms' to
    the value's, is the condition number of the sum.
    """
    return steps * UNIT * terms / abs(value)


def of_a_maximum(value: float, curvature: float, runs: int = 2) -> float:
    """How far the maxima may be apart that searches end at.

    A search compares values, which are rounded: within sqrt(2 u |f| / f'') of the maximum none can
    be told from the largest. Each of so many searches may be off by that.
    """
    return runs * math.sqrt(2 * UNIT * abs(value) / curvature)
