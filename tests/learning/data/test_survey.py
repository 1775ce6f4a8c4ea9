import numpy as np

from bayesloss.learning.data.survey import Survey


def test_parts_say_what_all_cases_do():
    """An empty part adds nothing, and one weight that is no whole number is enough."""
    x = np.array([0.2, 1.4, -3.0, 0.9, 0.0])
    y = np.array(["b", "a", "b", "c", "a"])
    weight = np.array([1.0, 2.0, 0.5, 3.0, 1.0])
    ends = [(0, 2), (2, 2), (2, 5)]
    parts = [Survey.of(x[i:j], y[i:j], weight[i:j]) for i, j in ends]
    merged = Survey.merged(parts)
    whole = Survey.of(x, y, weight)
    assert merged.labels.tolist() == whole.labels.tolist() == ["a", "b", "c"]
    for survey in (merged, whole):
        assert (survey.n, survey.weight, survey.inside) == (5, 7.5, 3)
        assert (survey.low, survey.high) == (-3.0, 1.4)
        assert not survey.whole
    assert parts[0].whole


def test_nan_is_told_by_the_ends():
    survey = Survey.merged(
        [Survey.of(np.array([v]), np.zeros(1), np.ones(1)) for v in (1.0, np.nan)]
    )
    assert np.isnan(survey.low)
    assert np.isnan(survey.high)
