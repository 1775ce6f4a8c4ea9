"""Stored rows of this book that are to be made anew."""

from paperledger.stores.stale import Stale

_LINK = "linkgistic regression fitted links to approximate leave-one-out scores"
_OURS = {"method": ("linkgistic", "one against the rest")}
_HELD_OUT = {"method": ("held-out ISGP",)}

STALE: dict[str, Stale] = {
    "learning_curves": Stale("d978bc930", _LINK, _HELD_OUT),
}
