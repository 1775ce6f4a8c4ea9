import math

import pytest
import torch

from bayesloss.learning.evidence.evidence import SMOOTHNESS
from bayesloss.learning.evidence.importance import weigh_draws
from bayesloss_book.beyond.calibration import bound


@pytest.fixture(scope="module")
def judged():
    return bound.judge("normal classes", 100, 2)


def test_the_bound_is_below_the_evidence_by_more_where_curves_are_rough(judged):
    gap = (judged["evidence"] - judged["bound"]).groupby(judged["a"]).mean()
    assert list(gap.index) == list(SMOOTHNESS)
    assert gap.iloc[0] > gap.iloc[-1] + 5  # nats; the differences on the page are of 20


def test_the_generator_of_torch_is_left_alone():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    bound.judge("normal classes", 50, 1)
    assert torch.rand(1) == expected


def test_annealing_agrees_with_importance_sampling_where_the_gaussian_is_good():
    """Draws of Laplace's Gaussian at the smoothest prior, weighted: another route."""
    short = {"n_chains": 64, "n_temperatures": 60}
    found = bound.measure(number=7, a=bound.ENDS[1], **short)
    problem = bound._Problem.of(bound.DATA, bound.N_CASES, 7)
    generator = torch.Generator().manual_seed(0)
    smoothest = problem.posteriors[-1]
    x = problem.x
    y = problem.y
    drawn = weigh_draws(smoothest, x, y, n_draws=4096, generator=generator)
    error = math.hypot(found["annealed_error"], drawn.error)
    assert error < 0.25  # nats; so that the next line can fail
    assert abs(found["annealed"] - drawn.log_evidence) < 4 * error
    assert found["bound"] < found["annealed"] + 4 * error
