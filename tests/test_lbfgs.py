"""Tests of L-BFGS for many problems against the recursion that defines it, and of its steps."""

import math

import pytest
import torch

from bayesloss import lbfgs
from bayesloss.lbfgs import Memory, step_sizes


def curvatures(n_problems=3, size=6):
    generator = torch.Generator().manual_seed(0)
    roots = torch.randn((n_problems, size, size), dtype=torch.float64, generator=generator)
    return roots @ roots.mT + 0.1 * torch.eye(size, dtype=torch.float64)


def two_loops(steps, changes, gradient):
    """The textbook's recursion (Nocedal and Wright, algorithm 7.4) for one problem."""
    q = gradient.clone()
    alphas = []
    for s, y in reversed(list(zip(steps, changes, strict=True))):
        alphas.append(float(s @ q) / float(s @ y))
        q = q - alphas[-1] * y
    r = float(steps[-1] @ changes[-1]) / float(changes[-1] @ changes[-1]) * q
    for s, y in zip(steps, changes, strict=True):
        r = r + s * (alphas.pop() - float(y @ r) / float(s @ y))
    return r


@pytest.mark.parametrize("n_steps", [1, 4, 15])
def test_direction_is_that_of_the_recursion(n_steps):
    """Also after more steps than are remembered, and where some taught nothing."""
    H = curvatures()
    generator = torch.Generator().manual_seed(1)
    steps = torch.randn((n_steps, 3, 6), dtype=torch.float64, generator=generator)
    changes = torch.einsum("kij,skj->ski", H, steps)
    if n_steps > 1:
        changes[1, 2] *= -1  # the third problem is not concave there
        steps[2, 0] = changes[2, 0] = 0  # the first rests
    gradient = torch.randn((3, 6), dtype=torch.float64, generator=generator)
    memory = Memory(gradient)
    torch.testing.assert_close(memory.direction(gradient), gradient, rtol=0, atol=0)
    for s, y in zip(steps, changes, strict=True):
        memory.add(s, y)
    found = memory.direction(gradient)
    for k in range(3):
        last = range(max(0, n_steps - lbfgs._PAIRS), n_steps)
        kept = [i for i in last if float(steps[i, k] @ changes[i, k]) > 0]
        pairs = [steps[i, k] for i in kept], [changes[i, k] for i in kept]
        torch.testing.assert_close(found[k], two_loops(*pairs, gradient[k]), rtol=1e-8, atol=1e-10)


def test_steps_end_where_the_slope_has_fallen():
    tops = torch.tensor([1.0, 40.0, 0.003, 1e-6], dtype=torch.float64)

    def along(step):  # concave, not quadratic, highest at the tops
        t = step / tops
        return t - t.exp() / math.e, (1 - t.exp() / math.e) / tops

    value, slope = along(torch.zeros(4, dtype=torch.float64))
    step = step_sizes(along, value, slope)
    reached, left = along(step)
    assert bool((reached > value).all())
    assert bool((left.abs() <= 0.5 * slope).all())


def test_a_step_does_not_depend_on_what_is_searched_beside_it():
    """The first parabola's step of 1 will do; the others come back, to a half and to a tenth."""

    def steps(curvature):
        def along(step):
            return step - curvature * step**2, 1 - 2 * curvature * step

        return step_sizes(along, torch.zeros_like(curvature), torch.ones_like(curvature))

    curvature = torch.tensor([0.5, 0.9, 5.0], dtype=torch.float64)
    alone = torch.cat([steps(one) for one in curvature.split(1)])
    torch.testing.assert_close(steps(curvature), alone, rtol=0, atol=0)


def test_no_step_where_nothing_rises():
    """A problem that rests, one at a top, and one that only falls, whatever its slope says."""
    slope = torch.tensor([0.0, 1e-30, 1.0], dtype=torch.float64)
    seen = []

    def along(step):
        seen.append(step)
        return -step, -torch.ones_like(step)

    step = step_sizes(along, torch.zeros_like(slope), slope)
    assert not step.any()
    torch.testing.assert_close(seen[-1], step, rtol=0, atol=0)
