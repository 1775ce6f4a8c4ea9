"""Choice among priors by Laplace's evidence, round after round.

Priors that differ only in hyper-parameters share the parameters Gamma, so each search begins at the
mode of the last, the stiffest prior first. A prior clearly behind is not looked at again.
"""

from collections.abc import Mapping

from torch import Tensor

from bayesloss.learning.inference.log_joint import LogDensity
from bayesloss.learning.inference.newton import Mode, find_modes

_NEAR = 1e-6  # nats that a mode may be short of: no evidence feels them


def choose_prior(
    joints: Mapping[int, LogDensity], known: Mapping[int, Tensor], start: Tensor, behind: float
) -> tuple[int, float, dict[int, Mode]]:
    """The best prior's place, its evidence, and the modes of those less than ``behind`` worse."""
    modes = find_modes(joints, start, known, exact=_NEAR)
    values = {
        i: float(joints[i].log_evidence(mode.Gamma, mode.curvature)) for i, mode in modes.items()
    }
    best = max(values, key=lambda i: values[i])
    near = {i: mode for i, mode in modes.items() if values[i] >= values[best] - behind}
    return best, values[best], near
