import pytest
import torch

from bayesloss_book.data.labelled_scores import DATA, problem


@pytest.mark.parametrize("data", list(DATA))
def test_problems(data):
    one = problem(data, 20, 1)
    again = problem(data, 20, 1)
    assert torch.equal(one.x, again.x) and torch.equal(one.y, again.y)
    assert one.x.shape == one.y.shape == (20,)
    assert bool((one.targets.diff() >= 0).all()) and float(one.targets.abs().max()) <= 50
    assert set(one.y.tolist()) <= {0.0, 1.0}
    if data != "simulated":
        # A good score: more ones on the right.
        half = len(one.targets) // 2
        assert one.labels[half:].mean() > one.labels[:half].mean() + 0.2
