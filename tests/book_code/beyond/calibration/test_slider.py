import numpy as np
import pytest
from bs4 import BeautifulSoup
from scipy.special import expit

from bayesloss_book.beyond.calibration.rivals import OURS, fit
from bayesloss_book.beyond.calibration.slider import cases_slider
from bayesloss_book.data.score_sets import CURVES, draw


def test_curves_are_drawn_to_scale_and_their_errors_told():
    """The learned link by the way in which the benchmark fits it, against the truth."""
    text = cases_slider("two steps", (60, 300), 0, start=0)._repr_html_()
    frame = BeautifulSoup(text, "html.parser").find(attrs={"data-frame": "300"})
    points = [point.split() for point in frame("path")[-1]["d"].removeprefix("M").split("L")]
    across, down = np.array(points, float).T
    cases = draw("two steps", "curve", "curve", 60, 0)
    low, high = np.quantile(cases.test_scores, [0.002, 0.998])
    cases = draw("two steps", "curve", "curve", 300, 0)
    learned = fit(OURS, cases.scores, cases.y, cases.probability)
    at = low + (high - low) * across / 600
    np.testing.assert_allclose(1 - down / 260, learned(at), atol=1e-3)  # pixels
    truth = expit(CURVES["two steps"].log_odds(cases.test_scores))
    off = 100 * np.sqrt(np.mean((learned(cases.test_scores) - truth) ** 2))
    told = float(frame["data-told"].split("learned link ")[1].split(",")[0])
    assert told == pytest.approx(off, abs=0.051)
