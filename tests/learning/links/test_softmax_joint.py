import pytest
import torch

from bayesloss.learning.links.softmax_joint import SoftmaxJoint

K = 3


@pytest.fixture
def joint(classes_of, prior_of):
    data, _ = classes_of(n=80)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((K, 80), dtype=torch.float64, generator=generator)
    prior = prior_of(4.0)
    found = SoftmaxJoint.of(
        prior,
        torch.tensor([0.5, -0.2, 0.1], dtype=torch.float64),
        [prior.features(row) for row in x],
        data.labels,
        data.weight,
    )
    Gamma = found.prior.location + 0.3 * torch.randn(
        len(found.prior.location), dtype=torch.float64, generator=generator
    )
    return found, Gamma, x, data


def test_density_is_that_of_the_model(joint):
    found, Gamma, x, data = joint
    prior, parts = found.each, Gamma.reshape(K, -1)
    nu = torch.stack([prior.source(row, part) for row, part in zip(x, parts, strict=True)])
    log_p = torch.log_softmax(nu, dim=0)[data.labels.argmax(0), torch.arange(80)]
    normal = torch.distributions.Normal(found.prior.location, found.prior.precision.rsqrt())
    expected = data.weight @ log_p + normal.log_prob(Gamma).sum()
    torch.testing.assert_close(found(Gamma), expected, rtol=1e-12, atol=0)
    assert found.prior.location[prior.kernel.n_basis + 1] == 0.5


def test_derivatives(joint):
    found, Gamma, _, _ = joint
    slope = torch.autograd.functional.jacobian(found, Gamma)
    torch.testing.assert_close(found.derivatives(Gamma)[0], slope, rtol=1e-9, atol=1e-9)
    bend = torch.autograd.functional.hessian(found, Gamma)
    torch.testing.assert_close(found.hessian(Gamma), -bend, rtol=1e-9, atol=1e-7)
