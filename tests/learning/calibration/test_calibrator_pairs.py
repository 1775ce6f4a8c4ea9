"""The calibrators' features in pairs; how, says ``feature_pairs``."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from feature_pairs import (
    Feature,
    Request,
    both_on,
    classes_renamed,
    copies_as_weights,
    copies_on,
    dask_as_array,
    dask_on,
    groups_on,
    groups_renamed,
    pairs,
    weights_as_copies,
    weights_on,
)
from scipy.special import expit, log_softmax

from bayesloss import LinkCalibrator, SoftmaxCalibrator

N = 120


def sure_on(request):
    """Some probabilities of exactly 0 and 1, whose log odds are infinite."""
    X = request.X.copy()
    X[:2] = 0.0
    X[3] = 1.0
    return replace(request, X=X)


def impossible_on(request):
    """Some classes of no chance at all, whose logits are minus infinity."""
    X = request.X.copy()
    rows = np.arange(0, 12, 3)
    X[rows, (request.y[rows] + 1) % 3] = -np.inf
    return replace(request, X=X)


def columns_renamed(request):
    """Classes in cyclic order, which is not its own inverse, and their columns with them."""
    renamed = classes_renamed(request)
    # Of the names in order, "a" was class 2, "b" class 0 and "c" class 1.
    order = [2, 0, 1]
    return replace(renamed, X=request.X[:, order], X_new=request.X_new[:, order])


LINK = {
    "sure scores": Feature(sure_on, place=0),
    "names": Feature(lambda request: request, classes_renamed, place=0),
    "sample_weight": Feature(weights_on, weights_as_copies),
    "groups": Feature(groups_on, groups_renamed),
    "copies": Feature(copies_on, copies_as_weights, place=2),
    "Dask": Feature(dask_on, dask_as_array, place=3),
}
SOFTMAX = {
    "impossible classes": Feature(impossible_on, place=0),
    "names": Feature(lambda request: request, columns_renamed, place=0),
    "sample_weight": Feature(weights_on, weights_as_copies),
    "groups": Feature(groups_on, groups_renamed),
    "copies": Feature(copies_on, copies_as_weights, place=2),
}
# Groups of Dask's cases are refused. Weights of cases and copies within a group are one thing, but
# copies here are of other rows than weights name: both go.
APART = {frozenset(("groups", "Dask"))}


@pytest.mark.parametrize(("said", "beside"), pairs(LINK, APART))
def test_link_calibrator(said, beside):
    generator = np.random.default_rng(4)
    odds = generator.normal(size=N)
    y = (generator.random(N) < expit(np.where(odds > 0, 2 * odds, 0.5 * odds))).astype(int)
    new = expit(np.linspace(-2, 2, 30))
    request = both_on(LINK, Request(expit(odds), y, new, LinkCalibrator), said, beside)
    otherwise = LINK[said].otherwise(request)
    # Where Newton's method may end.
    np.testing.assert_allclose(request.predicted(), otherwise.predicted(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("sources", [True, "auto"])
@pytest.mark.parametrize(("said", "beside"), pairs(SOFTMAX, APART))
def test_softmax_calibrator(said, beside, sources):
    generator = np.random.default_rng(5)
    logits = generator.normal(size=(N + 30, 3)) * [1.0, 2.0, 1.5]
    chances = np.exp(log_softmax(0.6 * logits + [0.3, 0.0, -0.5], axis=1))
    y = (chances.cumsum(axis=1) < generator.random((N + 30, 1))).sum(axis=1)
    make = partial(SoftmaxCalibrator, sources=sources)
    request = Request(logits[:N], y[:N], logits[N:], make)
    request = both_on(SOFTMAX, request, said, beside)
    otherwise = SOFTMAX[said].otherwise(request)
    # Where a search by L-BFGS may end.
    np.testing.assert_allclose(request.predicted(), otherwise.predicted(), rtol=0, atol=1e-4)
