r"""Proper losses: four of them, each with its link, its weight and its conjugate (W&N section 2).

A loss :math:`\ell(y, u)` is paid when the label y, -1 or 1, meets u, the predicted probability of
y = 1. Three functions determine a proper loss, and each other:

* its Bayes risk, the concave :math:`\underline{L}(\pi) = \inf_u E_\pi\, \ell(Y, u)`;
* its canonical link :math:`-\underline{L}'`, which takes probabilities to scores;
* its weight :math:`-\underline{L}''`, the slope of that link.

Equation (1) needs :math:`\underline{L}(0) = \underline{L}(1) = 0`: a certain and right prediction
costs nothing. Values at u = 0, u = 1 and infinite scores are limits, never ``nan``; derivatives are
for 0 < u < 1.
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from bayesloss.tensors import as_canonical_scores, as_labels, as_probabilities


class LogProbability(NamedTuple):
    """The log of a probability as a function of the score, and its derivatives."""

    value: Tensor
    first: Tensor
    second: Tensor


class ProperLoss(ABC):
    """A strictly proper loss for two classes, with its canonical link.

    Arguments are tensors, arrays or numbers that broadcast; results are float64 tensors that keep
    gradients. Probabilities outside [0, 1], ``nan`` and labels other than -1, 1 raise a ValueError.

    Attributes
    ----------
    link_range, symmetric : tuple of float, bool
        The range of the canonical link; whether both labels cost alike.

    Examples
    --------
    >>> from bayesloss import LogLoss, ProperLoss
    >>> loss: ProperLoss = LogLoss()
    >>> loss.divergence(0.5, [0.5, 0.9]).round(decimals=3).tolist()  # what a wrong guess costs
    [0.0, 0.511]
    """

    link_range: tuple[float, float] = (-math.inf, math.inf)
    symmetric: bool = True

    def loss(self, y: ArrayLike | Tensor, u: ArrayLike | Tensor) -> Tensor:
        """What the prediction u costs when the label turns out to be y, -1 or 1."""
        minus, plus = self._partial_losses(as_probabilities(u))
        return torch.where(as_labels(y) > 0, plus, minus)

    def conditional_risk(self, pi: ArrayLike | Tensor, u: ArrayLike | Tensor) -> Tensor:
        """The expected loss of the prediction u when y = 1 has probability pi."""
        minus, plus = self._partial_losses(as_probabilities(u))
        return _expected(as_probabilities(pi), minus, plus)

    def bayes_risk(self, pi: ArrayLike | Tensor) -> Tensor:
        """The least expected loss when y = 1 has probability pi: by properness, that of pi."""
        return self.conditional_risk(pi, pi)

    def canonical_link(self, u: ArrayLike | Tensor) -> Tensor:
        """The score of a probability: minus the derivative of the Bayes risk."""
        return self._link(as_probabilities(u))

    def inverse_canonical_link(self, a: ArrayLike | Tensor) -> Tensor:
        """The probability of a score; 0 or 1 outside the range of the link."""
        return self._inverse_link(as_canonical_scores(a))

    def weight(self, u: ArrayLike | Tensor) -> Tensor:
        """Minus the second derivative of the Bayes risk: the price of an error near u."""
        return self._weight(as_probabilities(u))

    def conjugate(self, a: ArrayLike | Tensor) -> Tensor:
        """The Legendre conjugate of minus the Bayes risk: sup over u in [0, 1] of a u + L(u)."""
        return self._conjugates(as_canonical_scores(a))[0]

    def canonical_loss(self, y: ArrayLike | Tensor, a: ArrayLike | Tensor) -> Tensor:
        """What the score a costs, second form of (1); beyond the link's range a straight line."""
        minus, plus = self._conjugates(as_canonical_scores(a))
        return torch.where(as_labels(y) > 0, plus, minus)

    def log_probabilities(self, a: ArrayLike | Tensor) -> LogProbability:
        """The log probabilities of the labels -1 and 1 at finite scores a, and their derivatives.

        Three tensors of shape (2, ...): log(1 - u) and log u, then first and second derivatives by
        a, accurate in both tails. A bounded canonical link raises a ValueError.
        """
        a = as_canonical_scores(a)
        minus = self._log_complement(a)
        plus = self._log_probability(a)
        value = torch.stack([minus.value, plus.value])
        first = torch.stack([minus.first, plus.first])
        second = torch.stack([minus.second, plus.second])
        return LogProbability(value, first, second)

    def log_likelihood(self, y: ArrayLike | Tensor, a: ArrayLike | Tensor) -> tuple[Tensor, Tensor]:
        """The log probability of the label y (-1 or 1) at a finite score a, and its slope."""
        y = as_labels(y)
        if self.symmetric:  # 1 - u(a) = u(-a)
            log = self._log_probability(y * as_canonical_scores(a))
            return log.value, y * log.first
        log = self.log_probabilities(a)
        value = torch.where(y > 0, log.value[1], log.value[0])
        first = torch.where(y > 0, log.first[1], log.first[0])
        return value, first

    def divergence(self, p: ArrayLike | Tensor, u: ArrayLike | Tensor) -> Tensor:
        """The Bregman divergence of minus the Bayes risk: first form of (1), limits included."""
        return self.conditional_risk(p, u) - self.bayes_risk(p)

    def dual_divergence(self, a: ArrayLike | Tensor, b: ArrayLike | Tensor) -> Tensor:
        """Second form of (1), with limits: ``conjugate(a) - a q - bayes_risk(q)``, q from b."""
        q = self.inverse_canonical_link(b)
        minus, plus = self._conjugates(as_canonical_scores(a))
        return _expected(q, minus, plus) - self.bayes_risk(q)

    @abstractmethod
    def _partial_losses(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of u when the label is -1, and when it is 1."""

    @abstractmethod
    def _link(self, u: Tensor) -> Tensor:
        """The score of the probability u."""

    @abstractmethod
    def _inverse_link(self, a: Tensor) -> Tensor:
        """The probability of the score a."""

    @abstractmethod
    def _weight(self, u: Tensor) -> Tensor:
        """The slope of the link at the probability u."""

    @abstractmethod
    def _conjugates(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """The conjugate at a, and the same less a, each without cancellation."""

    def _log_probability(self, a: Tensor) -> LogProbability:
        """The log of the inverse link, for a link onto all real numbers."""
        raise ValueError(
            "expected a loss whose canonical link maps onto all real numbers, got "
            f"{self!r} with a link onto {list(self.link_range)}"
        )

    def _log_complement(self, a: Tensor) -> LogProbability:
        """The same for one minus the inverse link: of a symmetric loss the inverse link of -a."""
        log = self._log_probability(-a)
        return LogProbability(log.value, -log.first, log.second)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class LogLoss(ProperLoss):
    """The log loss, whose canonical link is the logit: L = -pi log pi - (1 - pi) log(1 - pi).

    Examples
    --------
    >>> from bayesloss import LogLoss
    >>> LogLoss().canonical_link([0.25, 0.5]).round(decimals=3).tolist()
    [-1.099, 0.0]
    """

    def _partial_losses(self, u: Tensor) -> tuple[Tensor, Tensor]:
        return 0 - torch.log1p(-u), 0 - torch.log(u)  # 0 - 0 is 0, and not -0

    def _link(self, u: Tensor) -> Tensor:
        return torch.log(u) - torch.log1p(-u)

    def _inverse_link(self, a: Tensor) -> Tensor:
        return torch.sigmoid(a)

    def _weight(self, u: Tensor) -> Tensor:
        return 1 / (u * (1 - u))

    def _conjugates(self, a: Tensor) -> tuple[Tensor, Tensor]:
        return _softplus(a), _softplus(-a)

    def _log_probability(self, a: Tensor) -> LogProbability:
        u = torch.sigmoid(a)
        rest = torch.sigmoid(-a)
        return LogProbability(value=-_softplus(-a), first=rest, second=-u * rest)


class SquareLoss(ProperLoss):
    """The square loss, L = pi (1 - pi); its canonical link 2u - 1 stays within [-1, 1].

    Examples
    --------
    >>> from bayesloss import SquareLoss
    >>> SquareLoss().inverse_canonical_link([-2.0, 0.0, 0.5]).tolist()
    [0.0, 0.5, 0.75]
    """

    link_range = (-1.0, 1.0)

    def _partial_losses(self, u: Tensor) -> tuple[Tensor, Tensor]:
        return u**2, (1 - u) ** 2

    def _link(self, u: Tensor) -> Tensor:
        return 2 * u - 1

    def _inverse_link(self, a: Tensor) -> Tensor:
        return (1 + self._held(a)) / 2

    def _weight(self, u: Tensor) -> Tensor:
        return torch.full_like(u, 2.0)

    def _conjugates(self, a: Tensor) -> tuple[Tensor, Tensor]:
        inside = self._held(a)
        beyond = a - inside
        minus = (1 + inside) ** 2 / 4 + torch.where(a > 1, beyond, 0.0)
        plus = (1 - inside) ** 2 / 4 + torch.where(a < -1, -beyond, 0.0)
        return minus, plus

    def _held(self, a: Tensor) -> Tensor:
        # Not by clamp, whose gradient at its bounds is a convention: the conjugate is smooth there.
        return torch.where(a.abs() <= 1, a, a.detach().sign())


class MatsushitaLoss(ProperLoss):
    """Matsushita's loss, L = 2 sqrt(pi (1 - pi)).

    The exponential loss of boosting, exp(-y x), is this with the link x = log(u / (1 - u)) / 2.

    Examples
    --------
    >>> from bayesloss import MatsushitaLoss
    >>> MatsushitaLoss().loss([-1, 1], 0.2).round(decimals=9).tolist()  # sqrt(odds), 1 / sqrt(odds)
    [0.5, 2.0]
    """

    def _partial_losses(self, u: Tensor) -> tuple[Tensor, Tensor]:
        root = torch.sqrt(u)
        rest_root = torch.sqrt(1 - u)
        return root / rest_root, rest_root / root

    def _link(self, u: Tensor) -> Tensor:
        return (2 * u - 1) / torch.sqrt(u * (1 - u))

    def _inverse_link(self, a: Tensor) -> Tensor:
        # u = (1 + a / root) / 2 with root = sqrt(a^2 + 4), from the smaller of u and 1 - u.
        half_root, half = self._halves(a)
        tail = 0.5 / half_root / (half_root + half)  # 2 / (root (root + |a|))
        return torch.where(a < 0, tail, 1 - tail)

    def _weight(self, u: Tensor) -> Tensor:
        return 0.5 * (u * (1 - u)) ** -1.5

    def _conjugates(self, a: Tensor) -> tuple[Tensor, Tensor]:
        half_root, half = self._halves(a)
        large = half_root + half  # (root + |a|) / 2; the other is (root - |a|) / 2
        minus = torch.where(a < 0, 1 / large, large)
        plus = torch.where(a < 0, large, 1 / large)
        return minus, plus

    def _log_probability(self, a: Tensor) -> LogProbability:
        # log((root + a) / (2 root)); its slopes (root - a) / root^2 and
        # -(root - a) (root + 2 a) / root^4. By t = |a| / root every power of root can underflow,
        # and nothing overflows; log u = log(1 - tail) for a > 0, and else the log of the tail.
        half_root, half = self._halves(a)
        r = 1 / half_root
        t = half * r
        tail = 0.5 * r * r / (1 + t)
        log = torch.log1p(torch.where(a < 0, t, -tail))
        value = torch.where(a < 0, -math.log(2) - 2 * half_root.log() - log, log)
        first = torch.where(a < 0, (1 + t) / 2, tail) * r
        second = torch.where(a < 0, (1 + t) * (2 * t - 1) / 4, -tail * (1 + 2 * t) / 2) * r * r
        return LogProbability(value, first, second)

    def _halves(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Half of root = sqrt(a^2 + 4) and half of |a|: their sum is finite for finite scores."""
        # The sign is a constant, +1 at 0: so no convention for the slope of |a| at 0 is used.
        half = torch.where(a < 0, -0.5, 0.5) * a
        return torch.hypot(half, torch.ones_like(half)), half


class SkewedLogLoss(ProperLoss):
    """An asymmetric loss: its inverse canonical link is a power of the sigmoid (scobit).

    With s = u^(1/k) and H = 1 + 1/2 + ... + 1/(k - 1), the link is log(s / (1 - s)) - H, and

        loss(-1, u) = -log(1 - s) - sum_{j<k} s^j / j,
        loss(1, u) = -log s + sum_{j<k} (1 - s^j) / j.

    Parameters
    ----------
    power : int, default=3
        k, at least 1 (or a ValueError): 1 is the log loss, and the larger, the less a missed 1
        costs compared with a false alarm.

    Examples
    --------
    >>> from bayesloss import SkewedLogLoss
    >>> SkewedLogLoss(power=3).inverse_canonical_link(-1.5)  # sigmoid(a + 3/2) cubed
    tensor(0.1250, dtype=torch.float64)
    """

    def __init__(self, power: int = 3) -> None:
        if int(power) != power or power < 1:
            raise ValueError(f"expected an integer power of at least 1, got {power}")
        self.power = int(power)
        self.symmetric = self.power == 1
        self._shift = sum(1 / j for j in range(1, self.power))

    def __repr__(self) -> str:
        return f"SkewedLogLoss(power={self.power})"

    def _partial_losses(self, u: Tensor) -> tuple[Tensor, Tensor]:
        log_s = torch.log(u) / self.power
        log_rest = torch.log(-torch.expm1(log_s))
        return self._minus(log_s, log_rest), self._plus(log_s)

    def _link(self, u: Tensor) -> Tensor:
        log_s = torch.log(u) / self.power
        return log_s - torch.log(-torch.expm1(log_s)) - self._shift

    def _inverse_link(self, a: Tensor) -> Tensor:
        return torch.exp(-self.power * _softplus(-(a + self._shift)))

    def _weight(self, u: Tensor) -> Tensor:
        return 1 / (self.power * u * torch.expm1(torch.log(u) / self.power).abs())

    def _conjugates(self, a: Tensor) -> tuple[Tensor, Tensor]:
        b = a + self._shift
        log_s = -_softplus(-b)
        return self._minus(log_s, -_softplus(b)), self._plus(log_s)

    def _log_probability(self, a: Tensor) -> LogProbability:
        k = self.power
        b = a + self._shift
        s = torch.sigmoid(b)
        rest = torch.sigmoid(-b)
        return LogProbability(value=-k * _softplus(-b), first=k * rest, second=-k * s * rest)

    def _log_complement(self, a: Tensor) -> LogProbability:
        # 1 - s^k = (1 - s) total, total = 1 + s + ... + s^(k - 1): no small difference is taken.
        k = self.power
        b = a + self._shift
        s = torch.sigmoid(b)
        rest = torch.sigmoid(-b)
        u = self._inverse_link(a)
        total = torch.stack([s**j for j in range(k)]).sum(0)
        spread = torch.stack([(k - j) * s**j for j in range(k)]).sum(0)
        value = torch.where(s < 0.5, torch.log1p(-u), torch.log(total) - _softplus(b))
        first = -k * u / total
        second = -k * u * rest * spread / total**2
        return LogProbability(value, first, second)

    def _minus(self, log_s: Tensor, log_rest: Tensor) -> Tensor:
        """The loss of the label -1, from log s and log(1 - s)."""
        s = torch.exp(log_s)
        direct = -log_rest - sum(s**j / j for j in range(1, self.power))
        # For small s the difference cancels; what is left are the further terms of the series, of
        # which 18 suffice: 0.1^18 is below the last digit of 1.
        small = s.clamp(max=0.1)
        series = small**self.power * sum(small**i / (self.power + i) for i in range(18))
        return torch.where(s < 0.1, series, direct)

    def _plus(self, log_s: Tensor) -> Tensor:
        """The loss of the label 1, from log s."""
        return -log_s + sum(-torch.expm1(j * log_s) / j for j in range(1, self.power))


def _expected(pi: Tensor, minus: Tensor, plus: Tensor) -> Tensor:
    """The mean of two costs; a label of probability 0 costs nothing, even an infinite loss."""
    return _weighted(pi, plus) + _weighted(1 - pi, minus)


def _weighted(probability: Tensor, cost: Tensor) -> Tensor:
    product = probability * cost
    return torch.where(probability == 0, torch.zeros_like(product), product)


def _softplus(a: Tensor) -> Tensor:
    # Linear above 40, where it is so to the last digit; torch's default, 20, is right to 2e-9 only.
    return torch.nn.functional.softplus(a, threshold=40)
