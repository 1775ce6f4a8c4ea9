"""Tests of the joint model of many classes: derivatives, weights, folds, and what it gains."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict

from bayesloss import LinkgisticClassifier, TrigonometricKernel
from bayesloss.learning.links import joint as joint_links
from bayesloss.learning.links.joint import (
    FoldedFits,
    SoftmaxJoint,
    fit_joint_links,
    fit_softmax,
    folds_of,
)
from bayesloss.learning.sources.priors import CentredISGP
from bayesloss.learning.weights.linear_scores import LinearScores

K = 3


def problem(n=300, d=4, C=2.0, seed=0, bend=1.0):
    """Labels of three classes; the weights of the data are 1, 2 and 3."""
    generator = np.random.default_rng(seed)
    z = generator.normal(size=(n, d)) * np.geomspace(1, 10, d) + 3
    x = (z - z.mean(0)) / np.geomspace(1, 10, d) @ generator.normal(size=(d, K))
    odds = np.where(x < 0, x / bend, x * bend)
    classes = (odds + generator.gumbel(size=(n, K))).argmax(1)
    weight = generator.integers(1, 4, n).astype(float)
    labels = np.stack([classes == k for k in range(K)]).astype(np.int64)
    return LinearScores(*(torch.from_numpy(a) for a in (z, labels, weight)), C), classes


def prior_of(reach, variance=0.3):
    kernel = TrigonometricKernel(a=2.0, c=0.5 / reach, n_basis=8).scaled(variance)
    return CentredISGP(kernel, tau=0.3)


@pytest.fixture
def joint():
    data, _ = problem(n=80)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((K, 80), dtype=torch.float64, generator=generator)
    prior = prior_of(4.0)
    found = SoftmaxJoint.of(
        prior,
        torch.tensor([0.5, -0.2, 0.1], dtype=torch.float64),
        [prior.features(row) for row in x],
        data.labels,
        data.weight,
    )
    Gamma = found.prior.location + 0.3 * torch.randn(
        len(found.prior.location), dtype=torch.float64, generator=generator
    )
    return found, Gamma, x, data


def test_density_is_that_of_the_model(joint):
    """Softmax of the sources themselves, and independent normal densities."""
    found, Gamma, x, data = joint
    prior, parts = found.each, Gamma.reshape(K, -1)
    nu = torch.stack([prior.source(row, part) for row, part in zip(x, parts, strict=True)])
    log_p = torch.log_softmax(nu, dim=0)[data.labels.argmax(0), torch.arange(80)]
    normal = torch.distributions.Normal(found.prior.location, found.prior.precision.rsqrt())
    expected = data.weight @ log_p + normal.log_prob(Gamma).sum()
    torch.testing.assert_close(found(Gamma), expected, rtol=1e-12, atol=0)
    assert found.prior.location[prior.kernel.n_basis + 1] == 0.5


def test_derivatives(joint):
    """Against automatic differentiation of the density."""
    found, Gamma, _, _ = joint
    slope = torch.autograd.functional.jacobian(found, Gamma)
    torch.testing.assert_close(found.gradient(Gamma), slope, rtol=1e-9, atol=1e-9)
    bend = torch.autograd.functional.hessian(found, Gamma)
    torch.testing.assert_close(found.hessian(Gamma), -bend, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("C", [0.01, 2.0])
def test_weights_are_scikit_learns(C):
    data, classes = problem(C=C)
    fit, _ = fit_softmax(data, 1e-7)
    other = LogisticRegression(C=C, tol=1e-10, max_iter=10_000)
    other.fit((data.Z - data.centre).numpy(), classes, data.weight.numpy())
    assert fit.settled(1e-7)
    np.testing.assert_allclose(fit.beta, other.coef_, rtol=0, atol=2e-5)
    # scikit-learn's offsets, too, are free up to a constant
    free = (fit.offset - fit.offset.mean()).numpy()
    np.testing.assert_allclose(free, other.intercept_ - other.intercept_.mean(), atol=2e-5)


@pytest.mark.parametrize("spare", [0, 2**23])
def test_weights_without_some_data(spare, monkeypatch):
    """With the same penalty on a sum over fewer; one fold at a time, or all with common passes."""
    monkeypatch.setattr(joint_links, "_SPARE", spare)
    data, classes = problem()
    fold = folds_of(data.labels.argmax(0))
    fits = FoldedFits(data, fold, 1e-7)
    assert fits.settled
    assert len(fits._batches) == (1 if spare else 5)
    seen = (fits.held_out() + fits.level[:, None]).numpy()
    for each in range(5):
        kept = fold.numpy() != each
        Z = (data.Z - data.centre).numpy()
        other = LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000)
        other.fit(Z[kept], classes[kept], data.weight.numpy()[kept])
        expected = other.decision_function(Z[~kept]).T
        near = seen[:, ~kept] - seen[:, ~kept].mean(0)
        np.testing.assert_allclose(near, expected - expected.mean(0), rtol=0, atol=2e-4)


_MANY = 20  # moves, of a few steps each, towards sources that stay


def test_weights_for_straight_lines():
    """Of slope t: those of a multinomial regression with t^2 C for C, divided by t."""
    t, data, (other, _) = 1.7, problem()[0], problem(C=2.0 * 1.7**2)
    expected, _ = fit_softmax(other, 1e-8)

    def lines(scores):
        return t * scores + expected.offset[:, None], torch.full_like(scores, t)

    fits = FoldedFits(data, None, 1e-7)
    for _ in range(_MANY):
        fits.move(lines)
    # With levels that are the lines', offsets stay.
    torch.testing.assert_close(
        fits.scores, data.scores(fits.beta, 0 * fits.level), rtol=0, atol=1e-10
    )
    torch.testing.assert_close(t * fits.beta, expected.beta, rtol=0, atol=1e-5)


def bent(scores):
    return scores + scores.sin() / 2, 1 + scores.cos() / 2


@pytest.mark.parametrize("spare", [0, 2**23])
def test_weights_for_bent_sources(spare, monkeypatch):
    """Where moves end, the objectives have no slope: by automatic differentiation."""
    monkeypatch.setattr(joint_links, "_SPARE", spare)
    data, _ = problem(n=400, bend=3.0)
    fold = folds_of(data.labels.argmax(0))
    fits = FoldedFits(data, fold, 1e-6)
    before = fits._beta.clone(), fits._offset.clone()
    for _ in range(_MANY):
        fits.move(bent)
    torch.testing.assert_close(fits._offset, before[1], rtol=0, atol=1e-12)
    for i in range(6):
        weight = torch.where(fold == i - 1, 0.0, data.weight)

        def objective(beta, weight=weight, offset=fits._offset[i]):
            x = beta @ (data.Z - data.centre).T + offset[:, None]
            log_p = torch.log_softmax(x + x.sin() / 2, dim=0)
            fit = (data.labels * log_p).sum(0) @ weight
            return (fit - (beta**2).sum() / (2 * 2.0)) / weight.sum()  # C = 2

        slope = torch.autograd.functional.jacobian(objective, fits._beta[i])
        assert float(slope.abs().max()) < 2e-6
        assert float(objective(fits._beta[i])) > float(objective(before[0][i])) + 1e-3
        rows = fold == i - 1
        scores = data.scores(fits._beta[i], fits._offset[i])[:, rows]
        torch.testing.assert_close(fits.held_out()[:, rows], scores, rtol=0, atol=1e-10)


def test_coordinates_know_what_classes_have_in_common():
    """The Hessian there by automatic differentiation: one class's, and the common direction's."""
    data, _ = problem(n=200)
    fit, _ = fit_softmax(data, 1e-6)
    # Bends of the sources are left out: lines of different slopes have none.
    slopes = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64).expand(3, 200)
    log_p = (slopes * fit.scores).log_softmax(0)
    share = data.weight / data.total

    def loss(scores):
        return -((data.labels * (slopes * scores).log_softmax(0)).sum(0) * share).sum()

    H = torch.autograd.functional.hessian(loss, fit.scores)
    H = torch.stack([H[:, n, :, n] for n in range(200)]) / share[:, None, None]
    curvature = joint_links._curvatures(slopes * fit.scores, slopes)
    torch.testing.assert_close(curvature[:3], H.diagonal(dim1=1, dim2=2).T, rtol=1e-9, atol=1e-12)
    one = torch.full((3,), 3**-0.5, dtype=torch.float64)
    torch.testing.assert_close(curvature[3], H @ one @ one, rtol=1e-9, atol=1e-12)
    assert not joint_links._curvatures(log_p, torch.ones_like(log_p))[3].abs().max() > 1e-15


@pytest.mark.parametrize("which", [0, 2, 5])
def test_a_single_fit_that_does_not_settle_is_told(which, monkeypatch):
    """The one for all data, or any of those without a fold: then not all have settled."""
    monkeypatch.setattr(joint_links, "_SPARE", 0)
    data, _ = problem(n=60)
    fold = folds_of(data.labels.argmax(0))
    assert FoldedFits(data, fold, 1e-3).settled
    number = iter(range(6))

    def unsettled(fit):
        return replace(fit, slope=fit.slope + 1) if next(number) == which else fit

    softmax, searched = joint_links.fit_softmax, joint_links.maximise_weights

    def whole(*given):
        fit, data = softmax(*given)
        return unsettled(fit), data

    monkeypatch.setattr(joint_links, "fit_softmax", whole)
    monkeypatch.setattr(
        joint_links, "maximise_weights", lambda *given, **rest: unsettled(searched(*given, **rest))
    )
    assert not FoldedFits(data, fold, 1e-3).settled, f"all but number {which} settled"


def test_few_steps_a_round_lead_where_all_do(monkeypatch):
    """Sources and weights stand still together: the evidence of rounds whose weights settle."""
    data, _ = problem(n=600, bend=3.0, C=0.1)
    fits = []
    for steps in (joint_links._FEW_STEPS, 1000):
        monkeypatch.setattr(joint_links, "_FEW_STEPS", steps)
        fits.append(fit_joint_links(data, lambda reach: [prior_of(reach)], tol=1e-6, max_iter=60))
    few, all_steps = fits
    assert few.unsettled == all_steps.unsettled == ()
    # A thousandth of a nat a datum would be 0.6.
    assert few.log_evidence == pytest.approx(all_steps.log_evidence, abs=0.3)


def test_priors_that_fall_behind_are_out_of_the_race(monkeypatch):
    """The one that wins is the one that wins alone."""
    data, _ = problem(n=1500, bend=3.0)
    calls, made = [], SoftmaxJoint.of

    def of(prior, *rest):
        calls.append(float(prior.kernel.variance))
        return made(prior, *rest)

    monkeypatch.setattr(SoftmaxJoint, "of", of)
    both = fit_joint_links(data, lambda reach: [prior_of(reach), prior_of(reach, 1e-3)], tol=1e-6)
    assert len(calls) == len(both.history) + 1
    alone = fit_joint_links(data, lambda reach: [prior_of(reach)], tol=1e-6)
    assert both.log_evidence == pytest.approx(alone.log_evidence, abs=1e-3)


def test_what_is_held_out_is_held_out_whole():
    """Fits without a fold begin at that to all: left on the way they would flatter the evidence."""
    data, _ = problem(d=40)
    evidence = [
        fit_joint_links(data, lambda reach: [prior_of(reach)], tol=tol, max_iter=0).log_evidence
        for tol in (1e-3, 1e-7)
    ]
    # A tenth of a nat, of 227; fits to tol itself are 1.5 off.
    assert evidence[0] == pytest.approx(evidence[1], abs=0.1)


def test_rounds():
    """The best counts; without held-out scores there is one."""
    data, _ = problem(n=400, bend=3.0, C=0.02)

    def fit(**options):
        return fit_joint_links(data, lambda reach: [prior_of(reach)], tol=1e-5, **options)

    first, full = fit(max_iter=0), fit()
    assert first.history == (first.log_evidence,)
    assert full.history[0] == first.log_evidence
    assert full.log_evidence == max(full.history) > first.log_evidence + 1
    assert full.unsettled == ()
    assert "EM" in fit(max_iter=1).unsettled
    assert len(fit(held_out=False).history) == 1


def test_rounds_help():
    """Bent sources, weights that are shrunk far too much: the loss on 4,000 new cases."""
    everything, classes = problem(n=4400, bend=3.0)
    data = LinearScores(
        everything.Z[:400], everything.labels[:, :400], torch.ones(400).double(), 0.02
    )
    new, classes = everything.Z[400:], classes[400:]
    losses = []
    for max_iter in (0, 30):
        fit = fit_joint_links(data, lambda reach: [prior_of(reach)], tol=1e-5, max_iter=max_iter)
        x = fit.beta @ (new - data.centre).T
        edge = fit.prior.kernel.edge
        nu = [
            fit.prior.source(row.clamp(-edge, edge), mode)
            for row, mode in zip(x, fit.mode, strict=True)
        ]
        log_p = torch.log_softmax(torch.stack(nu), dim=0)
        losses.append(-float(log_p[classes, torch.arange(4000)].mean()))
    assert losses[1] < losses[0] - 0.01


def test_folds():
    """Every class has its share in every fold; groups stay whole, and folds of one size."""
    generator = np.random.default_rng(0)
    classes = torch.from_numpy(generator.integers(0, 3, 203))
    fold = folds_of(classes)
    for k in range(3):
        sizes = torch.bincount(fold[classes == k], minlength=5)
        assert int(sizes.max() - sizes.min()) <= 1
    groups = torch.from_numpy(generator.integers(0, 30, 203))
    fold = folds_of(classes, groups)
    assert all(len(fold[groups == g].unique()) == 1 for g in range(30))
    sizes = torch.bincount(fold)
    assert len(sizes) == 5
    assert int(sizes.max() - sizes.min()) <= int(torch.bincount(groups).max())
    assert len(folds_of(classes[:3], torch.tensor([0, 1, 1])).unique()) == 2


def test_sources_increase_and_differ_from_lines():
    data, _ = problem(n=3000, bend=3.0)
    fit = fit_joint_links(data, lambda reach: [prior_of(reach), prior_of(reach, 0.01)], tol=1e-5)
    assert fit.unsettled == ()
    assert float(fit.prior.kernel.variance) == pytest.approx(0.3)  # the evidence prefers bends
    for mode, scores in zip(fit.mode, fit.scores, strict=True):
        x = scores.sort().values
        nu = fit.prior.source(x, mode)
        assert float(nu.diff().min()) >= 0
        slope = fit.prior.derivative(x[[300, 2700]], mode)
        assert float(slope[1] / slope[0]) > 2  # 9 in truth, less by the weights' common scale


def test_covariance_is_that_of_the_curvature():
    data, _ = problem()
    fit = fit_joint_links(data, lambda reach: [prior_of(reach)], tol=1e-6, held_out=False)
    plain, _ = fit_softmax(data, 1e-7)
    assert fit.root.shape == (K * 10, K * 10)
    scale = float((fit.beta / plain.beta).median())
    joint = SoftmaxJoint.of(
        fit.prior, scale * plain.offset, [fit.prior.features(x) for x in fit.scores], data.labels,
        data.weight,
    )  # fmt: skip
    curvature = joint.hessian(fit.mode.flatten())
    torch.testing.assert_close(
        fit.root @ fit.root.T @ curvature, torch.eye(K * 10).double(), rtol=0, atol=1e-6
    )


class TestClassifier:
    X, y = load_digits(return_X_y=True)
    X = X / 16

    def test_better_than_a_temperature(self):
        """On digits, where logistic regression with C = 1 is underconfident by a factor of two."""
        train, test = np.arange(1797) % 3 != 0, np.arange(1797) % 3 == 0
        usual = LogisticRegression(max_iter=1000)
        out = cross_val_predict(
            usual, self.X[train], self.y[train], cv=5, method="decision_function"
        )
        rows = np.arange(train.sum())
        factor = minimize_scalar(
            lambda s: -log_softmax(s * out, axis=1)[rows, self.y[train]].sum(), bounds=(0.1, 10)
        ).x
        usual.fit(self.X[train], self.y[train])
        tempered = np.exp(log_softmax(factor * usual.decision_function(self.X[test]), axis=1))
        model = LinkgisticClassifier().fit(self.X[train], self.y[train])
        learned = log_loss(self.y[test], model.predict_proba(self.X[test]))
        assert model.joint_
        assert learned < log_loss(self.y[test], tempered)
        assert learned < 0.8 * log_loss(self.y[test], usual.predict_proba(self.X[test]))

    def test_probabilities_are_the_softmax_of_the_sources(self):
        model = LinkgisticClassifier().fit(self.X[:400], self.y[:400])
        nu = model.decision_function(self.X)
        np.testing.assert_allclose(
            model.predict_log_proba(self.X), log_softmax(nu, axis=1), rtol=0, atol=1e-12
        )
        np.testing.assert_allclose(
            model.predict_proba(self.X), np.exp(model.predict_log_proba(self.X)), atol=1e-12
        )
        scores = model.scores(self.X)
        for k, link in enumerate(model.links_):
            # The mean of a source, and its value at the mode, are nearly the same.
            low, high = link.source_band(scores[:50, k], level=0.99)
            assert ((low < nu[:50, k]) & (nu[:50, k] < high)).all()

    def test_copies_change_nothing(self):
        X, y = self.X[:200], self.y[:200]
        weighted = LinkgisticClassifier(C=1 / 3).fit(X, y, sample_weight=np.full(200, 3.0))
        thrice = LinkgisticClassifier(C=1 / 3).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3))
        np.testing.assert_array_equal(weighted.predict_proba(self.X), thrice.predict_proba(self.X))


@pytest.mark.parametrize("which", [0, 1, 5])
def test_a_regression_that_does_not_settle_is_told(which, monkeypatch):
    """The multinomial one of all data, or any of those without a fold, before there are links."""
    monkeypatch.setattr(joint_links, "_SPARE", 0)
    data, _ = problem(n=60)
    searched, adapted = joint_links.maximise_weights, joint_links.adapted_fit
    steep = iter([each == which for each in range(6)])

    def told(fit):
        return replace(fit, slope=fit.slope + 1) if next(steep) else fit

    def first(*given, **options):
        fit, coordinates = adapted(*given, **options)
        return told(fit), coordinates

    monkeypatch.setattr(joint_links, "adapted_fit", first)
    monkeypatch.setattr(joint_links, "maximise_weights", lambda *a, **o: told(searched(*a, **o)))
    assert not FoldedFits(data, folds_of(data.labels.argmax(0)), 1e-3).settled
    assert not list(steep), "each was looked at once"
