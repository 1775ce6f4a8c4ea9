import pytest
import torch

from bayesloss.learning.evidence.evidence import SMOOTHNESS
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
