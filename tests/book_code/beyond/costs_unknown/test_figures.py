"""The figures on unknown costs show what is stored and what is computed."""

import numpy as np
import pandas as pd
import pytest

from bayesloss_book.beyond.costs_unknown import figures, fits, labels


def test_the_worth_of_a_label_is_drawn_for_each_ratio():
    pool = labels.draw("simulated", 0)
    figure = figures.draw_value(pool, figures.live(pool, 6, 0), 6)
    assert len(figure.axes[1].lines) == len(labels.RATIOS) + 1
    assert all(line.get_ydata().max() == pytest.approx(1) for line in figure.axes[1].lines)


def test_the_matching_line_is_nearer_to_the_truth_where_costs_lie():
    truth, by_log, by_cost = (line.get_ydata() for line in figures.draw_bill().axes[1].lines[:3])
    near = np.abs(np.asarray(truth) - fits.CENTRE) < fits.SPREAD
    off = [np.abs(np.asarray(truth) - np.asarray(line))[near].max() for line in (by_log, by_cost)]
    assert off[1] < 0.5 * off[0]


def test_savings_are_drawn_as_summarised():
    rows = [
        {"data": d, "family": f, "n": n, "log": 50.0, **_gains(k)}
        for f in fits.FAMILIES
        for n in fits.SIZES
        for k, d in enumerate("ab")
    ]
    found = fits.summary(pd.DataFrame(rows))
    assert found.loc[("link", "cost", 50), ["mean", "error"]].tolist() == pytest.approx([3, 1])
    assert found.loc[("link", "mixed", 50), ["ahead", "behind", "sets"]].tolist() == [0, 1, 2]
    axis = figures.draw_gains(found).axes[0]
    assert axis.lines[1].get_ydata().tolist() == pytest.approx([3] * len(fits.SIZES))


def _gains(k):
    gains = {"cost_gain": 1.0 + k, "mixed_gain": -1.0 + k}
    return gains | {f"{name}/error": 0.1 for name in gains}


def test_regrets_are_drawn_against_random_labels():
    def row(part):
        return {
            f"{m}/{r}/{n}": 10.0 if m == "random" else 10.0 * part
            for m in labels.METHODS
            for r in labels.RATIOS
            for n in labels.LABELS
        }

    stored = pd.DataFrame([{"data": "a", **row(0.4)}, {"data": "b", **row(0.6)}])
    found = labels.against_random(labels.curves(stored))
    assert found.loc[("5", 16, "regret")].tolist() == pytest.approx([50, 10])
    assert figures.draw_labels(found).axes[0].lines[1].get_ydata()[0] == pytest.approx(50)
