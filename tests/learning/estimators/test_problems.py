"""Tests of what data have to be, and of copies of rows."""

import numpy as np
import pytest
import torch
from link_fits import kinked

from bayesloss import LinkgisticClassifier
from bayesloss.learning.estimators.problems import read_problems


class TestBadInput:
    X, y, _ = kinked(200)

    def test_one_class(self):
        with pytest.raises(ValueError, match="two classes, got one class only: 1.0$"):
            LinkgisticClassifier().fit(self.X, np.ones(200))

    @pytest.mark.parametrize("device", ["gpu", "cuda:63"])  # no such kind; none or not so many
    def test_a_device_that_is_not_there(self, device):
        with pytest.raises(ValueError, match=f"PyTorch can use, got device='{device}': "):
            LinkgisticClassifier(device=device).fit(self.X, self.y)

    @pytest.mark.parametrize("scale", [1e300, 1e200, 1e-200, 1e-320])
    def test_inputs_whose_squares_overflow(self, scale):
        for y in (self.y, np.arange(200) % 3):
            with pytest.raises(ValueError, match=r"1e-100 and 1e\+100, or 0, got .*: scale them"):
                LinkgisticClassifier().fit(scale * self.X, y)
        with pytest.raises(ValueError, match=r"at most 1e\+100, got 1e\+200"):
            LinkgisticClassifier().fit(self.X, self.y).predict(np.full((1, 4), 1e200))

    def test_complex_weights(self):
        with pytest.raises(ValueError, match="Complex data not supported"):
            LinkgisticClassifier().fit(self.X, self.y, np.full(200, 1j))

    def test_groups_that_are_none(self):
        with pytest.raises(ValueError, match=r"expected groups of shape \(200,\), got \(3,\)"):
            LinkgisticClassifier().fit(self.X, self.y, groups=[1, 2, 3])
        with pytest.raises(ValueError, match="expected at least two groups, got one"):
            LinkgisticClassifier().fit(self.X, self.y, groups=np.zeros(200))


class TestReadProblems:
    X = np.array([[0.0], [1.0], [0.0], [2.0], [1.0]])
    y = np.array(["b", "c", "b", "a", "b"])
    weight = np.array([1.0, 2.0, 3.0, 0.0, 1.0])

    def read(self, **options):
        model = LinkgisticClassifier()
        return read_problems(model, self.X, self.y, self.weight, None, **options)

    def test_copies_are_merged_with_their_weights(self):
        classes, problems = self.read(merge_copies=True)
        assert classes.tolist() == ["b", "c"]  # a row of no weight does not count
        assert sorted(problems.weight.tolist()) == [1, 2, 4]
        assert problems.inputs.shape == (3, 1)
        assert float(problems.labels[0].double() @ problems.weight) == 2  # of class c

    def test_or_not(self):
        _, problems = self.read(merge_copies=False)
        assert problems.weight.tolist() == [1, 2, 3, 1]
        assert problems.labels.tolist() == [[0, 1, 0, 0]]

    def test_many_classes_are_a_problem_each(self):
        self.weight = np.ones(5)
        classes, problems = self.read(merge_copies=False)
        assert classes.tolist() == ["a", "b", "c"]
        assert problems.labels.argmax(0).tolist() == [1, 2, 1, 0, 1]
        assert (problems.labels.sum(0) == 1).all()

    def test_a_rotation_of_wide_inputs_changes_no_score(self):
        generator = np.random.default_rng(0)
        self.X = generator.normal(size=(5, 9))
        _, problems = self.read(merge_copies=False)
        narrow, back = problems.narrowed()
        assert narrow.inputs.shape == (4, 4)
        beta = narrow.labels.new_tensor([[1, 2, 3, 4]]).double()
        scores = narrow.inputs.scores(beta)
        np.testing.assert_allclose(problems.inputs.scores(back(beta)), scores, atol=1e-12)


def test_some_rows_keep_their_labels_weights_and_groups():
    """By number and by mask, as of a fit without its far rows."""
    X = np.arange(4.0)[:, None]
    y = np.array([0, 1, 2, 1])
    groups = np.array([5, 7, 5, 9])
    weight = np.array([1.0, 2.0, 3.0, 4.0])
    _, whole = read_problems(LinkgisticClassifier(), X, y, weight, groups, merge_copies=False)
    for chosen, rows in (([3, 0], [3, 0]), ([False, True, True, True], [1, 2, 3])):
        some = whole.some(torch.tensor(chosen))
        assert some.inputs.dense(torch.arange(len(rows))).tolist() == X[rows].tolist()
        assert some.labels.argmax(0).tolist() == y[rows].tolist()
        assert some.weight.tolist() == weight[rows].tolist()
        assert some.groups is not None
        assert some.groups.tolist() == (groups[rows] // 2 - 2).tolist()  # 5, 7, 9 are 0, 1, 2


def test_equal_rows_of_different_groups_stay_apart():
    """A fold that holds a group out holds out no case of another one."""
    X = np.array([[0.0], [0.0], [0.0], [1.0]])
    y = np.array([0, 0, 0, 1])
    groups = np.array([5, 7, 5, 7])
    _, found = read_problems(LinkgisticClassifier(), X, y, None, groups, merge_copies=True)
    assert found.weight.tolist() == [2, 1, 1]
    assert found.groups is not None
    assert found.groups.tolist() == [0, 1, 1]
