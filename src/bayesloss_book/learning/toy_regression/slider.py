"""A slider that lets data arrive one after the other: it asks nothing of a network."""

from collections.abc import Sequence

import numpy as np

from bayesloss.learning.evidence.evidence import EvidenceMaximum
from bayesloss.learning.inference.laplace import laplace
from bayesloss.learning.inference.likelihoods import Gaussian
from bayesloss_book.figures import COLOURS
from bayesloss_book.html import DASHED, Axis, HTMLTable, curve, legend, marks, picture
from bayesloss_book.toys import Problem, grid

_WIDTH, _HEIGHT = 600, 300
_SCRIPT = """
(() => {
  const box = document.getElementById("posterior-slider");
  const sizes = JSON.parse(box.dataset.sizes), slider = box.querySelector("input");
  const show = () => {
    const n = sizes[+slider.value];
    box.querySelectorAll("[data-frame]").forEach(g => {
      g.style.display = +g.dataset.frame === n ? "" : "none";
    });
    box.querySelectorAll("[data-datum]").forEach(c => {
      c.style.display = +c.dataset.datum < n ? "" : "none";
    });
    const width = box.querySelector(`[data-frame="${n}"]`).dataset.width;
    box.querySelector("[data-value=n]").textContent = n;
    box.querySelector("[data-value=width]").textContent = width;
    slider.setAttribute("aria-valuetext", `${n} data, band ${width} wide on average`);
  };
  slider.addEventListener("input", show);
  show();
})();
"""


def posterior_slider(
    found: EvidenceMaximum[Gaussian], data: Problem, sizes: Sequence[int]
) -> HTMLTable:
    """The posterior of nu given the first n data, hyper-parameters as found from all of them."""
    x = grid(n=81)
    curves = {}
    for n in sizes:
        posterior = laplace(found.posterior.prior, found.likelihood, data.x[:n], data.y[:n])
        mean, variance = posterior.moments(x)
        curves[n] = (mean.numpy(), 2 * variance.sqrt().numpy())
    truth = data.source(x).numpy()
    reach = 1.3 * float(np.abs(np.concatenate([truth, data.y.numpy()])).max())

    def points(height: np.ndarray, at: np.ndarray | None = None) -> list[str]:
        where = x.numpy() if at is None else at
        across = _WIDTH * (where - float(x[0])) / float(x[-1] - x[0])
        # Bands of few data leave the picture; a margin keeps their edges out of sight.
        down = _HEIGHT * (reach - np.clip(height, -1.1 * reach, 1.1 * reach)) / (2 * reach)
        return marks(across, down)

    # Coordinates in double quotes: what compares pages knows them by these.
    colour = COLOURS["ISGP"]
    frames = "".join(
        f"<g data-frame='{n}' data-width='{2 * float(band.mean()):.1f}'"
        f"{'' if n == sizes[-1] else ' style=display:none'}>"
        f'<path d="M{"L".join(points(mean - band) + points(mean + band)[::-1])}Z" '
        f"fill='{colour}' opacity='0.3'/>"
        + curve(points(mean), f'stroke="{colour}" stroke-width="2"')
        + "</g>"
        for n, (mean, band) in curves.items()
    )
    dots = "".join(
        '<circle data-datum="{}" cx="{}" cy="{}" r="3" fill="currentColor" opacity="0.7"/>'.format(
            i, *point.split()
        )
        for i, point in enumerate(points(data.y.numpy(), data.x.numpy())[: sizes[-1]])
    )
    line = curve(points(truth), DASHED)
    last = len(sizes) - 1
    content = picture(
        "posterior-slider",
        "<label>number of data: <span data-value='n'></span>"
        f"<input type='range' min='0' max='{last}' step='1' value='{last}' style='width:100%'>"
        "</label><p>The band is <output data-value='width'></output> wide on average.</p>",
        f"{frames}{line}{dots}",
        (_WIDTH, _HEIGHT),
        "The posterior mean and band of nu, the data so far, and the truth, dashed",
        legend(
            [
                (f"2px solid {colour}", "posterior mean, band of two standard deviations"),
                ("2px dashed currentColor", "truth"),
            ]
        )
        + "<noscript>The slider needs JavaScript; the picture shows all data.</noscript>",
        _SCRIPT,
        f" data-sizes='{list(sizes)}'",
        Axis("x", float(x[0]), float(x[-1]), [float(x[0]), 0, float(x[-1])]),
        Axis("ν", -reach, reach, [-int(reach), 0, int(reach)]),
    )
    text = "A slider for the number of data; mean width of the band: " + ", ".join(
        f"{2 * float(band.mean()):.1f} at {n}" for n, (_, band) in curves.items()
    )
    return HTMLTable(content, text)
