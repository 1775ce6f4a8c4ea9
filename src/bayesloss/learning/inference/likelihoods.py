"""Likelihoods of data given the values of nu (W&N appendix D.1).

A likelihood condenses its data to as few rows as it needs, then gives the log density and its
derivatives at the rows' values nu = features @ coefficients.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from bayesloss.learning.inference.binning import Features, triangle
from bayesloss.proper_losses import LogLoss, ProperLoss
from bayesloss.quadrature import gauss_hermite
from bayesloss.tensors import as_number, as_positive

_MANY = 2**16  # data that are spread on a grid at a time


@dataclass(frozen=True)
class Observations:
    """Condensed data, as :meth:`Likelihood.condense` returns them.

    Attributes
    ----------
    features, targets, weights : Tensor of shape (rows, F), (rows,), (rows,)
        The weights say how many data each row stands for. Under Gaussian noise the rows themselves
        are weighted, and only the sum of the weights counts.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import Gaussian, Observations
    >>> x = torch.linspace(0, 1, 100, dtype=torch.float64)
    >>> data = Gaussian().condense(lambda x: x[:, None], x, 2 * x)
    >>> isinstance(data, Observations), data.weights.tolist()  # two rows for one feature
    (True, [50.0, 50.0])
    """

    features: Tensor
    targets: Tensor
    weights: Tensor


class Likelihood(ABC):
    """What inference asks of a likelihood. A new one subclasses this and defines two methods.

    These are :meth:`log_density` and :meth:`derivatives`; :meth:`expected_log_density` adds the
    lower bound on the evidence. EM over links also needs ``shares``, ``on_grid`` and ``loss``, as
    :class:`Bernoulli` has them.

    Attributes
    ----------
    hyper_parameters : mapping of str to (float, float)
        Names of positive attributes, and the ranges in which ``maximise_evidence`` searches.
    exact_expectation : bool
        Whether :meth:`expected_log_density` is exact whatever the distribution of nu.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import ISGP, Likelihood, TrigonometricKernel, laplace
    >>> class Poisson(Likelihood):  # counts, whose rate has the logarithm nu
    ...     def log_density(self, nu, data):
    ...         log_p = data.targets * nu - nu.exp() - torch.lgamma(data.targets + 1)
    ...         return log_p @ data.weights
    ...     def derivatives(self, nu, data):
    ...         return data.weights * (data.targets - nu.exp()), -data.weights * nu.exp()
    >>> x = torch.linspace(-1, 1, 60, dtype=torch.float64)
    >>> prior = ISGP(TrigonometricKernel(a=3.0, c=0.25))
    >>> laplace(prior, Poisson(), x, (1 + x).exp().round()).mean(x[::59]).exp().round().tolist()
    [1.0, 7.0]
    """

    hyper_parameters: ClassVar[Mapping[str, tuple[float, float]]] = {}
    exact_expectation: ClassVar[bool] = False

    def replace(self, **values: Tensor) -> Self:
        """The same likelihood with other values of its hyper-parameters."""
        other = copy.copy(self)
        for name, value in values.items():
            setattr(other, name, value)
        return other

    def condense(
        self, features: Features, x: Tensor, y: Tensor, sample_weight: Tensor | None = None
    ) -> Observations:
        """The data in as few rows as the likelihood needs: here all."""
        weight = torch.ones_like(y) if sample_weight is None else sample_weight
        return Observations(features(x), y, weight)

    @abstractmethod
    def log_density(self, nu: Tensor, data: Observations) -> Tensor:
        """The log density of all data, constants included: (..., rows) to (...)."""

    @abstractmethod
    def derivatives(self, nu: Tensor, data: Observations) -> tuple[Tensor, Tensor]:
        """First and second derivative of the log density by each nu: (rows,) twice."""

    def expected_log_density(
        self, mean: Tensor, variance: Tensor, data: Observations
    ) -> Tensor | None:
        """The mean of the log density by nu's moments, or a lower bound; None if unknown."""
        return None


