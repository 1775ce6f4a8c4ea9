"""Small posteriors with a utility, and their moments by brute force, for several files of tests."""

import numpy as np
import torch

from bayesloss import CostMatrix
from bayesloss.calibrating.probit.whitened_gp import WhitenedGP
from bayesloss.calibrating.utility import LogUtility
from bayesloss.kernels import SquaredExponential

CASES = [
    ([0.1, 0.3], [1, 1]),
    ([0.1, 0.9], [1, -1]),
    ([0.1, 0.4, 0.6], [1, 1, -1]),
    ([0.0, 0.5, 1.0], [-1, -1, -1]),
]
COSTS = [CostMatrix(1, 1), CostMatrix(0.1, 1), CostMatrix(1, 0.3)]


def problem(inputs, labels, amplitude, costs, max_loss=None):
    """A posterior and the utility of alternating decisions on five targets."""
    kernel = SquaredExponential(a=0.3**-2, b=amplitude**2)
    prior = WhitenedGP.at(kernel, torch.tensor(inputs, dtype=torch.float64)[None], batch_dims=1)
    targets = torch.linspace(0, 1.4, 5, dtype=torch.float64)[None]
    decisions = torch.tensor([[1.0, -1.0, 1.0, 1.0, -1.0]], dtype=torch.float64)
    largest = max_loss or max(costs.c_plus, costs.c_minus)
    utility = LogUtility(*prior.project(targets), decisions, costs, largest)
    return prior.features, torch.tensor(labels, dtype=torch.float64)[None], utility


def brute_force(features, y, utility, n_nodes=60):
    """Moments and log mass of prior x likelihood x utility on a Gauss-Hermite grid."""
    node, weight = np.polynomial.hermite_e.hermegauss(n_nodes)
    r = features.shape[-1]
    z = torch.tensor(np.stack(np.meshgrid(*[node] * r, indexing="ij"), -1).reshape(-1, r))
    mass = torch.tensor(weight / weight.sum())
    mass = torch.stack(torch.meshgrid(*[mass] * r, indexing="ij"), -1).reshape(-1, r).prod(-1)
    mass = mass * torch.special.ndtr(y[0] * (z @ features[0].mT)).prod(-1)
    p = torch.special.ndtr((z @ utility.features[0].mT) / utility.noise[0])
    costs = utility.costs
    positive = utility.decisions[0] > 0
    loss = torch.where(positive, costs.c_plus * (1 - p), costs.c_minus * p).mean(-1)
    mass = mass * (utility.max_loss - loss)
    total = mass.sum()
    mean = (mass[:, None] * z).sum(0) / total
    centred = z - mean
    return mean, (mass[:, None] * centred).mT @ centred / total, float(total.log())
