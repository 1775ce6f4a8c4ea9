"""Stored rows of this book that are to be made anew."""

from paperledger.stores.stale import Stale

_LINK = "linkgistic regression fitted links to approximate leave-one-out scores"
_MANY = (
    "SoftmaxCalibrator used all of matrix and sources, had no map of tails and centred its logits"
)
_OURS = {"method": ("linkgistic", "one against the rest")}
_HELD_OUT = {"method": ("held-out ISGP",)}

STALE: dict[str, Stale] = {
    "calibration_methods": Stale("d978bc930", _LINK, _HELD_OUT),
    "calibrators_many": Stale("4ed058162", _MANY),  # the columns of "link", in every row
    "calibrators_many_bands": Stale("4ed058162", _MANY),
    "fit_cost": Stale("d978bc930", _LINK, _OURS),
    "fit_cost_sparse": Stale("d978bc930", _LINK, _OURS),
    "fit_cost_ten": Stale("d978bc930", _LINK, _OURS),
    "learning_curves": Stale("d978bc930", _LINK, _HELD_OUT),
    "multiclass": Stale("d978bc930", _LINK),
    "penalties": Stale("d978bc930", _LINK),
    # "our calibrator" is of commit 4ed058162, and stale where there are several classes.
    "when_to_use": Stale(
        "d978bc930", _LINK, {"method": ("linkgistic", "linkgistic CV", "our calibrator")}
    ),
}
