"""A slider for the number of cases: what a learned link and its rivals make of one true curve."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from bayesloss import LinkCalibrator
from bayesloss_book import Array
from bayesloss_book.beyond.calibration.rivals import fit
from bayesloss_book.figures import COLOURS
from bayesloss_book.html import DASHED, Axis, Frame, HTMLTable, curve, marks, ribbon, stepped
from bayesloss_book.score_sets import CURVES, draw

_WIDTH, _HEIGHT = 600, 260
_RIVALS = {"sigmoid": (COLOURS["accent"], "dotted"), "isotonic": (COLOURS["PAVA"], "solid")}
_DASHES = {"dotted": "2 4", "solid": "none"}


def cases_slider(data: str, sizes: Sequence[int], number: int, start: int) -> HTMLTable:
    """A curve learned from ever more cases, and how far off it is over new scores."""
    cases = draw(data, "curve", "curve", sizes[0], number)
    low, high = map(float, np.quantile(cases.test_scores, [0.002, 0.998]))
    grid = np.linspace(low, high, 151)
    colour = COLOURS["ISGP"]
    frames = [_frame(data, n, number, grid) for n in sizes]
    truth = curve(_points(grid, expit(CURVES[data].log_odds(grid))), DASHED)
    content = stepped(
        "cases-slider",
        "cases",
        frames,
        start,
        truth,
        (_WIDTH, _HEIGHT),
        "Curves learned by three calibrators, the learned link with its band, and the true curve",
        [
            (f"3px solid {colour}", "learned link, with its 95 % band"),
            *((f"2px {line} {tint}", name) for name, (tint, line) in _RIVALS.items()),
            ("2px dashed currentColor", "truth"),
        ],
        Axis("score", low, high, range(math.ceil(low), int(high) + 1)),
        Axis("probability", 0, 1, [0, 0.5, 1]),
    )
    said = "; ".join(f"{frame.value} cases: {frame.told}" for frame in frames)
    return HTMLTable(content, f"A slider for the number of cases. {said}")


def _frame(data: str, n: int, number: int, grid: Array) -> Frame:
    cases = draw(data, "curve", "curve", n, number)
    truth = expit(CURVES[data].log_odds(cases.test_scores))
    ours = LinkCalibrator(scale="real").fit(cases.scores, cases.y)
    low, high = ours.predict_interval(grid)
    drawn = ribbon(_points(grid, low), _points(grid, high), COLOURS["ISGP"])
    off = {"learned link": ours.predict_proba(cases.test_scores)[:, 1] - truth}
    for name, (tint, line) in _RIVALS.items():
        rival = fit(name, cases.scores, cases.y, cases.probability)
        style = f'stroke="{tint}" stroke-width="2" stroke-dasharray="{_DASHES[line]}"'
        drawn += curve(_points(grid, rival(grid)), style)
        off[name] = rival(cases.test_scores) - truth
    drawn += curve(
        _points(grid, ours.predict_proba(grid)[:, 1]),
        f'stroke="{COLOURS["ISGP"]}" stroke-width="3"',
    )
    amounts = ", ".join(
        f"{name} {100 * np.sqrt(np.square(each).mean()):.1f}" for name, each in off.items()
    )
    told = f"Root mean square error of the probability, in percentage points: {amounts}."
    return Frame(f"{n:,}", drawn, told)


def _points(grid: Array, probability: Array) -> list[str]:
    across = _WIDTH * (grid - grid[0]) / (grid[-1] - grid[0])
    return marks(across, _HEIGHT * (1 - np.asarray(probability)))
