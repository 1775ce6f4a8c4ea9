"""Stored rows of this book that are to be made anew."""

from paperledger.stores.stale import Stale

# Whose cells have other code than when they were run with other seeds: those of this commit.
CHANGED_PAGES: tuple[str, ...] = ()
SEEDS_OF = "7cf81b6e9"

STALE: dict[str, Stale] = {}
if CHANGED_PAGES:
    STALE["verdicts_by_seed"] = Stale(
        SEEDS_OF, "the pages' cells have changed since", {"page": CHANGED_PAGES}
    )
