import pytest
import torch

from bayesloss.learning.evidence.importance import log_ratios
from bayesloss.learning.evidence.variational import variational
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book.beyond.variational import gaps
from bayesloss_book.beyond.variational.fits import grid_evidence


def test_the_divergence_closes_the_gap():
    """E_q log ratio + KL(q || posterior) is the log evidence, here by the trapezoidal rule."""
    prior = ISGP(TrigonometricKernel(a=2.0, c=0.25, n_basis=2))
    x = torch.linspace(-1, 1, 12, dtype=torch.float64)
    y = (x > 0.2).double()
    joint = LogJoint(prior, Bernoulli(), Bernoulli().condense(prior.features, x, y))
    q = variational(prior, Bernoulli(), x, y)
    noise = torch.randn(20_000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ratios = log_ratios(joint, q, noise)
    found, error = gaps.divergence(joint, q, n_chains=96, n_draws=40, seed=0)
    truth = grid_evidence(prior, Bernoulli(), x, y)
    spread = float(ratios.std()) / 20_000**0.5
    assert found > 0.02  # there is a gap to close
    assert float(ratios.mean()) + found == pytest.approx(truth, abs=4 * (error + spread))


def test_cells_and_a_cell():
    assert len(gaps.cells()) == 9
    cell = {"task": "regression", "n": 10, "seed": 0, "n_basis": 8, "n_chains": 4, "n_draws": 6}
    found = gaps.measure(**cell)
    assert found["bound"] <= found["weighted_1024"] + 4 * found["weighted_1024_error"]
    assert found["n_modes"] >= 1 and found["divergence"] >= 0
