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

from bayesloss.learning.inference.laplace import LogDensity, Mode, find_mode

__all__ = ["Choice", "choose_prior"]

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
    modes: dict[int, Tensor | None]


def choose_prior(
    joints: Mapping[int, J], modes: Mapping[int, Tensor | None], start: Tensor, behind: float
) -> Choice[J]:
    """The prior with the highest evidence among those of the joint densities, the stiffest last.

    A search for a mode begins at the one that this prior had before, or its successor has, and the
    first at ``start``. A prior without a mode, or so many nats behind the best, is out.
    """
    found: dict[int, tuple[float, Mode]] = {}
    for place in sorted(joints, reverse=True):
        before = modes.get(place)
        mode = find_mode(joints[place], start if before is None else before, exact=_NEAR)
        if mode.least_curvature > 0:
            start = mode.Gamma
            found[place] = float(joints[place].log_evidence(start, mode.curvature)), mode
    if not found:
        raise ValueError(f"expected a mode under one of {len(joints)} priors, got none")
    best = max(found, key=lambda place: found[place][0])
    evidence, mode = found[best]
    near = {i: each.Gamma for i, (value, each) in found.items() if value >= evidence - behind}
    return Choice(best, joints[best], mode, evidence, dict(near))
