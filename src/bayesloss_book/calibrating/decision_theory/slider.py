"""Two sliders for the power plant: an interactive figure that asks nothing of a network."""

import json
from dataclasses import replace

import numpy as np
from scipy.stats import norm

from bayesloss_book.calibrating.decision_theory.figures import LABELS, STYLES
from bayesloss_book.drawing.html import Axis, Canvas, curve, framed, slider
from bayesloss_book.problems.power_plant import PowerPlant, tail_matching
from paperledger.html import HTMLTable

_CANVAS = Canvas(
    480,
    170,
    Axis("temperature in °C; upright: the critical one", 220, 400, range(240, 401, 40)),
    Axis("density", 0, 0.028, []),
)
_DASHES = {"-": "", ":": "2 4", "--": "7 4", "-.": "8 3 2 3"}
_CRITICAL = range(310, 376)
_SCRIPT = """
(() => {
  const box = document.getElementById("power-plant-slider");
  const data = JSON.parse(box.dataset.plant);
  const find = s => box.querySelector(s);
  const draw = () => {
    const critical = find("[data-slider=critical]"), cost = find("[data-slider=cost]");
    const c = +cost.value, i = +critical.value - data.first;
    find("[data-value=critical]").textContent = critical.value;
    find("[data-value=cost]").textContent = c.toFixed(1);
    critical.setAttribute("aria-valuetext", critical.value + " degrees Celsius");
    const x = t => (data.width * (t - data.low) / (data.high - data.low)).toFixed(1);
    find("[data-curve=critical]").setAttribute("d", `M${x(+critical.value)} 0V${data.height}`);
    const [mean, sd] = data.fits[i];
    let path = "";
    for (let k = 0; k <= 180; k++) {
      const t = data.low + (data.high - data.low) * k / 180;
      const f = Math.exp(-0.5 * ((t - mean) / sd) ** 2) / (sd * Math.sqrt(2 * Math.PI));
      path += (k ? "L" : "M") + x(t) + " " + (data.height * (1 - f / data.top)).toFixed(1);
    }
    find("[data-curve='3']").setAttribute("d", path);
    const truth = data.tails[i][0] * data.meltdown;
    data.tails[i].forEach((tail, k) => {
      const off = tail * data.meltdown > c, right = off === (truth > c);
      find(`[data-tail='${k}']`).textContent = tail.toFixed(4);
      find(`[data-decision='${k}']`).textContent = off ? "shut down" : "stay on";
      find(`[data-divergence='${k}']`).textContent = right ? "0" :
        Math.abs(truth - c).toFixed(2);
    });
  };
  box.addEventListener("input", draw);
  draw();
})();
"""


def power_plant_slider(plant: PowerPlant, fits: dict[str, tuple[float, float]]) -> HTMLTable:
    """The decisions of LHG figure 1, as critical temperature and cost of a shutdown move."""
    if plant.critical not in _CRITICAL:
        raise ValueError(
            f"expected a critical temperature of {_CRITICAL[0]} to {_CRITICAL[-1]} whole degrees, "
            f"got {plant.critical}"
        )
    names = list(STYLES)
    # To digits that no processor moves: searches for them end within 2e-7 of each other.
    fits = {name: (round(mean, 4), round(deviation, 4)) for name, (mean, deviation) in fits.items()}
    moved = [tail_matching(replace(plant, critical=float(T))) for T in _CRITICAL]
    tails = [
        [float(plant.tail(T)), *(float(norm.sf(T, *fits[name])) for name in names[1:3])]
        for T in _CRITICAL
    ]
    data = {
        "first": _CRITICAL[0],
        "low": _CANVAS.across.low,
        "high": _CANVAS.across.high,
        "top": _CANVAS.up.high,
        "width": _CANVAS.width,
        "height": _CANVAS.height,
        "meltdown": plant.meltdown,
        "fits": np.round(moved, 2).tolist(),
        # The third Gaussian has the posterior's tail.
        "tails": [[float(f"{tail:.6g}") for tail in [*row, row[0]]] for row in tails],
    }
    theta = np.linspace(220, 400, 181)
    densities = [plant.density(theta), *(norm.pdf(theta, *fits[name]) for name in names[1:])]
    paths = "".join(
        curve(
            _CANVAS.points(theta, density),
            f"data-curve='{k}' stroke='{STYLES[name][0]}' stroke-width='1.8' "
            f"stroke-dasharray='{_DASHES[STYLES[name][1]]}'",
        )
        for k, (name, density) in enumerate(zip(names, densities, strict=True))
    )
    rows = "".join(
        f"<tr><th scope='row'><svg viewBox='0 0 40 8' width='40' height='8' aria-hidden='true'>"
        f"<path d='M0 4H40' stroke='{STYLES[name][0]}' stroke-width='2' "
        f"stroke-dasharray='{_DASHES[STYLES[name][1]]}'/></svg> {LABELS[name]}</th>"
        f"<td data-tail='{k}'></td><td data-decision='{k}'></td>"
        f"<td data-divergence='{k}'></td></tr>"
        for k, name in enumerate(names)
    )
    ends = (_CRITICAL[0], _CRITICAL[-1], 1)
    sliders = slider("critical", "critical temperature in °C", ends, plant.critical)
    price = f"cost of a shutdown (of a meltdown: {plant.meltdown:g})"
    sliders += slider("cost", price, (0.5, 30, 0.5), plant.shutdown)
    content = (
        f"<div id='power-plant-slider' data-plant='{json.dumps(data)}'>"
        f"<div style='display:flex;flex-wrap:wrap;gap:0.2rem 1.5rem'>{sliders}</div>"
        + framed(
            "power-plant-slider",
            "<path data-curve='critical' stroke='currentColor' stroke-width='1' d=''/>" + paths,
            _CANVAS,
            "Densities of the posterior and three Gaussians, from 220 to 400 degrees, and the "
            "critical temperature",
        )
        + "<table style='border-collapse:separate;border-spacing:1rem 0'><thead><tr>"
        "<th>distribution</th><th>P(θ > critical)</th><th>decision</th>"
        f"<th>excess cost</th></tr></thead><tbody aria-live='polite'>{rows}</tbody></table>"
        "<noscript>The sliders need JavaScript; the figures below show some of their positions."
        f"</noscript></div><script>{_SCRIPT}</script>"
    )
    return HTMLTable(content, "Sliders for the critical temperature and the cost of a shutdown.")
