"""Links that no straight one comes near, and fits to them, for several files of tests."""

from functools import cache

import numpy as np
import torch
from scipy.special import expit

from bayesloss import LinkgisticClassifier, LogLoss, PaperLink
from bayesloss.learning.data.folds import content_folds
from bayesloss.learning.data.inputs import equal_rows
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import fit_fixed_link


def kinked(n, seed=0, d=4):
    """Log odds that rise slowly below zero and steeply above: far from any straight link."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d)) + 5
    x = 2 * (X - 5) @ np.array([1.0, -1.0, 0.5, 0.0])[:d]
    odds = np.where(x < 0, 0.3 * x, 2.5 * x) - 0.5
    return X, (generator.random(n) < expit(odds)).astype(int), odds


def regression(tol, n=240, C=0.7, *, weighted=False):
    """Inputs, labels and weights of a kinked problem, its logistic regression, and its folds."""
    X, y, _ = kinked(n)
    weight = np.ones(n)
    if weighted:
        weight = np.random.default_rng(1).uniform(0.3, 0.9, n)
    labels = torch.from_numpy((y == 1)[None].view(np.int8))
    data = LinearScores.of(torch.from_numpy(X), labels, torch.from_numpy(weight), C)
    fit, data = fit_fixed_link(data, LogLoss(), 0.1 * tol)
    p = expit(fit.scores[0].numpy())
    folds = content_folds(equal_rows(X), y, weight, np.stack([1 - p, p], axis=1))
    return X, y, weight, data, fit, folds


def fit(X, y, prior="isgp", *, C=1e3, tol=1e-4, max_iter=30, **link):
    """A fit by the paper's EM, with the prior chosen by the evidence unless its a is given."""
    link = PaperLink(prior=prior, **{"n_basis": 32, "a": None, "n_samples": None, **link})
    return LinkgisticClassifier(link=link, C=C, tol=tol, max_iter=max_iter).fit(X, y)


@cache
def usual(n, prior="isgp", **options):
    """Come back to one fit to what `kinked` makes; no test may change it."""
    return fit(*kinked(n)[:2], prior, **options)
