"""How the operations of an EM iteration grow."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss_book.drawing.figures import COLOURS


def draw_operations(
    base: Mapping[str, int], more_data: Mapping[str, int], more_basis: Mapping[str, int]
) -> Figure:
    """Operations with twice the data, and with twice the basis functions, over those before."""
    figure, axis = subplots(figsize=(5.8, 4.0))
    heights = np.arange(len(base))[::-1]
    for counts, colour, marker, label in (
        (more_data, "ISGP", "o", "twice the data"),
        (more_basis, "GP", "s", "twice the basis functions"),
    ):
        growth = [counts[name] / base[name] for name in base]
        axis.plot(growth, heights, marker, ms=9, color=COLOURS[colour], label=label)
    axis.set_yticks(heights, list(base))
    axis.set_xscale("log", base=2)
    axis.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    axis.set(xlabel="times as many operations", ylim=(-0.5, len(base) + 0.6))
    axis.legend(loc="upper right")
    return figure
