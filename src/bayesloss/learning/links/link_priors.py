"""Priors of links: as given, or a family from which Laplace's evidence chooses.

As f is periodic, a kernel's c puts the scores of the fixed link in half of [-1/c, 1/c]. If neither
variance nor smoothness is given, the evidence chooses. ISGPs are then centred on a straight line,
and with few data a fit is near a logistic regression on the scale that held-out scores ask for.
"""

from dataclasses import dataclass
from itertools import product

from torch import Tensor

from bayesloss.learning.data.range_map import robust_reach
from bayesloss.learning.evidence.evidence import SMOOTHNESS, at_smoothness
from bayesloss.learning.sources.priors import GP, ISGP, CentredISGP, PriorName, SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.warnings import warn_caller

# The family that the evidence chooses from: the variance of f about its level, which has to be
# below 1 - tau^2 = 0.75, down to links that are nearly lines; and a, for a rough link and one that
# varies on four times the scale, log(a) / (pi c).
_VARIANCES = (0.3, 0.1, 0.02)
_MEMBERS = tuple(product(_VARIANCES, (1.25, 2.5)))
_PAPERS_A = 1.2  # W&N section 5
_PAPERS_N_BASIS = 64  # M, W&N section 5
_FILLED = 0.5  # the part of [-1/c, 1/c] that the scores of the fixed link span
_FAR_OFF = 1e3  # how much more or less of it they may span where c is given
_NOTHING = 1e-100  # scores that reach no farther make c = 1 as good as any


@dataclass(frozen=True)
class LinkPriors:
    """The parameters of a link's prior; None for what is taken from the data."""

    kind: PriorName
    n_given: int | None
    a: float | None
    c: float | None
    variance: float | None  # k(0, 0)
    gamma: float  # the prior precision of nu_0

    @property
    def chosen(self) -> bool:
        """Whether the evidence chooses the prior."""
        return self.a is None and (self.kind == "gp" or self.variance is None)

    @property
    def centred(self) -> bool:
        """Whether the prior is centred on a straight line."""
        return self.chosen and self.kind == "isgp"

    @property
    def robust(self) -> bool:
        """Whether a few scores may lie beyond the period."""
        return self.chosen and self.c is None

    @property
    def n_basis(self) -> int:
        """The number of basis functions."""
        if self.n_given:
            return self.n_given
        return 32 if self.chosen else _PAPERS_N_BASIS

    @property
    def n_parameters(self) -> int:
        """The number of parameters Gamma."""
        return self.n_basis + (2 if self.centred else 1)

    def first(self, scores: Tensor, weight: Tensor) -> SourcePrior:
        """The prior of one problem's nu, by its fixed link's scores; of a family, the stiffest."""
        reach = float(scores.abs().max())
        if self.robust:
            reach = robust_reach(scores.numpy(), weight.numpy())
        c = self._c_for(reach)
        if self.centred:
            return self._centred(c, *_MEMBERS[-1])
        kernel = TrigonometricKernel(a=self.a or _PAPERS_A, c=c, n_basis=self.n_basis)
        if self.kind == "isgp":
            return ISGP(kernel.scaled(self.variance or 1.0), gamma=self.gamma)
        near = scores
        if self.robust:
            near = scores.clamp(-kernel.edge, kernel.edge)
        mean_square = float(weight @ near**2 / weight.sum())
        return GP(kernel.scaled(self.variance or max(mean_square, 1.0)), gamma=self.gamma)

    def family(self, prior: SourcePrior) -> list[SourcePrior]:
        """The priors with the c of this one to choose from, the stiffest last."""
        if not self.centred:
            return [at_smoothness(prior, a) for a in SMOOTHNESS]
        return [self._centred(prior.kernel.c, variance, a) for variance, a in _MEMBERS]

    def _centred(self, c: float, variance: float, a: float) -> CentredISGP:
        kernel = TrigonometricKernel(a=a, c=c, n_basis=self.n_basis).scaled(variance)
        return CentredISGP(kernel, tau=0.5, gamma=self.gamma)  # slopes lie in 0 to 4 or so

    def _c_for(self, reach: float) -> float:
        """The c of a kernel for scores within [-reach, reach]; a given c must not be far off."""
        if self.c is None:
            return _FILLED / reach if reach > _NOTHING else 1.0
        least = 1 / (_FAR_OFF * max(reach, 1.0))
        most = _FAR_OFF / max(reach, _NOTHING)
        if not least <= self.c <= most:
            raise ValueError(
                f"expected c within {least:.3g} and {most:.3g}, for scores that reach {reach:.3g} "
                f"under the fixed link, got c={self.c:g}"
            )
        if self.c * reach > 1:
            warn_caller(
                f"scores reach {reach:.3g} under the fixed link, and the kernel's period ends at "
                f"1/c = {1 / self.c:.3g}: lower c to {_FILLED / reach:.2g}, or leave it out"
            )
        return self.c
