"""Parameters that LinkgisticClassifier had before the paper's link was an object of its own."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from bayesloss.learning.estimators.paper_link import PaperLink
from bayesloss.warnings import warn_caller

_MOVED = frozenset(PaperLink._parameter_constraints)
_OF_DRAWS = frozenset({"n_samples", "random_state"})  # which alone ask for no other link
_AS_BEFORE = {"a": None, "n_samples": None, "random_state": None}  # defaults that are others now


Init = TypeVar("Init", bound=Callable[..., None])


def with_moved_parameters(init: Init) -> Init:
    """Take parameters that moved to PaperLink, or that are no more, with a FutureWarning."""

    @wraps(init)
    def taking_moved(self: Any, **given: Any) -> None:
        names = sorted(given.keys() & (_MOVED | {"leave_one_out"}))
        moved = {name: given.pop(name) for name in names}
        leave_one_out = moved.pop("leave_one_out", True)
        if names:
            told = "without effect"
            if not leave_one_out or moved.keys() - _OF_DRAWS:
                link = PaperLink(**(_AS_BEFORE | moved))
                given.setdefault("link", link)
                told = f"taken as link={link}, which fits links to training scores"
            warn_caller(
                f"{', '.join(names)}: no longer parameters of {type(self).__name__}, {told}; the "
                "next release refuses them",
                FutureWarning,
            )
        init(self, **given)

    return cast(Init, taking_moved)
