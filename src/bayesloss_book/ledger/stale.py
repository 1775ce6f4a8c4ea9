"""Stored rows of this book that are to be made anew."""

from paperledger.stores.stale import Stale

# Whose cells have other code than when they were run with other seeds.
CHANGED_PAGES = (
    "beyond/both",
    "beyond/costs_unknown",
    "beyond/multiclass",
    "beyond/variational",
    "calibrating/decision_theory",
    "calibrating/gp_classification",
    "calibrating/loss_em",
    "course/problems_1",
    "course/problems_2",
    "course/problems_3",
    "course/problems_4",
    "course/problems_5",
    "course/problems_6",
    "course/problems_7",
    "course/problems_8",
    "guide/calibration_methods",
    "guide/scores_and_costs",
    "guide/your_own_data",
    "index",
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
