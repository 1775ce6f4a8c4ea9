"""Tests of the choice of the penalty: against refits without each datum, and without each fold."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from bayesloss import LinkgisticClassifier
from bayesloss.learning.estimators.linkgistic_fit import Settings
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.links.em import fit_links
from bayesloss.learning.links.link_model import LinkModel
from bayesloss.learning.links.multinomial import common_scale
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import fit_fixed_link

pytestmark = pytest.mark.filterwarnings("ignore:the best penalty of those tried")


@parametrize_with_checks([LinkgisticClassifier(C=[0.1, 1.0], n_basis=4, max_iter=2)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*outside")
def test_scikit_learn_checks(estimator, check):
    if check.func.__name__ == "check_estimator_sparse_matrix":
        pytest.skip("the way of sparse arrays, which are checked")
    check(estimator)


def few(n=120, d=25, seed=0):
    """So few rows a column that the penalty matters."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d))
    beta = generator.normal(size=d) / np.sqrt(d)
    return X, (generator.random(n) < expit(2 * X @ beta)).astype(int)


CS = [1e-3, 0.03, 1.0, 30.0]


def test_scores_are_those_of_refits_without_each_datum():
    """Weights refitted n times, and one link fitted to the scores that these give."""
    X, y = few()
    model = LinkgisticClassifier(C=CS[:3]).fit(X, y)
    for C, score in zip(CS[:3], model.scores_, strict=True):
        usual = LogisticRegression(C=C, tol=1e-8, max_iter=1000, warm_start=True)
        x = np.empty(len(X))
        for i in range(len(X)):
            rest = np.arange(len(X)) != i
            x[i] = (X[i] - X.mean(0)) @ usual.fit(X[rest], y[rest]).coef_[0]
        # The scores themselves are the inputs, all at weight 1: nothing is fitted but the link.
        data = LinearScores.of(
            torch.from_numpy(x[:, None]), torch.from_numpy(y[None]), torch.ones(len(x)).double(), 1
        )
        fixed, _ = fit_fixed_link(data, Bernoulli().loss, 1e-6)
        given = torch.from_numpy(x)
        model_of_link = LinkModel(
            Bernoulli(),
            lambda _, C=C, X=X, y=y: _prior(X, y, C),
            Settings.of(model).noise,
            ordered=True,
        )
        out = _Given(fixed.scores[0] - fixed.offset[0] - given)
        link = fit_links(data, model_of_link, tol=1e-4, max_iter=0, leave_one_out=out, fixed=fixed)
        nu = link.posteriors[0].prior.source(given, link.draws[0])
        expected = torch.where(given.new_tensor(y) == 1, nu, -nu)
        assert score == pytest.approx(
            float(torch.nn.functional.logsigmoid(expected).mean()), abs=0.01
        )


class _Given:
    """What takes scores to others, which are held out already."""

    def __init__(self, shift):
        self.found = SimpleNamespace(shift=shift)

    def influences(self, *_):
        return {0: self.found}


def _prior(X, y, C):
    x = (X - X.mean(0)) @ LogisticRegression(C=C, tol=1e-8, max_iter=1000).fit(X, y).coef_[0]
    priors = Settings.of(LinkgisticClassifier()).priors
    return priors.first(torch.from_numpy(x), torch.ones(len(x)).double(), member=3)


def test_the_fit_is_that_of_the_c_chosen():
    X, y = few()
    model = LinkgisticClassifier(C=CS).fit(X, y)
    assert model.C_ == model.Cs_[np.nanargmax(model.scores_)] == 1.0
    same = LinkgisticClassifier(C=model.C_).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), same.predict_proba(X))


def test_the_path_ends_when_weaker_penalties_are_no_better():
    X, y = few()
    model = LinkgisticClassifier(C="auto").fit(X, y)
    np.testing.assert_allclose(model.Cs_, np.geomspace(1e-4, 1e4, 10))
    best = int(np.nanargmax(model.scores_))
    tried = min(best + 3, 10)
    assert np.isfinite(model.scores_[:tried]).all() and np.isnan(model.scores_[tried:]).all()


def test_groups_are_held_out_whole():
    """Each row thrice, with a little noise: row by row the weakest penalty would look best."""
    X, y = few()
    generator = np.random.default_rng(1)
    thrice = np.repeat(X, 3, axis=0) + 0.01 * generator.normal(size=(360, 25))
    groups = np.repeat(np.arange(120), 3)
    plain = LinkgisticClassifier(C=CS).fit(X, y)
    each = LinkgisticClassifier(C=CS).fit(thrice, np.repeat(y, 3))
    whole = LinkgisticClassifier(C=np.array(CS) / 3).fit(thrice, np.repeat(y, 3), groups=groups)
    # Counts are data for the link: under the strongest penalty it gets farther from its prior.
    assert whole.scores_[1:3] == pytest.approx(plain.scores_[1:3], abs=0.02)
    assert np.nanmax(each.scores_) > np.nanmax(plain.scores_) + 0.05


@pytest.mark.parametrize("multi_class", ["joint", "ovr"])
def test_many_classes(multi_class):
    X, y = load_iris(return_X_y=True)
    generator = np.random.default_rng(0)
    X = np.hstack([X + generator.normal(size=X.shape), generator.normal(size=(150, 40))])
    model = LinkgisticClassifier(C=np.geomspace(1e-4, 1e4, 6), multi_class=multi_class).fit(X, y)
    same = LinkgisticClassifier(C=model.C_, multi_class=multi_class).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), same.predict_proba(X))
    assert model.Cs_[0] < model.C_ < model.Cs_[-1]


def test_joint_scores_are_near_those_of_refits():
    """Multinomial regressions without each datum; their common scale is fitted as on the path."""
    X, y = load_iris(return_X_y=True)
    X = X + np.random.default_rng(0).normal(size=X.shape)
    Cs = [0.01, 0.3, 10.0]
    model = LinkgisticClassifier(C=Cs).fit(X, y)
    labels = torch.from_numpy(np.eye(3)[y].T)
    refitted = []
    for C in Cs:
        seen = np.empty((3, 150))
        usual = LogisticRegression(C=C, tol=1e-6, max_iter=1000, warm_start=True)
        for i in range(150):
            rest = np.arange(150) != i
            seen[:, i] = usual.fit(X[rest], y[rest]).decision_function(X[i : i + 1])[0]
        scores = torch.from_numpy(seen)
        data = SimpleNamespace(labels=labels, weight=torch.ones(150).double())
        scale = common_scale(scores, torch.zeros(3).double(), data)
        refitted.append(float((labels * torch.log_softmax(scale * scores, 0)).sum() / 150))
    assert np.argmax(model.scores_) == np.argmax(refitted)
    # One class at a time, and one step: that is worth some hundredths where data are this few.
    assert model.scores_ == pytest.approx(refitted, abs=0.04)


@pytest.mark.parametrize(("Cs", "end"), [([1e-4, 1e-3], "weakest"), ([1e3, 1e4], "strongest")])
def test_a_best_penalty_at_the_end_is_told(Cs, end):
    with pytest.warns(UserWarning, match=f"is the {end}"):
        LinkgisticClassifier(C=Cs).fit(*few())


@pytest.mark.parametrize("Cs", [[], [0.0, 1.0], [-1.0], [[1.0]]])
def test_penalties_that_are_none(Cs):
    with pytest.raises(ValueError, match="expected positive values of C, got"):
        LinkgisticClassifier(C=Cs).fit(*few())
