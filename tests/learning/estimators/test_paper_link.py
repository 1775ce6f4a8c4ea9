"""Tests of the paper's link as an object with parameters."""

import pytest
from link_fits import fit, kinked
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from bayesloss import LinkgisticClassifier, PaperLink


@parametrize_with_checks([LinkgisticClassifier(link=PaperLink(n_basis=4), max_iter=1)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*outside")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:not converged")
def test_two_basis_functions_are_the_fewest():
    X, y, _ = kinked(60)
    assert fit(X, y, n_basis=2, max_iter=1).link_
    with pytest.raises(ValueError, match="n_basis.*Got 1"):
        fit(X, y, n_basis=1)


def test_its_parameters_are_reached_through_the_classifier():
    model = LinkgisticClassifier(link=PaperLink(a=3.0))
    assert model.get_params()["link__a"] == 3.0
    other = clone(model).set_params(link__a=2.0, link__prior="gp")
    assert repr(other.link) == "PaperLink(a=2.0, prior='gp')"
    assert model.link.a == 3.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("prior", "gauss"), ("a", 1.0), ("gamma", 0.0), ("n_samples", 0), ("loss", "log")],
)
def test_a_parameter_out_of_range_is_named(name, value):
    X, y, _ = kinked(60)
    model = LinkgisticClassifier(link=PaperLink(**{name: value}))
    with pytest.raises(ValueError, match=f"'{name}' parameter of PaperLink"):
        model.fit(X, y)
