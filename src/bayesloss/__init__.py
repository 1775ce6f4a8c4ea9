"""A companion to two papers: one learns the loss, one calibrates approximate inference to it.

They are Walder and Nock (2020), and Lacoste-Julien, Huszár and Ghahramani (2011).
"""

__version__ = "0.2.0"

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.decide_together import JointDecision, decide_together
from bayesloss.calibrating.decision_theory import bayes_action, loss_divergence, posterior_risk
from bayesloss.calibrating.gp_classification import GPClassifier, LossEMClassifier
from bayesloss.calibrating.loss_em import linearised_loss_em, loss_em
from bayesloss.composite_losses import CompositeLoss
from bayesloss.kernels import SquaredExponential
from bayesloss.learning.calibration.calibrated_classifier import CalibratedClassifier
from bayesloss.learning.calibration.link_calibrator import LinkCalibrator
from bayesloss.learning.calibration.reliability import Reliability, reliability
from bayesloss.learning.calibration.softmax_calibrator import SoftmaxCalibrator
from bayesloss.learning.estimators.displays import LinkDisplay, MonotoneDisplay, ReliabilityDisplay
from bayesloss.learning.estimators.linkgistic import LinkgisticClassifier
from bayesloss.learning.estimators.monotone import ISGPRegressor
from bayesloss.learning.inference.evidence import EvidenceMaximum, maximise_evidence
from bayesloss.learning.inference.importance import WeightedDraws, weigh_draws
from bayesloss.learning.inference.laplace import Posterior, laplace
from bayesloss.learning.inference.likelihoods import Bernoulli, Gaussian, Likelihood, Observations
from bayesloss.learning.inference.variational import variational
from bayesloss.learning.links.fitted_link import FittedLink
from bayesloss.learning.sources.basis import Basis
from bayesloss.learning.sources.nystrom import NystromBasis
from bayesloss.learning.sources.priors import GP, ISGP, SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.proper_losses import LogLoss, MatsushitaLoss, ProperLoss, SkewedLogLoss, SquareLoss

__all__ = [
    "GP",
    "ISGP",
    "Basis",
    "Bernoulli",
    "CalibratedClassifier",
    "CompositeLoss",
    "CostMatrix",
    "EvidenceMaximum",
    "FittedLink",
    "GPClassifier",
    "Gaussian",
    "ISGPRegressor",
    "JointDecision",
    "Likelihood",
    "LinkCalibrator",
    "LinkDisplay",
    "LinkgisticClassifier",
    "LogLoss",
    "LossEMClassifier",
    "MatsushitaLoss",
    "MonotoneDisplay",
    "NystromBasis",
    "Observations",
    "Posterior",
    "ProperLoss",
    "Reliability",
    "ReliabilityDisplay",
    "SkewedLogLoss",
    "SoftmaxCalibrator",
    "SourcePrior",
    "SquareLoss",
    "SquaredExponential",
    "TrigonometricKernel",
    "WeightedDraws",
    "bayes_action",
    "decide_together",
    "laplace",
    "linearised_loss_em",
    "loss_divergence",
    "loss_em",
    "maximise_evidence",
    "posterior_risk",
    "reliability",
    "variational",
    "weigh_draws",
]


def __dir__() -> list[str]:
    """What completion shows: the public names, without submodules."""
    return [*__all__, "__all__", "__doc__", "__version__"]
