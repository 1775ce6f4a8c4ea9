"""The front page's slider: two costs put a cut into a learned curve, and errors are counted."""

import json

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from bayesloss import LinkCalibrator
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.drawing.html import DASHED, Axis, Canvas, curve, framed, legend, slider
from paperledger.html import HTMLTable

RATIOS = (1, 2, 3, 5, 8, 12, 20, 30)  # false alarms that one missed case costs
# of the pictures: with text and table they fill one screen
_WIDTH = 400
_HEIGHT = 150
_BELOW = 60
_REACH = 3  # of scores
_ABOVE = Canvas(_WIDTH, _HEIGHT, Axis("", -_REACH, _REACH, []), Axis("probability", 0, 1, [0, 1]))
_SCORES = Axis("score", -_REACH, _REACH, range(-_REACH, _REACH + 1))
_COUNTS = Canvas(_WIDTH, _BELOW, _SCORES, Axis("patients", 0, 1, []))
_GRID = np.linspace(-_REACH, _REACH, 601)
_SPAN = (0, len(RATIOS) - 1, 1)  # of the slider, over ratios
_CASES = 10_000 * np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()  # at each score
_NAMES = {"link": "learned curve", "sigmoid": "sigmoid", "truth": "true curve"}
_LINES = {"link": COLOURS["ISGP"], "sigmoid": COLOURS["GP"]}
_LEGEND = [
    (f"3px solid {_LINES['link']}", "learned curve, 95 % band"),
    (f"3px dotted {_LINES['sigmoid']}", "sigmoid"),
    ("2px dashed currentColor", "true curve"),
    ("1px solid currentColor", "threshold: treat above it"),
    (f"8px solid {COLOURS['accent']}", "the ill; filled: missed by the learned curve"),
    (f"8px solid {COLOURS['Linear']}", "the healthy; filled: its false alarms"),
]
_SCRIPT = """
(() => {
  const box = document.getElementById("cost-slider"), input = box.querySelector("input");
  const shown = JSON.parse(box.dataset.shown), find = s => box.querySelector(s);
  const set = (s, names) => { for (const n in names) find(s).setAttribute(n, names[n]); };
  const draw = () => {
    const [ratio, level, rows] = shown[+input.value], [x] = rows.link;
    find("[data-value=ratio]").textContent = ratio;
    set("[data-line=level]", {y1: level, y2: level});
    for (const n of ["link", "sigmoid"]) set(`[data-line=${n}]`, {x1: rows[n][0], x2: rows[n][0]});
    set("#cost-missed rect", {width: x});
    set("#cost-alarms rect", {x: x, width: +box.dataset.width - x});
    set("[data-line=below]", {x1: x, x2: x});
    for (const name in rows) rows[name].slice(1).forEach((value, i) => {
      find(`[data-row=${name}] td:nth-of-type(${i + 1})`).textContent = value;
    });
    input.setAttribute("aria-valuetext", `a missed patient costs as much as ${ratio} false alarms`);
  };
  input.addEventListener("input", draw);
  draw();
})();
"""


def truth(score: np.ndarray) -> np.ndarray:
    """The probability of a case, by its score: nearly flat below 0.3, steep above."""
    return expit(-1.5 + np.where(score > 0.3, 5, 0.7) * (score - 0.3))


