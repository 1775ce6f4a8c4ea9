"""Sphinx extension: what pages without a chapter's number count is numbered A.1, A.2, B.1, ...

In a numbered chapter the third figure is Fig. 2.3. Sphinx counts those of all other pages through,
so that a page would begin with its Fig. 47. Here each such page has a letter, in the order of
reading, and counts for itself: its figures, its theorems, its equations.
"""

import string
from collections.abc import Mapping
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

_AFTER_SPHINX = 900  # has numbered figures; the default is 500

# Of one page: by kind, then by target.
Numbers = Mapping[str, Mapping[str, tuple[int | str, ...]]]


def by_page(numbers: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Return the numbers of those pages whose numbers are of one part, with a letter a page."""
    counted = {
        page: kinds
        for page, kinds in numbers.items()
        if any(len(number) == 1 for kind in kinds.values() for number in kind.values())
    }
    lettered: dict[str, Numbers] = {}
    for letter, (page, kinds) in zip(string.ascii_uppercase, counted.items(), strict=False):
        lettered[page] = {
            kind: {target: (letter, place) for place, target in enumerate(targets, start=1)}
            for kind, targets in kinds.items()
        }
    if len(lettered) < len(counted):
        raise ValueError(f"expected at most 26 pages without a number, got {len(counted)}")
    return lettered


def renumber(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Replace Sphinx's numbers, and return the pages that have to be written again."""
    numbers: Any = env.toc_fignumbers  # Sphinx writes letters as it writes numbers
    lettered = by_page(numbers)
    numbers.update(lettered)
    return list(lettered)


def setup(app: Sphinx) -> dict[str, bool]:
    """Renumber after Sphinx has numbered."""
    app.connect("env-get-updated", renumber, priority=_AFTER_SPHINX)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