class Gaussian(Likelihood):
    """Targets with independent Gaussian noise of precision alpha, eqs. (17) and (18).

    Parameters
    ----------
    alpha : float or scalar Tensor, default=1
        Positive and finite (or a ValueError), in inverse squared units of the target.

    Examples
    --------
    >>> from bayesloss import Gaussian
    >>> Gaussian(alpha=4.0)  # a standard deviation of 0.5
    Gaussian(alpha=4)
    """

    hyper_parameters = {"alpha": (1e-10, 1e10)}  # noqa: RUF012
    exact_expectation = True  # the log density is quadratic in nu

    def __init__(self, alpha: float | Tensor = 1.0) -> None:
        self.alpha = as_positive(alpha, "alpha")

    def __repr__(self) -> str:
        return f"Gaussian(alpha={as_number(self.alpha):.4g})"

    def condense(
        self, features: Features, x: Tensor, y: Tensor, sample_weight: Tensor | None = None
    ) -> Observations:
        """Rotate n rows into at most F + 1 of the same squared error, the last the residual."""
        weight = torch.ones_like(y) if sample_weight is None else sample_weight
        return self.of_triangle(triangle(features, x, y, weight), float(weight.sum()))

    @staticmethod
    def of_triangle(folded: Tensor, total: float) -> Observations:
        """The data whose weighted (features, y) have this triangular factor, and this weight."""
        size = folded.shape[1] - 1
        # Directions that the data do not move, to rounding error, go: on half a period more than a
        # third of them. What is left of the target there is residual.
        left, values, right = torch.linalg.svd(folded[:, :size], full_matrices=False)
        kept = values > torch.finfo(values.dtype).eps * values[0]
        left = left[:, kept]
        values = values[kept]
        right = right[kept]
        explained = left.T @ folded[:, size]
        residual = torch.linalg.vector_norm(folded[:, size] - left @ explained)
        targets = torch.cat([explained, residual[None]])
        features = torch.cat([values[:, None] * right, right.new_zeros((1, size))])
        # The rows are weighted already: of these weights only the sum counts.
        weights = torch.full_like(targets, total / len(targets))
        return Observations(features, targets, weights)

    def log_density(self, nu: Tensor, data: Observations) -> Tensor:
        squares = ((nu - data.targets) ** 2).sum(dim=-1)
        constant = 0.5 * data.weights.sum() * (torch.log(self.alpha) - math.log(2 * math.pi))
        return constant - 0.5 * self.alpha * squares  # eqs. (17) and (18), summed

    def derivatives(self, nu: Tensor, data: Observations) -> tuple[Tensor, Tensor]:
        return self.alpha * (data.targets - nu), -self.alpha.expand(nu.shape)  # of eq. (18) by nu

    def expected_log_density(self, mean: Tensor, variance: Tensor, data: Observations) -> Tensor:
        return self.log_density(mean, data) - 0.5 * self.alpha * variance.sum()


