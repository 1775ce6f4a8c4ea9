"""A slider for the chance of rain: what each number that one may name costs on average."""

import torch

from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.drawing.html import Axis, Canvas, Frame, curve, stepped
from bayesloss_book.learning.proper_losses.examples import LOSSES
from paperledger.html import HTMLTable

CANVAS = Canvas(
    540,
    210,
    Axis("the number you name", -0.03, 1.03, [0, 0.25, 0.5, 0.75, 1]),  # with room for the dots
    Axis("cost", 0, 1.2, [0, 0.5, 1]),
)
_LINES = {
    "distance": ("GP", "8 5", "dashed"),
    "square": ("PAVA", "2 4", "dotted"),
    "log": ("ISGP", "none", "solid"),
}


def forecast_slider() -> HTMLTable:
    """The expected cost of each number that one may name, under three losses."""
    return stepped(
        "forecast-slider",
        "chance of rain",
        [_frame(k / 20) for k in range(1, 20)],
        13,  # a chance of 0.7
        "",
        CANVAS,
        "What each number costs on average under three losses; a dot marks the least",
        [(f"3px {line} {COLOURS[tint]}", name) for name, (tint, _, line) in _LINES.items()],
    )


def _frame(chance: float) -> Frame:
    u = torch.linspace(0, 1, 101, dtype=torch.float64)
    drawn = ""
    best = []
    inside = u.clamp(1e-4, 1 - 1e-4)  # beyond, the log loss leaves the picture
    for name, (tint, dashes, _) in _LINES.items():
        if name == "distance":
            cost = chance * (1 - u) + (1 - chance) * u
        else:
            cost = LOSSES[name].conditional_risk(chance, inside)
        points = CANVAS.points(u, cost.clamp(max=2))
        least = int(cost.round(decimals=9).argmin())  # the first of equals
        x, y = points[least].split()
        style = f'stroke="{COLOURS[tint]}" stroke-width="3" stroke-dasharray="{dashes}"'
        drawn += curve(points, style) + f'<circle cx="{x}" cy="{y}" r="7" fill="{COLOURS[tint]}"/>'
        best.append(f"{name} {u[least]:.2f}")
    return Frame(f"{chance:.2f}", drawn, f"The best number: {', '.join(best)}.")
