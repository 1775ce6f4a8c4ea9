"""One style for all figures of the book: SVG, colours that colour-blind readers can tell apart."""

import matplotlib as mpl
from cycler import cycler

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