def fits(n: int, seed: int) -> dict[str, np.ndarray]:
    """What n labelled scores teach: each curve's probabilities on the grid, and the band's ends."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n)
    y = (rng.random(n) < truth(scores)).astype(float)
    link = LinkCalibrator().fit(scores, y)
    sigmoid = LogisticRegression(C=np.inf).fit(scores[:, None], y)
    low, high = link.predict_interval(_GRID)
    return {
        "link": link.predict_proba(_GRID)[:, 1],
        "sigmoid": sigmoid.predict_proba(_GRID[:, None])[:, 1],
        "truth": truth(_GRID),
        "low": low,
        "high": high,
    }


def errors(curve: np.ndarray, ratio: int) -> tuple[int, int, int]:
    """Of 10,000 cases: how many are missed, how many are false alarms, and what both cost."""
    yes = curve > 1 / (1 + ratio)
    positive = _CASES * truth(_GRID)
    missed = round(positive[~yes].sum())
    alarms = round((_CASES - positive)[yes].sum())
    return missed, alarms, ratio * missed + alarms


def cost_slider(n: int, seed: int, start: int) -> HTMLTable:
    """A learned curve with its band, the cut that costs make, and whom it decides wrongly."""
    given = fits(n, seed)
    shown = [(r, f"{_HEIGHT * (1 - 1 / (1 + r)):.1f}", _rows(given, r)) for r in RATIOS]
    _, level, rows = shown[RATIOS.index(start)]
    cuts = {name: rows[name][0] for name in _LINES}
    body = "".join(
        f"<tr data-row='{name}'><th scope='row'>{words}</th>"
        + "".join(f"<td>{value}</td>" for value in rows[name][1:])
        + "</tr>"
        for name, words in _NAMES.items()
    )
    heads = "".join(
        f"<th scope='col'>{head}</th>"
        for head in ("of 10,000 patients", "missed", "false alarms", "cost in false alarms")
    )
    content = (
        f"<div id='cost-slider' data-shown='{json.dumps(shown)}' data-width='{_WIDTH}'>"
        + slider(
            "ratio", "what a missed patient costs, in false alarms", _SPAN, RATIOS.index(start)
        )
        + "<div class='cost-beside'><div>"
        + framed(
            "cost-above",
            _curves(given, cuts, level),
            _ABOVE,
            "Probability against score: the learned curve with its band, the sigmoid, the true "
            "curve, and where each crosses the threshold, above which a patient is treated",
        )
        + framed(
            "cost-below",
            _tails(given["truth"], cuts["link"]),
            _COUNTS,
            "The ill and the healthy by score; filled: decided wrongly by the learned curve",
        )
        + f"</div><div><table><thead><tr>{heads}</tr></thead>"
        f"<tbody aria-live='polite'>{body}</tbody></table>" + legend(_LEGEND) + "</div></div>"
        "<noscript>The slider needs JavaScript; the picture shows one ratio of costs.</noscript>"
        f"</div><script>{_SCRIPT}</script>"
    )
    told = "; ".join(
        f"{ratio}: " + ", ".join(f"{words} {by[name][3]}" for name, words in _NAMES.items())
        for ratio, _, by in shown
    )
    return HTMLTable(
        content,
        f"A slider for the ratio of costs. What mistakes among 10,000 patients cost: {told}.",
    )


def _curves(given: dict[str, np.ndarray], cuts: dict[str, str], level: str) -> str:
    """The curves, the band, the level and the cuts."""
    ends = _points(given["low"]) + _points(given["high"])[::-1]
    return (
        f'<path d="M{"L".join(ends)}Z" fill="{_LINES["link"]}" opacity="0.25"/>'
        + curve(_points(given["truth"]), DASHED)
        + "".join(curve(_points(given[name]), _stroke(name, 2.5)) for name in _LINES)
        + f'<line data-line="level" x1="0" x2="{_WIDTH}" y1="{level}" y2="{level}" '
        'stroke="currentColor" stroke-width="0.8"/>'
        + "".join(_upright(name, _stroke(name, 1.5), x, _HEIGHT) for name, x in cuts.items())
    )


def _tails(positive: np.ndarray, cut: str) -> str:
    """How many cases of either kind there are, filled where they are decided wrongly."""
    density = 0.9 * _CASES / _CASES.max()
    drawn = ""
    for name, share, colour, place in (
        ("missed", positive, COLOURS["accent"], f'x="0" width="{cut}"'),
        ("alarms", 1 - positive, COLOURS["Linear"], f'x="{cut}" width="{_WIDTH}"'),
    ):
        points = _points(density * share, _COUNTS)
        drawn += (
            f"<clipPath id='cost-{name}'><rect y='0' height='{_BELOW}' {place}/></clipPath>"
            f'<path d="M{"L".join(points)}Z" fill="{colour}" opacity="0.8" '
            f"clip-path='url(#cost-{name})'/>"
            + curve(points, f'stroke="{colour}" stroke-width="2"')
        )
    return drawn + _upright("below", _stroke("link", 1.5), cut, _BELOW)


def _stroke(name: str, width: float) -> str:
    dashes = "none" if name == "link" else "3 4"
    return f'stroke="{_LINES[name]}" stroke-width="{width}" stroke-dasharray="{dashes}"'


def _upright(name: str, style: str, x: str, height: int) -> str:
    return f'<line data-line="{name}" x1="{x}" x2="{x}" y1="0" y2="{height}" {style}/>'


def _rows(given: dict[str, np.ndarray], ratio: int) -> dict[str, list[str]]:
    """By curve: where its cut is in the picture, its errors, and what they cost."""
    found = {}
    for name in _NAMES:
        cut = float(np.interp(1 / (1 + ratio), given[name], _GRID))
        counts = [f"{count:,}" for count in errors(given[name], ratio)]
        found[name] = [f"{_WIDTH * _SCORES.place(cut):.1f}", *counts]
    return found


def _points(height: np.ndarray, canvas: Canvas = _ABOVE) -> list[str]:
    return canvas.points(_GRID[::5], height[::5])
