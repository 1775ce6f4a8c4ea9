"""A slider for the number of cases: what a learned link and its rivals make of one true curve."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from bayesloss import LinkCalibrator
from bayesloss_book import Array
from bayesloss_book.beyond.calibration.figures import STYLES
from bayesloss_book.beyond.calibration.rivals import fit
from bayesloss_book.data.score_sets import CURVES, draw
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.drawing.html import DASHED, Axis, Canvas, Frame, curve, ribbon, stepped
from paperledger.html import HTMLTable

_RIVALS = {"sigmoid": "dotted", "isotonic": "solid"}
_DASHES = {"dotted": "2 4", "solid": "none"}


def cases_slider(data: str, sizes: Sequence[int], number: int, start: int) -> HTMLTable:
    """A curve learned from ever more cases, and how far off it is over new scores."""
    cases = draw(data, "curve", "curve", sizes[0], number)
    low, high = map(float, np.quantile(cases.test_scores, [0.002, 0.998]))
    across = Axis("score", low, high, range(math.ceil(low), int(high) + 1))
    canvas = Canvas(600, 260, across, Axis("probability", 0, 1, [0, 0.5, 1]))
    grid = np.linspace(low, high, 151)
    return stepped(
        "cases-slider",
        "cases",
        [_frame(data, n, number, grid, canvas) for n in sizes],
        start,
        curve(canvas.points(grid, expit(CURVES[data].log_odds(grid))), DASHED),
        canvas,
        "Curves learned by three calibrators, the learned link with its band, and the true curve",
        [
            (f"3px solid {COLOURS['ISGP']}", "learned link, with its 95 % band"),
            *((f"2px {line} {STYLES[name][0]}", name) for name, line in _RIVALS.items()),
            ("2px dashed currentColor", "truth"),
        ],
    )


def _frame(data: str, n: int, number: int, grid: Array, canvas: Canvas) -> Frame:
    cases = draw(data, "curve", "curve", n, number)
    truth = expit(CURVES[data].log_odds(cases.test_scores))
    ours = LinkCalibrator(scale="real").fit(cases.scores, cases.y)
    low, high = ours.predict_interval(grid)
    drawn = ribbon(canvas.points(grid, low), canvas.points(grid, high), COLOURS["ISGP"])
    off = {"learned link": ours.predict_proba(cases.test_scores)[:, 1] - truth}
    for name, line in _RIVALS.items():
        rival = fit(name, cases.scores, cases.y, cases.probability)
        style = f'stroke="{STYLES[name][0]}" stroke-width="2" stroke-dasharray="{_DASHES[line]}"'
        drawn += curve(canvas.points(grid, rival(grid)), style)
        off[name] = rival(cases.test_scores) - truth
    style = f'stroke="{COLOURS["ISGP"]}" stroke-width="3"'
    drawn += curve(canvas.points(grid, ours.predict_proba(grid)[:, 1]), style)
    errors = {name: 100 * np.sqrt(np.square(each).mean()) for name, each in off.items()}
    amounts = ", ".join(f"{name} {error:.1f}" for name, error in errors.items())
    told = f"Root mean square error of the probability, in percentage points: {amounts}."
    return Frame(f"{n:,}", drawn, told)
