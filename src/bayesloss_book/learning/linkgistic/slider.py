"""A slider through the rounds of EM: the learned link, as a picture a round, without a network."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import expit

from bayesloss_book import Array
from bayesloss_book.figures import COLOURS
from bayesloss_book.html import DASHED, Axis, HTMLTable, curve, legend, marks, picture
from bayesloss_book.learning.linkgistic.rounds import Round

_WIDTH, _HEIGHT, _REACH = 600, 300, 2.5  # the picture; scores shown, in their standard deviations
_DOTTED = f'stroke="{COLOURS["Linear"]}" stroke-dasharray="2 4" stroke-width="2"'
_SCRIPT = """
(() => {
  const box = document.getElementById("link-slider");
  const frames = [...box.querySelectorAll("[data-frame]")];
  const slider = box.querySelector("input"), button = box.querySelector("button");
  let timer = null;
  const show = () => {
    const k = +slider.value, data = frames[k].dataset;
    frames.forEach((g, i) => { g.style.display = i === k ? "" : "none"; });
    for (const name of ["round", "loss", "angle"]) {
      box.querySelector(`[data-value=${name}]`).textContent = data[name];
    }
    slider.setAttribute("aria-valuetext",
      `round ${data.round}, log loss on new data ${data.loss}, weights ${data.angle} degrees off`);
  };
  const stop = () => { clearInterval(timer); timer = null; button.textContent = "Play"; };
  const step = () => {
    if (+slider.value + 1 >= frames.length) { stop(); return; }
    slider.value = +slider.value + 1;
    show();
  };
  button.addEventListener("click", () => {
    if (timer !== null) { stop(); return; }
    if (+slider.value + 1 >= frames.length) { slider.value = 0; show(); }
    timer = setInterval(step, 600);
    button.textContent = "Pause";
  });
  slider.addEventListener("input", () => { stop(); show(); });
  show();
})();
"""


def link_slider(
    rounds: Sequence[Round],
    shown: Sequence[int],
    t: ArrayLike,
    odds: ArrayLike,
    *,
    fixed: tuple[float, float],
    losses: Sequence[float],
    angles: Sequence[float],
    others: tuple[float, float],
) -> HTMLTable:
    """The learned inverse link after some rounds, with its 95 % band, a fixed link, and the truth.

    Curves are over standardised scores ``t``, with the true log odds; ``fixed`` are logistic
    regression's log odds at zero and their rise; losses in nats and angles of the weights in
    degrees, one for each round shown; ``others``, the losses of logistic regression and the truth.
    """
    line = np.linspace(-_REACH, _REACH, 121)
    frames = "".join(
        _frame(rounds[k], (k, loss, angle), line, first=k == shown[0])
        for k, loss, angle in zip(shown, losses, angles, strict=True)
    )
    t, odds = np.asarray(t, dtype=float), np.asarray(odds, dtype=float)
    order = np.argsort(t)
    truth = expit(np.interp(line, t[order], odds[order]))
    logistic = curve(_points(line, expit(fixed[0] + fixed[1] * line)), _DOTTED)
    content = picture(
        "link-slider",
        "<label>round of EM: <span data-value='round'></span>"
        f"<input type='range' min='0' max='{len(shown) - 1}' step='1' value='0' "
        "style='width:100%'></label><p><button type='button'>Play</button> Log loss on new data "
        f"<output data-value='loss'></output> nats; logistic regression {others[0]:.3f}, truth "
        f"{others[1]:.3f}. The weights are <output data-value='angle'></output>° off.</p>",
        f"{logistic}{frames}{curve(_points(line, truth), DASHED)}",
        (_WIDTH, _HEIGHT),
        "The learned inverse link with its band, the true one, dashed, and the sigmoid, dotted",
        legend(
            [
                (f"2px solid {COLOURS['ISGP']}", "learned, with its 95 % band"),
                (f"2px dotted {COLOURS['Linear']}", "logistic regression"),
                ("2px dashed currentColor", "truth"),
            ]
        )
        + "<noscript>The slider needs JavaScript; the picture shows the first round.</noscript>",
        _SCRIPT,
        across=Axis(
            "score less its mean, in standard deviations", -_REACH, _REACH, [-2, -1, 0, 1, 2]
        ),
        up=Axis("probability", 0, 1, [0, 0.5, 1]),
    )
    text = "A slider for the rounds of EM; log loss on new data: " + ", ".join(
        f"{loss:.3f} in round {k}" for k, loss in zip(shown, losses, strict=True)
    )
    return HTMLTable(content, text)


def band(found: Round, t: Array) -> Array:
    """The learned probability at standardised scores: 2.5 % quantile, mean and 97.5 % quantile."""
    x = torch.from_numpy(t) * found.scores.std()
    draws = found.posterior.sample(200, torch.Generator().manual_seed(0))
    u = expit(found.posterior.prior.source(x, draws).numpy())
    low, high = np.quantile(u, [0.025, 0.975], axis=0)
    return np.stack([low, u.mean(axis=0), high])


def _frame(found: Round, says: tuple[int, float, float], t: Array, *, first: bool) -> str:
    low, mean, high = band(found, t)
    area = "L".join(_points(t, low) + _points(t, high)[::-1])
    colour = COLOURS["ISGP"]
    # Coordinates in double quotes: what compares pages knows them by these.
    return (
        f"<g data-frame='{says[0]}' data-round='{says[0]}' data-loss='{says[1]:.3f}' "
        f"data-angle='{says[2]:.0f}'{'' if first else ' style=display:none'}>"
        f'<path d="M{area}Z" fill="{colour}" opacity="0.3"/>'
        + curve(_points(t, mean), f'stroke="{colour}" stroke-width="2"')
        + "</g>"
    )


def _points(t: Array, probability: Array) -> list[str]:
    return marks(_WIDTH * (t + _REACH) / (2 * _REACH), _HEIGHT * (1 - probability))
