"""The figures on decisions judged together show what is stored and what is drawn."""

import numpy as np
import pandas as pd

from bayesloss_book.beyond.together import experiment, figures


def test_the_example_keeps_marginals_and_loses_the_dependence():
    here = figures.live(2, 12, 512, 0)
    assert (here.together.mean(0) == here.alone.mean(0)).all()
    assert here.together.sum(1).var() > 2 * here.alone.sum(1).var()
    assert len(figures.draw_example(here).axes) == 2
    assert len(figures.draw_counts(here).axes) == 1


def test_regrets_are_drawn_in_thousandths():
    index = pd.MultiIndex.from_product(
        [["f"], [10], list(experiment.INPUTS), list(experiment.METHODS)],
        names=["utility", "m", "test", "method"],
    )
    found = pd.DataFrame({"mean": np.arange(len(index)) / 1e3, "error": 0.0}, index=index)
    axis = figures.draw_regrets(found).axes[0]
    assert [float(line.get_xdata()[0]) for line in axis.lines[:6]] == [0, 1, 2, 3, 4, 5]
