"""One style for all figures of the book: SVG, colours that colour-blind readers can tell apart."""

from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

# Okabe and Ito's palette, each line style and marker apart as well: the figures survive grey print.
COLOURS = {
    "ISGP": "#0072B2",
    "GP": "#D55E00",
    "PAVA": "#009E73",
    "Linear": "#7F7F7F",
    "data": "#4D4D4D",
    "accent": "#CC79A7",
    "bound": "#E69F00",
    "held out": "#56B4E9",
}


def style(colour: str, marker: str = "", line: str = "", **more: Any) -> dict[str, Any]:
    """The keywords by which matplotlib draws; a colour of the palette goes by its name."""
    return {"color": COLOURS.get(colour, colour), "marker": marker, "linestyle": line, **more}


def legend_above(figure: Figure, axis: Axes, **how: Any) -> None:
    """What one panel's marks mean, above all panels."""
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", **how)


def draw_yes(axis: Axes, x: ArrayLike, row: int, yes: ArrayLike, colour: str) -> None:
    """A bar in a row of the picture, where the decision is yes."""
    how: dict[str, Any] = {"color": colour, "linewidth": 0, "step": "mid"}
    axis.fill_between(x, row + 0.15, row + 0.85, where=yes, **how)


def hatch(axis: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, **how: Any) -> None:
    """Hatch between two curves, in the colour of the edge."""
    how |= {"facecolor": "none", "hatch": "///", "linewidth": 0}
    axis.fill_between(x, low, high, **how)


def use_style(font_size: float = 10) -> None:
    """Set matplotlib's defaults for a page: call it once, before the first figure."""
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    set_matplotlib_formats("svg", metadata={"Date": None})
    mpl.rcParams.update(
        {
            "axes.grid": True,
            "axes.prop_cycle": cycler(color=list(COLOURS.values())),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlesize": "medium",
            "figure.constrained_layout.use": True,
            "figure.figsize": (7.2, 4.0),
            "font.size": font_size,
            "grid.alpha": 0.3,
            "legend.frameon": False,
            "lines.linewidth": 1.6,
            "svg.fonttype": "path",  # the same letters everywhere
            "svg.hashsalt": "bayesloss",  # the same bytes every time
        }
    )
