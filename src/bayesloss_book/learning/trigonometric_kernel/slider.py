"""Four sliders for the trigonometric prior: the page carries the draws, a script the curves."""

import json
import math

import numpy as np

from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book.drawing.html import Axis, Canvas, framed, slider
from paperledger.html import HTMLTable

_COLOURS = ("#0072B2", "#D55E00", "#009E73")
# Name, label, (least, largest, step) and start of each; a and b are on logarithmic scales.
_SLIDERS = (
    ("a", "a (larger: smoother)", (-2, 1, 0.05), round(math.log10(0.2), 2)),
    ("b", "b (larger: steeper)", (-2, 1, 0.05), round(math.log10(0.2), 2)),
    ("c", "c (larger: shorter period)", (0.25, 2, 0.25), 1),
    ("M", "M (number of basis functions)", (2, 64, 2), 32),
)
_SCRIPT = """
(() => {
  const box = document.getElementById("prior-slider");
  const Z = JSON.parse(box.dataset.draws), n = 240, reach = 1, W = 300, H = 170;
  const input = name => box.querySelector(`[data-slider="${name}"]`);
  const path = (panel, k, y, low, high) => {
    const point = (v, i) => (i ? "L" : "M") + (W * i / n).toFixed(1) + " " +
      (H * (high - Math.min(high, Math.max(low, v))) / (high - low)).toFixed(1);
    box.querySelector(`[data-panel="${panel}"] [data-curve="${k}"]`)
      .setAttribute("d", y.map(point).join(""));
  };
  const draw = () => {
    const a = 1 + 10 ** input("a").value, b = 10 ** input("b").value;
    const c = +input("c").value, M = +input("M").value, half = M / 2;
    const variance = b * (1 - a ** -half) / (a - 1);
    const shown = {a: a.toFixed(2), b: b.toFixed(2), c: c.toFixed(2), M: M};
    for (const name in shown) {
      box.querySelector(`[data-value="${name}"]`).textContent = shown[name];
      input(name).setAttribute("aria-valuetext", shown[name]);
    }
    box.querySelector("[data-value=variance]").textContent = variance.toFixed(2);
    const x = Array.from({length: n + 1}, (_, i) => reach * (2 * i / n - 1));
    const wave = (u, cosine, sine) => {
      let sum = 0;
      for (let m = 1; m <= half; m++) {
        const angle = Math.PI * m * c * u;
        sum += cosine(m) * Math.cos(angle) + sine(m) * Math.sin(angle);
      }
      return sum;
    };
    const k = x.map(u => wave(u, m => b * a ** -m, () => 0));
    path("kernel", 0, k.map(v => v / variance), -1.05, 1.05);
    const scale = Math.sqrt(variance);
    Z.forEach(([zc, zs], s) => {
      const sd = m => Math.sqrt(b * a ** -m);
      const f = x.map(u => wave(u, m => sd(m) * zc[m - 1], m => sd(m) * zs[m - 1]));
      path("f", s, f, -4, 4);
      const nu = [0];  // trapezoids, then set to zero in the middle
      for (let i = 1; i <= n; i++) nu.push(nu[i - 1] + (f[i] ** 2 + f[i - 1] ** 2) * reach / n);
      path("nu", s, nu.map(v => v - nu[n / 2]), -2, 2);
    });
    path("nu", "mean", x.map(u => variance * u), -2, 2);
  };
  box.addEventListener("input", draw);
  draw();
})();
"""


def prior_slider(n_samples: int, seed: int) -> HTMLTable:
    """The kernel, f and nu - nu_0 for up to three draws of the weights, with sliders."""
    draws = np.random.default_rng(seed).normal(size=(n_samples, 2, 32)).round(3).tolist()
    sliders = "".join(slider(*given) for given in _SLIDERS)
    panels = _panel("kernel", "k(x, 0) / k(0, 0)", 1.05, 1)
    panels += _panel("f", "f(x)", 4, n_samples)
    panels += _panel("nu", "ν(x) − ν₀; dashed: its prior mean", 2, n_samples)
    # What the sliders start with, for readers without scripts and for tests.
    start = {name: value for name, *_, value in _SLIDERS}
    kernel = TrigonometricKernel(
        a=1 + 10 ** start["a"], b=10 ** start["b"], c=start["c"], n_basis=int(start["M"])
    )
    content = (
        f"<div id='prior-slider' data-draws='{json.dumps(draws)}'>"
        f"<div style='display:flex;flex-wrap:wrap;gap:0.2rem 1.5rem'>{sliders}</div>"
        f"<p>Prior variance k(0, 0) = <output data-value='variance'>"
        f"{float(kernel.variance):.2f}</output>.</p>"
        f"<div style='display:flex;flex-wrap:wrap;gap:1rem'>{panels}</div>"
        "<noscript>The sliders need JavaScript; a figure below shows some of their positions."
        f"</noscript></div><script>{_SCRIPT}</script>"
    )
    return HTMLTable(content, "Sliders for a, b, c and M; the kernel, f and nu follow.")


def _panel(name: str, title: str, reach: float, n_curves: int) -> str:
    curves = "".join(
        f"<path data-curve='{k}' fill='none' stroke='{_COLOURS[k]}' stroke-width='1.8'/>"
        for k in range(n_curves)
    )
    if name == "nu":
        curves += (
            "<path data-curve='mean' fill='none' stroke='currentColor' stroke-width='1.2' "
            "stroke-dasharray='5 4'/>"
        )
    up = Axis("", -reach, reach, [-int(reach), 0, int(reach)])
    canvas = Canvas(300, 170, Axis("x", -1, 1, [-1, 0, 1]), up)
    cross = "<path d='M0 85H300M150 0V170' stroke='currentColor' stroke-width='0.5' opacity='0.4'/>"
    return (
        f"<figure style='flex:1 1 15rem;max-width:22rem;margin:0' data-panel='{name}'>"
        + framed(f"prior-slider-{name}", cross + curves, canvas, title)
        + f"<figcaption>{title}</figcaption></figure>"
    )
