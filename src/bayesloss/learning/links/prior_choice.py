"""One choice among priors, by Laplace's evidence, round after round.

Priors that differ in their hyper-parameters alone have the same parameters Gamma, so the mode under
one is where the search under the next begins, from the stiffest, which has few modes, to the most
flexible. Evidences of one family move together as the weights do, so that a prior which is clearly
behind has no chance in later rounds, and is not looked at again.
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
    """The density with the highest evidence, its mode, and the modes of all that are not behind.

    Priors go by their places in the family.
    """

    place: int
    joint: J
    mode: Mode
    log_evidence: float
    modes: dict[int, Tensor]


def choose_prior(
    joints: Mapping[int, J], modes: Mapping[int, Tensor], start: Tensor, behind: float
) -> Choice[J]:
    """The prior with the highest evidence among those of the joint densities, the stiffest last.

    ``modes`` are those known from the round before; a prior without a mode, or so many nats behind
    the best, is out.
    """
    found = find_modes(joints, start, modes, exact=_NEAR)
    values = {
        i: float(joints[i].log_evidence(mode.Gamma, mode.curvature)) for i, mode in found.items()
    }
    best = max(values, key=lambda i: values[i])
    near = {i: found[i].Gamma for i, value in values.items() if value >= values[best] - behind}
    return Choice(best, joints[best], found[best], values[best], near)
