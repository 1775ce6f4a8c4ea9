import pytest
import torch

from bayesloss import ISGP, TrigonometricKernel, laplace
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss_book.learning.linkgistic import e_step as link_cost


def test_evidence_is_that_of_the_data_without_a_grid():
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(2000, dtype=torch.float64, generator=generator)
    y = (torch.rand(2000, dtype=torch.float64, generator=generator) < torch.sigmoid(x)).double()
    prior = ISGP(TrigonometricKernel(a=1.2, c=0.5 / float(x.abs().max()), n_basis=16), gamma=0.01)
    found = link_cost.measure(n=2000, n_basis=16, repeat=0)
    expected = laplace(prior, Bernoulli(), x, y).log_evidence / 2000
    # A thousandth of a standard deviation is what the grid may shift the mode by.
    assert found["log_evidence"] == pytest.approx(expected, abs=1e-4)
    assert found["rows"] <= found["nodes"]