class Bernoulli(Likelihood):
    """Labels 0 and 1, the probability of a 1 being the inverse canonical link of nu, eq. (19).

    Parameters
    ----------
    loss : ProperLoss, optional
        Its canonical link must be onto all real numbers (or a ValueError); by default the log loss,
        whose inverse link is the sigmoid.

    Examples
    --------
    >>> from bayesloss import Bernoulli, SkewedLogLoss
    >>> Bernoulli(SkewedLogLoss(3))
    Bernoulli(SkewedLogLoss(power=3))
    """

    def __init__(self, loss: ProperLoss | None = None) -> None:
        self.loss = LogLoss() if loss is None else loss
        self.loss.log_probabilities(0.0)  # refuses bounded links

    def __repr__(self) -> str:
        return f"Bernoulli({self.loss!r})"

    def condense(
        self, features: Features, x: Tensor, y: Tensor, sample_weight: Tensor | None = None
    ) -> Observations:
        odd = (y != 0) & (y != 1)
        if odd.any():
            raise ValueError(f"expected labels 0 and 1, got {float(y[odd][0])} among {len(y)}")
        return super().condense(features, x, y, sample_weight)

    @staticmethod
    def shares(x: Tensor, y: Tensor, sample_weight: Tensor, nodes: Tensor) -> Tensor:
        """The data on equally spaced nodes that cover x: each node's weight, and its ones' (2, G).

        Each datum is shared between its neighbours. With spacing h its log likelihood is wrong by
        less than h^2 / 8 times the largest second derivative of log p(y | nu(x)) in x.
        """
        last = len(nodes) - 1
        totals = nodes.new_zeros((2, len(nodes)))
        size = max(1, len(x))
        if x.device.type == "cpu":
            size = _MANY
        blocks = zip(x.split(size), y.split(size), sample_weight.split(size), strict=True)
        for points, labels, weight in blocks:
            position = ((points - nodes[0]) * (last / (nodes[-1] - nodes[0]))).clamp_(0, last)
            cell = position.to(torch.int64).clamp_(max=last - 1)
            fraction = position.sub_(cell)  # of the way to the node above
            _add_shares(totals[0], cell, fraction, weight)
            _add_shares(totals[1], cell, fraction, weight * labels)
        return totals

    @staticmethod
    def on_grid(features: Features, nodes: Tensor, shares: Tensor) -> Observations:
        """The data with these :meth:`shares`."""
        weights, ones = shares
        kept = weights > 0
        return Observations(features(nodes[kept]), ones[kept] / weights[kept], weights[kept])

    def log_density(self, nu: Tensor, data: Observations) -> Tensor:
        value, _, _ = self.loss.log_probabilities(nu)
        return (data.weights * _mix(data.targets, value)).sum(dim=-1)  # eq. (19), summed

    def derivatives(self, nu: Tensor, data: Observations) -> tuple[Tensor, Tensor]:
        _, first, second = self.loss.log_probabilities(nu)
        return data.weights * _mix(data.targets, first), data.weights * _mix(data.targets, second)

    def expected_log_density(
        self, mean: Tensor, variance: Tensor, data: Observations
    ) -> Tensor | None:
        """A lower bound on the mean of the log probability, for the log loss; otherwise None.

        Jaakkola and Jordan (2000), for any distribution of nu: with xi^2 = E nu^2,

            E log sigma(+-nu) >= log sigma(xi) + (+-E nu - xi) / 2.
        """
        if not isinstance(self.loss, LogLoss):
            return None
        sign = 2 * data.targets - 1
        xi = torch.sqrt(mean**2 + variance)
        bound = torch.nn.functional.logsigmoid(xi) + (sign * mean - xi) / 2
        return (data.weights * bound).sum()


def normal_average(
    likelihood: Likelihood, mean: Tensor, variance: Tensor, data: Observations, n: int
) -> Tensor:
    """The mean log density of normal nu, each datum at n nodes."""
    nodes, node_weights = gauss_hermite(n)
    nodes = nodes.to(mean.device)
    node_weights = node_weights.to(mean.device)
    nu = (mean + nodes[:, None] * variance.sqrt()).flatten()
    weights = (node_weights[:, None] * data.weights).flatten()
    repeated = Observations(data.features, data.targets.repeat(n), weights)
    return likelihood.log_density(nu, repeated)


def _add_shares(total: Tensor, cell: Tensor, fraction: Tensor, values: Tensor) -> None:
    """Add to each datum's two nodes its value's shares: the nearer, the more."""
    upper = values * fraction
    total.scatter_add_(0, cell, values - upper)
    total[1:].scatter_add_(0, cell, upper)


def _mix(share_of_ones: Tensor, by_label: Tensor) -> Tensor:
    return (1 - share_of_ones) * by_label[0] + share_of_ones * by_label[1]
