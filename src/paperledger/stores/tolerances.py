"""How much stored measures may differ when they are measured again, and why.

Most agree to six digits on every processor. Some experiments magnify rounding, which differs with
the order in which a processor adds: chains part ways, a search goes to another end, a near tie is
decided otherwise. They have tolerances on another kind of processor than the one that stored them,
by the standard errors that the store states where there are any.

A companion's own stand where its configuration says: ``elsewhere``, for another kind of processor,
and ``times``, for what differs on the same one too. Each is a mapping from a store's name to one
from patterns of "measure cell", of which the first that fits counts, to a :class:`Within`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from paperledger.stores.tables import Row


@dataclass(frozen=True)
class Within:
    """How much a measure may differ where a run is chaotic; the three add up.

    ``relative`` is of the larger of the two values; ``absolute`` in the measure's unit; ``error``
    names the measure that states the standard error of this one, of which five are allowed, of the
    difference of two runs; a star in it stands for this one's own name.
    """

    relative: float = 0.0
    absolute: float = 0.0
    error: str = ""

    def allows(self, name: str, then: Row, now: Row) -> bool:
        """Tell whether a measure is what it was; one that was or is absent is not."""
        if name not in then or name not in now:
            return False
        was = float(then[name])
        is_ = float(now[name])
        if not math.isfinite(was) or not math.isfinite(is_):
            return was == is_ or (math.isnan(was) and math.isnan(is_))
        allowed = self.relative * max(abs(was), abs(is_)) + self.absolute
        if self.error:
            error = self.error.replace("*", name)
            allowed += 5 * math.hypot(float(then[error]), float(now[error]))
        return abs(was - is_) <= max(allowed, 1e-12)


def first_fitting(
    within: Mapping[str, Within], measure: str, cell: Mapping[str, Any], default: Within
) -> Within:
    """Return the tolerance of the first pattern that fits "measure cell", or the default."""
    key = f"{measure} {cell}"
    return next((each for pattern, each in within.items() if fnmatchcase(key, pattern)), default)
