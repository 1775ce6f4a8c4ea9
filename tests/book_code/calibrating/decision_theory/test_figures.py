"""What finer inputs pay for, in a figure of the page on decisions, by hand."""

import numpy as np
from scipy.stats import norm

from bayesloss_book.calibrating.decision_theory import figures


def test_finer_pays_for_the_inputs_between_the_two_means():
    for axis, inputs in zip(
        figures.draw_finer((1, 4)).axes, ([0.0], [-0.75, -0.25, 0.25, 0.75]), strict=True
    ):
        means, values = axis.lines[0].get_data()
        # By hand: of two equal costs, half the surplus of the likelier label, where they disagree.
        surplus = abs(2 * norm.cdf((np.array(inputs) - 0.103) / np.sqrt(1.25)) - 1) / 2
        wrong = (np.array(inputs) > means[:, None]) != (np.array(inputs) > 0.103)
        np.testing.assert_allclose(values, (wrong * surplus).mean(axis=1), atol=1e-12)
        assert len(np.unique(values.round(9))) == len(inputs) + 1
