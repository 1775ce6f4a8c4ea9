"""The pictures of the findings in ten minutes show what they are given."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from bayesloss_book.guide.ten_minutes import draw_decisions, draw_excess, draw_readings, readings
from bayesloss_book.ledger.claims import Finding


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def row(what, measured):
    return {"what": what, "measured": measured, "expected": "0 ± 1", "ok": True}


def test_decisions_are_wrong_where_they_are_not_the_posteriors():
    (axes,) = draw_decisions({"posterior": 0.1, "a": 0.03, "b": 0.06}, 0.05).axes
    assert [bar.get_width() for bar in axes.patches] == [0.1, 0.03, 0.06]
    said = [text.get_text() for text in axes.texts]
    assert said == ["shut down", "stay on: wrong", "shut down"]
    (axes,) = draw_decisions({"posterior": 0.01, "a": 0.06}, 0.05).axes
    assert [text.get_text() for text in axes.texts] == ["stay on", "shut down: wrong"]


def test_readings_are_those_of_a_setting():
    finding = Finding("wn-x", "under-specified", [row("C = 1", "-0.5"), row("none", "2")])
    with pytest.raises(ValueError, match="a setting, got 'statement'"):
        readings(finding)
    finding = Finding("wn-x", "under-specified", finding.rows, check="setting")
    assert readings(finding).to_dict() == {"C = 1": -0.5, "none": 2.0}
    (axes,) = draw_readings(readings(finding), 0.7, "points").axes
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert dots[0].get_xdata().tolist() == [-0.5, 2.0]
    assert any(np.all(np.asarray(line.get_xdata()) == 0.7) for line in axes.lines)


def test_calibrators_stand_in_the_order_of_their_loss():
    excess = pd.DataFrame({"mean": [20.0, 0.0], "error": [1.0, 0.5]}, index=["sigmoid", "link"])
    (axes,) = draw_excess(excess).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["learned link", "sigmoid"]
