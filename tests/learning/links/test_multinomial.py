import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bayesloss.learning.links import multinomial
from bayesloss.learning.links.multinomial import FoldedFits, fit_softmax, folds_of
from bayesloss.learning.weights.linear_scores import LinearScores


@pytest.mark.parametrize("C", [0.01, 2.0])
def test_weights_are_scikit_learns(C, classes_of):
    data, classes = classes_of(C=C)
    fit, _ = fit_softmax(data, 1e-7)
    other = LogisticRegression(C=C, tol=1e-10, max_iter=10_000)
    other.fit((data.inputs.Z - data.centre).numpy(), classes, data.weight.numpy())
    assert fit.settled(1e-7)
    np.testing.assert_allclose(fit.beta, other.coef_, rtol=0, atol=2e-5)
    # scikit-learn's offsets, too, are free up to a constant
    free = (fit.offset - fit.offset.mean()).numpy()
    np.testing.assert_allclose(free, other.intercept_ - other.intercept_.mean(), atol=2e-5)


@pytest.mark.parametrize("spare", [0, 2**23])
def test_weights_without_some_data(spare, monkeypatch, classes_of):
    """With the same penalty on a sum over fewer; one fold at a time, or all with common passes."""
    monkeypatch.setattr(multinomial, "_SPARE", spare)
    data, classes = classes_of()
    fold = folds_of(data.labels.argmax(0))
    fits = FoldedFits(data, fold, 1e-7)
    assert fits.settled and not FoldedFits(data, fold, 1e-30).settled
    assert len(fits._batches) == (1 if spare else 5)
    seen = (fits.held_out() + fits.level[:, None]).numpy()
    for each in range(5):
        kept = fold.numpy() != each
        Z = (data.inputs.Z - data.centre).numpy()
        other = LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000)
        other.fit(Z[kept], classes[kept], data.weight.numpy()[kept])
        expected = other.decision_function(Z[~kept]).T
        near = seen[:, ~kept] - seen[:, ~kept].mean(0)
        np.testing.assert_allclose(near, expected - expected.mean(0), rtol=0, atol=2e-4)


def apart(n, d, C, *, chance=False):
    """Three classes that d columns tell apart, if only since there are more than rows."""
    generator = np.random.default_rng(0)
    Z = generator.normal(size=(n, d))
    classes = (Z @ generator.normal(size=(d, 3))).argmax(1)
    if chance:
        classes = np.arange(n) % 3
    labels = torch.from_numpy(np.eye(3, dtype=np.int64)[classes].T.copy())
    return LinearScores.of(torch.from_numpy(Z), labels, torch.ones(n).double(), C), classes


@pytest.mark.parametrize("C", [1e2, 1e4])
def test_held_out_scores_of_classes_that_can_be_told_apart(C):
    """scikit-learn's regressions without each fold: the losses agree within a standard error."""
    data, classes = apart(300, 30, C)
    fold = folds_of(data.labels.argmax(0))
    fits = FoldedFits(data, fold, 1e-4)
    ours = (fits.held_out() + fits.level[:, None]).log_softmax(0).T.numpy()
    theirs, Z = np.empty_like(ours), data.inputs.Z.numpy()
    for each in range(5):
        out = fold.numpy() == each
        other = LogisticRegression(C=C, tol=1e-8, max_iter=10_000).fit(Z[~out], classes[~out])
        theirs[out] = other.predict_log_proba(Z[out])
    ours, theirs = (each[np.arange(300), classes] for each in (ours, theirs))
    assert abs(ours.mean() - theirs.mean()) < theirs.std() / math.sqrt(300)


@pytest.mark.parametrize("C", [1e6, math.inf])
def test_no_held_out_score_knows_its_label(C):
    """Labels by chance, 60: right within two standard errors of a third, after moves too."""
    data, _ = apart(60, 80, C, chance=True)
    fits = FoldedFits(data, folds_of(data.labels.argmax(0)), 1e-4)
    for _ in range(4):
        right = (fits.held_out() + fits.level[:, None]).argmax(0) == data.labels.argmax(0)
        assert float(right.double().mean()) < 1 / 3 + 2 * math.sqrt(2 / 9 / 60)
        fits.move(bent)


def test_what_all_classes_share_is_nought_where_no_penalty_decides(classes_of):
    """It changes no probability, but it is part of the scores that sources see."""
    data, _ = classes_of(C=math.inf)
    fits = FoldedFits(data, folds_of(data.labels.argmax(0)), 1e-6)
    zero = {"rtol": 0, "atol": 1e-12 * float(fits.scores.abs().max())}
    for each in (fits.beta, fits.level, fits.held_out()):
        np.testing.assert_allclose(each.sum(0), 0, **zero)


_MANY = 20  # moves, of a few steps each, towards sources that stay


def test_weights_for_straight_lines(classes_of):
    t, data, (other, _) = 1.7, classes_of()[0], classes_of(C=2.0 * 1.7**2)
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
def test_weights_for_bent_sources(spare, monkeypatch, classes_of):
    """Where moves end, the objectives have no slope: by automatic differentiation."""
    monkeypatch.setattr(multinomial, "_SPARE", spare)
    data, _ = classes_of(n=400, bend=3.0)
    fold = folds_of(data.labels.argmax(0))
    fits = FoldedFits(data, fold, 1e-6)
    before = fits._beta.clone(), fits._offset.clone()
    for _ in range(_MANY):
        fits.move(bent)
    torch.testing.assert_close(fits._offset, before[1], rtol=0, atol=1e-12)
    for i in range(6):
        weight = torch.where(fold == i - 1, 0.0, data.weight)

        def objective(beta, weight=weight, offset=fits._offset[i]):
            x = beta @ (data.inputs.Z - data.centre).T + offset[:, None]
            fit = (data.labels * torch.log_softmax(x + x.sin() / 2, dim=0)).sum(0) @ weight
            return (fit - (beta**2).sum() / (2 * 2.0)) / weight.sum()  # C = 2

        slope = torch.autograd.functional.jacobian(objective, fits._beta[i])
        assert float(slope.abs().max()) < 2e-6
        assert float(objective(fits._beta[i])) > float(objective(before[0][i])) + 1e-3
        rows = fold == i - 1
        scores = data.scores(fits._beta[i], fits._offset[i])[:, rows]
        torch.testing.assert_close(fits.held_out()[:, rows], scores, rtol=0, atol=1e-10)


def test_coordinates_know_what_classes_have_in_common(classes_of):
    """The Hessian there by automatic differentiation: one class's, and the common direction's."""
    data, _ = classes_of(n=200)
    fit, _ = fit_softmax(data, 1e-6)
    # Bends of the sources are left out: lines of different slopes have none.
    slopes = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64).expand(3, 200)
    log_p = (slopes * fit.scores).log_softmax(0)
    share = data.weight / data.total

    def loss(scores):
        return -((data.labels * (slopes * scores).log_softmax(0)).sum(0) * share).sum()

    H = torch.autograd.functional.hessian(loss, fit.scores)
    H = torch.stack([H[:, n, :, n] for n in range(200)]) / share[:, None, None]
    curvature = multinomial._curvatures(slopes * fit.scores, slopes)
    torch.testing.assert_close(curvature[:3], H.diagonal(dim1=1, dim2=2).T, rtol=1e-9, atol=1e-12)
    one = torch.full((3,), 3**-0.5, dtype=torch.float64)
    torch.testing.assert_close(curvature[3], H @ one @ one, rtol=1e-9, atol=1e-12)
    assert not multinomial._curvatures(log_p, torch.ones_like(log_p))[3].abs().max() > 1e-15


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
