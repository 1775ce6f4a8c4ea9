"""Beside the exact bound: a normal nu's, which is none, and Jaakkola and Jordan's (2000)."""

from torch import Tensor

from bayesloss.learning.evidence.gaussian_bound import GaussianBound
from bayesloss.learning.evidence.variational import maximise_bound
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Likelihood
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss.learning.sources.priors import SourcePrior


class NormalBound(GaussianBound):
    """The mean log likelihood as if nu were normal: exact under Gaussian noise."""

    def __init__(self, joint: LogJoint) -> None:
        super().__init__(joint, with_laws=False)


class JaakkolaBound(NormalBound):
    """Its lower bound, ``Bernoulli.expected_log_density``."""

    def fit(self, mean: Tensor, variance: Tensor) -> Tensor:
        """The bound in nats."""
        fit = self.joint.likelihood.expected_log_density(mean, variance, self.joint.data)
        assert fit is not None
        return fit


BOUNDS = {"exact": GaussianBound, "normal": NormalBound, "bound": JaakkolaBound}


def best_gaussian(
    method: str,
    prior: SourcePrior,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    start: Tensor | None = None,
) -> Posterior:
    """The Gaussian of the highest bound, by one of ``BOUNDS``."""
    joint = LogJoint.of(prior, likelihood, x, y)
    mode = find_mode(joint, prior.start(x) if start is None else start)
    return maximise_bound(BOUNDS[method](joint), mode)[0]
