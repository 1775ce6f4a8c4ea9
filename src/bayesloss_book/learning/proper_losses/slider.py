"""A slider for the chance of rain: what each number that one may name costs on average."""

import json

import torch

from bayesloss_book.figures import COLOURS
from bayesloss_book.html import Axis, HTMLTable, curve, legend, marks, picture, slider
from bayesloss_book.learning.proper_losses.examples import LOSSES

_WIDTH, _HEIGHT, _MOST = 540, 210, 1.2  # of the picture, and the highest cost in it
_MARGIN = 0.03  # beside the numbers 0 and 1, for the dots
_LINES = {"distance": ("GP", "8 5"), "square": ("PAVA", "2 4"), "log": ("ISGP", "none")}
_BORDERS = {"8 5": "dashed", "2 4": "dotted", "none": "solid"}
_SCRIPT = """
(() => {
  const box = document.getElementById("forecast-slider");
  const bills = JSON.parse(box.dataset.bills), input = box.querySelector("input");
  const [W, H, most, margin] = JSON.parse(box.dataset.shape);
  const draw = () => {
    const pi = +input.value, said = [];
    for (const name in bills) {
      const [rain, dry] = bills[name];
      const cost = rain.map((v, i) => pi * v + (1 - pi) * dry[i]);
      const down = v => (H * (1 - Math.min(v / most, 1.5))).toFixed(1);
      const across = i => (W * (margin + i / (cost.length - 1)) / (1 + 2 * margin)).toFixed(1);
      const at = cost.map((v, i) => across(i) + " " + down(v));
      box.querySelector(`[data-curve="${name}"] path`).setAttribute("d", "M" + at.join("L"));
      const best = cost.indexOf(Math.min(...cost));
      const dot = box.querySelector(`[data-curve="${name}"] circle`), [x, y] = at[best].split(" ");
      dot.setAttribute("cx", x);
      dot.setAttribute("cy", y);
      said.push(`${name} ${(best / (cost.length - 1)).toFixed(2)}`);
    }
    box.querySelector("[data-value=rain]").textContent = pi.toFixed(2);
    box.querySelector("[data-value=best]").textContent = said.join(", ");
    input.setAttribute("aria-valuetext", `chance ${pi.toFixed(2)}; best: ${said.join(", ")}`);
  };
  input.addEventListener("input", draw);
  draw();
})();
"""


def bills(n: int = 101) -> dict[str, list[list[float]]]:
    """What three losses charge for n numbers from 0 to 1: if it rains, and if it does not."""
    u = torch.linspace(0, 1, n, dtype=torch.float64)
    inside = u.clamp(1e-4, 1 - 1e-4)  # beyond, the log loss leaves the picture
    charged = {"distance": (1 - u, u)} | {
        name: (LOSSES[name].loss(1, inside), LOSSES[name].loss(-1, inside))
        for name in ("square", "log")
    }
    return {name: [one.numpy().round(4).tolist() for one in two] for name, two in charged.items()}


def forecast_slider(chance: float = 0.7) -> HTMLTable:
    """The expected cost of each number that one may name, under three losses."""
    charged, best, drawn = bills(), {}, ""
    for name, (colour, dashes) in _LINES.items():
        rain, dry = (torch.tensor(one, dtype=torch.float64) for one in charged[name])
        cost = chance * rain + (1 - chance) * dry
        lowest = int(cost.argmin())
        best[name] = lowest / (len(cost) - 1)
        points = marks(
            _WIDTH * (torch.linspace(0, 1, len(cost)) + _MARGIN) / (1 + 2 * _MARGIN),
            _HEIGHT * (1 - (cost / _MOST).clamp(max=1.5)),
        )
        style = f'stroke="{COLOURS[colour]}" stroke-width="3" stroke-dasharray="{dashes}"'
        dot = '<circle cx="{}" cy="{}" r="7" fill="{}"/>'.format(
            *points[lowest].split(), COLOURS[colour]
        )
        drawn += f"<g data-curve='{name}'>{curve(points, style)}{dot}</g>"
    told = ", ".join(f"{name} {value:.2f}" for name, value in best.items())
    content = picture(
        "forecast-slider",
        slider("rain", "chance of rain", (0.05, 0.95, 0.05), chance)
        + f"<p>The best number: <output data-value='best'>{told}</output>.</p>",
        drawn,
        (_WIDTH, _HEIGHT),
        "What each number costs on average under three losses; a dot marks the least",
        legend(
            [
                (f"3px {_BORDERS[dashes]} {COLOURS[colour]}", name)
                for name, (colour, dashes) in _LINES.items()
            ]
        )
        + "<noscript>The slider needs JavaScript; the picture shows one chance.</noscript>",
        _SCRIPT,
        f" data-bills='{json.dumps(charged)}' data-shape='{[_WIDTH, _HEIGHT, _MOST, _MARGIN]}'",
        Axis("the number you name", -_MARGIN, 1 + _MARGIN, [0, 0.25, 0.5, 0.75, 1]),
        Axis("cost", 0, _MOST, [0, 0.5, 1]),
    )
    said = f"A slider for the chance of rain; at {chance:g} the best numbers are: {told}."
    return HTMLTable(content, said)
