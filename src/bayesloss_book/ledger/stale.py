"""Stored rows of this book that are to be made anew."""

from paperledger.stores.stale import Stale

# Whose cells have other code than when they were run with other seeds.
CHANGED_PAGES: tuple[str, ...] = (
    "calibrating/loss_em",
    "guide/calibration_methods",
    "learning/held_out_links",
    "learning/isgp",
    "learning/laplace",
    "learning/learning_curves",
    "learning/linkgistic",
)

STALE: dict[str, Stale] = {
    "verdicts_by_seed": Stale(
        "a313a4d7d", "the pages' cells have changed since", {"page": CHANGED_PAGES}
    ),
}
