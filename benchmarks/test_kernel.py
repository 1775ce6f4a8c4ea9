"""What the fast form of eq. (8) costs against psi, and what the evidence's gradient costs.

Run by ``make bench``. The figures depend on the machine; compare them with each other. The last two
columns that matter are in ``extra_info``: nanoseconds a point.
"""

import numpy as np
import pytest
import torch

from bayesloss import ISGP, Gaussian, TrigonometricKernel
from bayesloss.learning.evidence.evidence import evidence_gradient
from bayesloss.learning.inference.log_joint import LogJoint

N_BASIS = 64
KERNEL = TrigonometricKernel(a=2.0, c=0.5, n_basis=N_BASIS)
W = torch.from_numpy(np.random.default_rng(0).normal(size=N_BASIS)) * KERNEL.eigenvalues.sqrt()


@pytest.fixture(autouse=True)
def _one_thread():
    """One thread: what is compared is work, not the number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def points(n):
    return torch.from_numpy(np.random.default_rng(1).uniform(-1, 1, n))


def record(benchmark, n):
    if benchmark.enabled:
        benchmark.extra_info["ns a point"] = round(benchmark.stats["median"] / n * 1e9, 1)


@pytest.mark.benchmark(group="w^T psi(x) w, M = 64")
@pytest.mark.parametrize("n", [10**5, 10**6])
def test_integrated_square(benchmark, n):
    """O(nM): a few cosines and products a point."""
    values = benchmark.pedantic(KERNEL.integrated_square, (points(n), W), rounds=5, warmup_rounds=1)
    record(benchmark, n)
    assert values.shape == (n,)


@pytest.mark.benchmark(group="w^T psi(x) w, M = 64")
@pytest.mark.parametrize("n", [10**4])
def test_psi_in_chunks(benchmark, n):
    """O(nM^2): the reference, a thousand points at a time, or its array alone would fill 320 MB."""

    def quadratic_forms(x):
        return torch.cat([(KERNEL.psi(part) @ W) @ W for part in x.split(1000)])

    x = points(n)
    values = benchmark.pedantic(quadratic_forms, (x,), rounds=5, warmup_rounds=1)
    record(benchmark, n)
    torch.testing.assert_close(values, KERNEL.integrated_square(x, W), rtol=1e-10, atol=0)


@pytest.mark.benchmark(group="evidence and gradient")
@pytest.mark.parametrize("objective", ["bound", "laplace"])
@pytest.mark.parametrize("n_basis", [16, 32, 64])
def test_evidence_gradient(benchmark, n_basis, objective):
    """From the mode, as within a search. The data are condensed: their number does not matter."""
    x = points(1000)
    y = torch.tanh(2 * x) + 0.2 * torch.from_numpy(np.random.default_rng(2).normal(size=1000))
    theta = torch.tensor([2.0, 1.0, 1.0, 0.0, 25.0], dtype=torch.float64)  # a, b, gamma, mu, alpha

    def prior_of(theta):
        kernel = TrigonometricKernel(a=theta[0], b=theta[1], c=0.5, n_basis=n_basis)
        return ISGP(kernel, gamma=theta[2], mu=theta[3])

    data = Gaussian().condense(prior_of(theta).features, x, y)

    def joint_of(theta):
        return LogJoint(prior_of(theta), Gaussian(theta[4]), data)

    start = evidence_gradient(theta, joint_of, prior_of(theta).start(x), objective)[2].Gamma
    value, gradient, _ = benchmark.pedantic(
        evidence_gradient, (theta, joint_of, start, objective), rounds=20, warmup_rounds=2
    )
    assert np.isfinite(value)
    assert bool(gradient.isfinite().all())
