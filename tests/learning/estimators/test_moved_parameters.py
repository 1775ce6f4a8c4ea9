"""Tests of what an earlier release took."""

import pytest

from bayesloss import LinkgisticClassifier


class TestMovedParameters:
    """What an earlier release took works for this one, and says how to write it."""

    def test_those_of_the_papers_link(self):
        with pytest.warns(FutureWarning, match=r"a, prior: no longer.*link=PaperLink\(a=2.0,"):
            model = LinkgisticClassifier(a=2.0, prior="gp", C=2.0)
        assert model.C == 2.0
        assert model.link.get_params()["a"] == 2.0
        assert model.link.prior == "gp"
        assert model.link.n_samples is None

    def test_links_of_training_scores(self):
        with pytest.warns(FutureWarning, match="leave_one_out: no longer.*taken as link=PaperLink"):
            assert LinkgisticClassifier(leave_one_out=False).link.a is None

    @pytest.mark.parametrize("name", ["random_state", "n_samples", "leave_one_out"])
    def test_those_without_effect(self, name):
        with pytest.warns(FutureWarning, match=f"{name}: no longer.*without effect"):
            assert LinkgisticClassifier(**{name: 1}).link is None

    def test_what_never_was_one(self):
        with pytest.raises(TypeError, match="unexpected keyword argument 'prio'"):
            LinkgisticClassifier(prio="gp")

    def test_clones_and_parameters_know_the_new_ones_alone(self):
        names = LinkgisticClassifier().get_params().keys()
        assert names == {
            *("C", "class_weight", "device", "link"),
            *("max_iter", "multi_class", "tol", "verbose"),
        }

    def test_a_pickle_of_an_earlier_version(self):
        state = LinkgisticClassifier().__getstate__() | {"leave_one_out": True}
        with pytest.raises(ValueError, match="got one of an earlier version"):
            LinkgisticClassifier().__setstate__(state)
