"""What `make test-newest` runs of scikit-learn's own tests: the stand-ins, and the list."""

from types import SimpleNamespace

import pytest
import yaml
from peers import adapter
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

import bayesloss


def test_a_stand_in_is_ours_with_their_parameters():
    stand_in = adapter.in_place_of(LogisticRegression, bayesloss.LinkgisticClassifier)
    model = clone(stand_in(C=2.0, solver="saga"))
    assert isinstance(model, bayesloss.LinkgisticClassifier)
    assert (model.C, model.solver) == (2.0, "saga")
    assert set(model.get_params()) == set(LogisticRegression().get_params())
    with pytest.raises(TypeError, match="unexpected keyword argument 'gamma'"):
        stand_in(gamma=1.0)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (LogisticRegression, bayesloss.LinkgisticClassifier),
        (LogisticRegressionCV, adapter.Classifier),
    ],
)
def test_a_stand_in_keeps_its_own_tolerance(theirs, ours):
    """Of both, so that a fit by either is the same: their values mean something else to ours."""
    model = adapter.in_place_of(theirs, ours)(tol=1e-12, max_iter=10_000)
    usual = bayesloss.LinkgisticClassifier()
    assert (model.tol, model.max_iter) == (usual.tol, usual.max_iter)


def test_the_list_says_of_tests_of_scikit_learn_why_they_do_not_apply():
    """`peers.adapter` checks the names against the tests of the installed scikit-learn."""
    left_out = yaml.safe_load(adapter.LEFT_OUT.read_text(encoding="utf-8"))
    assert left_out.keys() <= adapter.PEERS.keys()
    for reasons in left_out.values():
        for reason, names in reasons.items():
            assert len(reason) < 100
            assert "\n" not in reason
            assert all(name.startswith("test_") for name in names)


def test_what_is_left_out_must_fail_and_must_be_there():
    module = SimpleNamespace(__name__="theirs")
    marks = []

    def item(name):
        return SimpleNamespace(
            module=module,
            name=name,
            originalname=name.partition("[")[0],
            add_marker=lambda mark, append: marks.append((name, mark.kwargs)),
        )

    names = ["test_a[1-x]", "test_a[2-x]", "test_b[1]", "test_c"]
    listed = {"theirs": {"because": ["test_a[2*]", "test_b", "test_d"]}}
    assert adapter.expect_failures([item(name) for name in names], listed) == ["theirs: test_d"]
    expected = {"reason": "because", "strict": True}
    assert marks == [("test_a[2-x]", expected), ("test_b[1]", expected)]
