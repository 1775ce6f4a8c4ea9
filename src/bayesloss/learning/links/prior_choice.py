"""Choice among priors by Laplace's evidence, round after round.

Priors that differ only in hyper-parameters share the parameters Gamma. So the search under each
begins at the mode of the last, from the stiffest prior, with few modes, to the most flexible.
Evidences move together in later rounds: a prior clearly behind is not looked at again.
"""

from collections.abc import Mapping

from torch import Tensor

from bayesloss.learning.inference.log_joint import LogDensity
from bayesloss.learning.inference.newton import Mode, find_modes

_NEAR = 1e-6  # nats that a mode may be short of: no evidence feels them


def choose_prior(
    joints: Mapping[int, LogDensity], known: Mapping[int, Tensor], start: Tensor, behind: float
) -> tuple[int, float, dict[int, Mode]]:
    """The prior with the highest evidence, this evidence, and the modes of those near it.

    Joint densities have indices, the stiffest prior the last. Modes are ``known`` of the round
    before; a prior without one, or ``behind`` the best, is out.
    """
    modes = find_modes(joints, start, known, exact=_NEAR)
    values = {
        i: float(joints[i].log_evidence(mode.Gamma, mode.curvature)) for i, mode in modes.items()
    }
    best = max(values, key=lambda i: values[i])
    near = {i: mode for i, mode in modes.items() if values[i] >= values[best] - behind}
    return best, values[best], near
