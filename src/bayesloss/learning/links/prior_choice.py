"""Choice among priors by Laplace's evidence, round after round.

Priors that differ only in hyper-parameters share the parameters Gamma. So the search under each
begins at the mode of the last, from the stiffest prior, with few modes, to the most flexible.
Evidences move together in later rounds: a prior clearly behind is not looked at again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor

from bayesloss.learning.inference.log_joint import LogDensity
from bayesloss.learning.inference.newton import Mode, find_modes

_NEAR = 1e-6  # nats that a mode may be short of: no evidence feels them
J = TypeVar("J", bound=LogDensity)


@dataclass(frozen=True)
class Choice(Generic[J]):
    """The density with the highest evidence, its mode, and those of all priors not far behind."""

    joint: J
    mode: Mode
    log_evidence: float
    modes: dict[int, Tensor]


def choose_prior(
    joints: Mapping[int, J], modes: Mapping[int, Tensor], start: Tensor, behind: float
) -> Choice[J]:
    """The prior with the highest evidence among joint densities by index, the stiffest last.

    ``modes`` are those of the round before; a prior without one, or ``behind`` the best, is out.
    """
    found = find_modes(joints, start, modes, exact=_NEAR)
    values = {
        i: float(joints[i].log_evidence(mode.Gamma, mode.curvature)) for i, mode in found.items()
    }
    best = max(values, key=lambda i: values[i])
    near = {i: found[i].Gamma for i, value in values.items() if value >= values[best] - behind}
    return Choice(joints[best], found[best], values[best], near)
