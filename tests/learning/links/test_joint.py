import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict

from bayesloss import LinkgisticClassifier
from bayesloss.learning.links.joint import JointEM, fit_joint_links
from bayesloss.learning.links.multinomial import FoldedFits, fit_softmax, folds_of
from bayesloss.learning.links.softmax_joint import SoftmaxJoint
from bayesloss.learning.weights.linear_scores import LinearScores

K = 3


def test_priors_that_fall_behind_change_nothing(classes_of, prior_of):
    data, _ = classes_of(n=1000, bend=3.0)
    both = fit_joint_links(data, lambda reach: [prior_of(reach), prior_of(reach, 1e-3)], tol=1e-6)
    alone = fit_joint_links(data, lambda reach: [prior_of(reach)], tol=1e-6)
    assert both.log_evidence == pytest.approx(alone.log_evidence, abs=1e-3)


def test_what_is_held_out_is_held_out_whole(classes_of, prior_of):
    """Fits without a fold begin at that to all: left on the way they would flatter the evidence."""
    data, _ = classes_of(d=40)
    evidence = [
        fit_joint_links(data, lambda reach: [prior_of(reach)], tol=tol, max_iter=0).log_evidence
        for tol in (1e-3, 1e-7)
    ]
    # A tenth of a nat, of 227; fits to tol itself are 1.5 off.
    assert evidence[0] == pytest.approx(evidence[1], abs=0.1)


def test_rounds(classes_of, prior_of):
    """The best counts; without held-out scores there is one."""
    data, _ = classes_of(n=400, bend=3.0, C=0.02)

    def fit(**options):
        return fit_joint_links(data, lambda reach: [prior_of(reach)], tol=1e-5, **options)

    first, full = fit(max_iter=0), fit()
    assert first.history == (first.log_evidence,)
    assert full.history[0] == first.log_evidence
    assert full.log_evidence == max(full.history) > first.log_evidence + 1
    assert full.unsettled == ()
    assert "EM" in fit(max_iter=1).unsettled
    assert len(fit(held_out=False).history) == 1


def test_temperature_scales_levels_in_the_first_round_only(classes_of, prior_of):
    """Of log odds, levels and all, at first; then of scores alone, about levels that are known."""
    data, classes = classes_of(bend=2.0, C=0.05)
    fits = FoldedFits(data, folds_of(data.labels.argmax(0)), 1e-6)
    level, weight = fits.level.numpy().copy(), data.weight.numpy()

    def best_scale(nu_of):
        def loss(log_t):
            log_p = log_softmax(nu_of(np.exp(log_t)), axis=0)
            return log_t**2 / 2 - weight @ log_p[classes, np.arange(len(classes))]

        return np.exp(minimize_scalar(loss, bracket=(-0.5, 0.5), tol=1e-10).x)

    em = JointEM(data, fits, lambda reach: [prior_of(reach)], 1e-6)
    seen = fits.held_out().numpy().copy()
    em.e_step(1)
    t = best_scale(lambda t: t * (seen + level[:, None]))
    assert em.scale == pytest.approx(t, rel=1e-4)  # bounded searches end within 1e-5
    assert em.level.numpy() == pytest.approx(t * level, rel=1e-4)
    em.m_step(1)
    now, level = fits.held_out().numpy().copy(), em.level.numpy().copy()
    em.e_step(2)
    assert em.scale == pytest.approx(best_scale(lambda t: t * now + level[:, None]), rel=1e-4)


def test_rounds_help(classes_of, prior_of):
    """Bent sources, weights that are shrunk far too much: the loss on 4,000 new cases."""
    everything, classes = classes_of(n=4400, bend=3.0)
    data = LinearScores.of(
        everything.inputs.Z[:400], everything.labels[:, :400], torch.ones(400).double(), 0.02
    )
    new, classes = everything.inputs.Z[400:], classes[400:]
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


def test_sources_increase_and_differ_from_lines(classes_of, prior_of):
    data, _ = classes_of(n=3000, bend=3.0)
    fit = fit_joint_links(data, lambda reach: [prior_of(reach), prior_of(reach, 0.01)], tol=1e-5)
    assert fit.unsettled == ()
    assert float(fit.prior.kernel.variance) == pytest.approx(0.3)  # the evidence prefers bends
    for mode, scores in zip(fit.mode, fit.scores, strict=True):
        x = scores.sort().values
        assert float(fit.prior.source(x, mode).diff().min()) >= 0
        slope = fit.prior.derivative(x[[300, 2700]], mode)
        assert float(slope[1] / slope[0]) > 2  # 9 in truth, less by the weights' common scale


def test_covariance_is_that_of_the_curvature(classes_of, prior_of):
    data, _ = classes_of()
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

    @pytest.mark.filterwarnings("ignore:not converged")
    def test_copies_change_nothing(self):
        X, y, how = self.X[:200], self.y[:200], {"C": 1 / 3, "max_iter": 1}
        weighted = LinkgisticClassifier(**how).fit(X, y, sample_weight=np.full(200, 3.0))
        thrice = LinkgisticClassifier(**how).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3))
        np.testing.assert_array_equal(weighted.predict_proba(self.X), thrice.predict_proba(self.X))
