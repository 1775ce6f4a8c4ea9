"""L-BFGS for K concave problems at once, each with a memory and a step of its own.

With the last steps as columns of S, the changes of the negative gradient as those of Y, and R, D
the upper triangle and the diagonal of S^T Y, the inverse Hessian is taken to be

    gamma I + [S, gamma Y] [[R^-T (D + gamma Y^T Y) R^-1, -R^-T], [-R^-1, 0]] [S, gamma Y]^T

(Byrd, Nocedal and Schnabel 1994, eq. 3.1): a few products for all problems together.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

PerProblem = Float[Tensor, " k"]  # a number a problem

_PAIRS = 10  # steps that are remembered: as many as SciPy's L-BFGS-B keeps by default
# Wolfe's conditions. A step has to bring this part of the rise that the slope promises (as usual:
# Nocedal and Wright 2006, section 3.1) ...
_FAIR = 1e-4
# ... and leave at most this part of the slope: a longer search along a direction than the usual 0.9
# asks for, in which a trial costs little.
_FLAT = 0.5
_TRIALS = 30  # of a step's length: far more than the few that are needed, against endless searches
_BACK = 0.3  # part of a step to which one that brought no rise is cut
_NOTHING = 1e-22  # a slope, in units of the objective, whose rise no step can show
_PARALLEL = 1e-12  # a cosine of step and change: below it, rounding errors decide on its sign


class Memory:
    """The curvatures of K functions of D variables, as the last steps showed them."""

    def __init__(self, like: Float[Tensor, "k d"]) -> None:
        self._steps = like.new_zeros((len(like), 0, like.shape[1]))
        self._changes = self._steps
        self._scale = like.new_ones((len(like), 1))

    def add(self, step: Float[Tensor, "k d"], change: Float[Tensor, "k d"]) -> None:
        """Remember steps, and the changes of the negative gradients over them."""
        product = (step * change).sum(1, keepdim=True)
        square = change.square().sum(1, keepdim=True)
        # Where a function is not concave, or nothing moved, nothing is learned.
        good = product > _PARALLEL * (square * step.square().sum(1, keepdim=True)).sqrt()
        self._scale = torch.where(good, product / square, self._scale)
        new_step = torch.where(good, step, 0.0)[:, None]
        new_change = torch.where(good, change, 0.0)[:, None]
        self._steps = torch.cat([self._steps[:, 1 - _PAIRS :], new_step], dim=1)
        self._changes = torch.cat([self._changes[:, 1 - _PAIRS :], new_change], dim=1)

    def direction(self, gradient: Float[Tensor, "k d"]) -> Float[Tensor, "k d"]:
        """The inverse of the curvatures times the gradients."""
        S = self._steps
        Y = self._changes
        if S.shape[1] == 0:
            return gradient
        g = gradient[:, :, None]
        gamma = self._scale[:, :, None]
        products = S @ Y.mT
        D = products.diagonal(dim1=1, dim2=2)
        R = products.triu() + torch.diag_embed((D == 0).to(D.dtype))  # what was not remembered
        a = torch.linalg.solve_triangular(R, S @ g, upper=True)
        b = D[:, :, None] * a + gamma * (Y @ (Y.mT @ a) - Y @ g)
        b = torch.linalg.solve_triangular(R.mT, b, upper=False)
        return (gamma * (g - Y.mT @ a) + S.mT @ b)[:, :, 0]


def step_sizes(
    along: Callable[[Tensor], tuple[Tensor, Tensor]], value: PerProblem, slope: PerProblem
) -> PerProblem:
    """Steps by the strong Wolfe conditions, or zero where none is found.

    ``along`` takes steps to values and slopes: ``value`` and ``slope`` at zero, last of all those
    at the result.
    """
    zero = torch.zeros_like(slope)
    done = ~(slope > _NOTHING)
    step = torch.where(done, zero, 1.0)
    low = zero
    low_slope = slope
    high = zero + torch.inf
    high_slope = zero
    rounding = 4 * torch.finfo(value.dtype).eps * value.abs()  # of two values, and their difference
    for _ in range(_TRIALS):
        reached, rise = along(step)
        fair = reached >= value + _FAIR * step * slope - rounding
        done = done | (fair & (rise.abs() <= _FLAT * slope))
        if bool(done.all()):
            return step
        far = ~fair | (rise < 0)
        # Where the slope would vanish if it were linear: between two steps, or beyond them.
        bend = low_slope - rise
        beyond = torch.where(bend > 0, step + (step - low) * rise / bend, torch.inf)
        low = torch.where(far, low, step)
        low_slope = torch.where(far, low_slope, rise)
        high = torch.where(far, step, high)
        high_slope = torch.where(far, rise, high_slope)
        width = high - low
        flat = low + width * low_slope / (low_slope - high_slope)
        between = torch.where(high_slope < 0, flat, low + width / 2)
        # Where a step went so far that nothing was won, slopes there mean little.
        between = torch.where(fair, between, torch.minimum(between, low + _BACK * width))
        # Neither search creeps: the bracket loses a tenth at least, a step beyond grows by half.
        between = between.clamp(low + 0.1 * width, high - 0.1 * width)
        beyond = beyond.clamp(1.5 * step, 10 * step)
        step = torch.where(done, step, torch.where(high.isinf(), beyond, between))
    step = torch.where(done, step, low)
    along(step)
    return step
