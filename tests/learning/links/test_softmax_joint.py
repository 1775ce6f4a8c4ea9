"""The density; its derivatives, in blocks of rows, are in `test_blocks.py`."""

import torch

from bayesloss import TrigonometricKernel
from bayesloss.learning.links.softmax_joint import SoftmaxJoint
from bayesloss.learning.sources.priors import CentredISGP

K = 3


def test_density_is_that_of_the_model(classes_of):
    data, _ = classes_of(n=80)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((K, 80), dtype=torch.float64, generator=generator)
    kernel = TrigonometricKernel(a=2.0, c=0.125, n_basis=8).scaled(0.3)
    prior = CentredISGP(kernel, tau=0.3)
    level = torch.tensor([0.5, -0.2, 0.1], dtype=torch.float64)
    features = [prior.features(row) for row in x]
    found = SoftmaxJoint.of(prior, level, features, data.labels, data.weight)
    noise = torch.randn(3 * 10, dtype=torch.float64, generator=generator)
    Gamma = found.prior.location + 0.3 * noise
    parts = Gamma.reshape(K, -1)
    nu = torch.stack([prior.source(row, part) for row, part in zip(x, parts, strict=True)])
    log_p = torch.log_softmax(nu, dim=0)[data.labels.argmax(0), torch.arange(80)]
    normal = torch.distributions.Normal(found.prior.location, found.prior.precision.rsqrt())
    expected = data.weight @ log_p + normal.log_prob(Gamma).sum()
    torch.testing.assert_close(found(Gamma), expected, rtol=1e-12, atol=0)
    assert found.prior.location[prior.kernel.n_basis + 1] == 0.5
