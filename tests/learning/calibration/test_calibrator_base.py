"""What all calibrators refuse, which cases count for them, and how much if they are grouped.

The power is held against finite differences and the two-class form.
"""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import expit, log_softmax
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB

from bayesloss import CalibratedClassifier, LinkCalibrator, SoftmaxCalibrator
from bayesloss.learning.calibration.calibrator_base import composite_power

RNG = np.random.default_rng(0)
Y = np.arange(60) % 3
THREE = RNG.dirichlet([1.0] * 3, 60)
PROBLEMS = [
    (LinkCalibrator(), THREE[:, 0], Y == 0),
    (SoftmaxCalibrator(sources=False), THREE, Y),
    (CalibratedClassifier(cv=2), THREE, Y == 0),
]


@pytest.mark.parametrize(("model", "X", "y"), PROBLEMS)
@pytest.mark.parametrize(
    ("labels", "weight", "message"),
    [
        (slice(59), None, "inconsistent numbers of samples"),
        (slice(None), -np.ones(60), "[Nn]egative"),
        (slice(None), np.ones(59), "sample_weight"),
        (None, None, "Unknown label type: continuous"),
    ],
)
def test_labels_and_weights_that_do_not_fit_are_refused(model, X, y, labels, weight, message):
    y = RNG.normal(size=60) if labels is None else y[labels]
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, sample_weight=weight)


@pytest.mark.parametrize(("model", "X", "y"), PROBLEMS[:2])
def test_cases_of_weight_zero_are_left_out_with_their_groups(model, X, y):
    weight = np.repeat([1.0, 0.0], [48, 12])
    groups = np.arange(60) // 4
    found = model.fit(X, y, weight, groups).predict_proba(X)
    only = model.fit(X[:48], y[:48], None, groups[:48])
    np.testing.assert_array_equal(found, only.predict_proba(X))


@pytest.mark.parametrize(("model", "X", "y"), PROBLEMS)
@pytest.mark.parametrize("level", [0, 1, 95])
@pytest.mark.filterwarnings("ignore:scores run the wrong way")
def test_levels_outside_zero_and_one_are_refused(model, X, y, level):
    with pytest.raises(ValueError, match=r"a level in \(0, 1\), got"):
        model.fit(X, y).predict_interval(X, level=level)


@pytest.fixture
def cases():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1.5, (60, 3))
    return logits, rng.integers(0, 3, 60), rng.uniform(0.5, 2, 60), np.repeat(np.arange(15), 4)


def test_it_is_the_sandwich_of_the_log_likelihood(cases):
    """H and the groups' scores by central differences in (b_1, b_2, t); b_0 stays 0."""
    logits, codes, weight, groups = cases
    codes = np.repeat(codes[::4], 4)  # groups agree, so that the power is below 1
    group = np.eye(15)[groups]

    def by_group(theta):
        u = logits * theta[2] + np.array([0.0, theta[0], theta[1]])
        return group.T @ (weight * log_softmax(u, axis=1)[np.arange(60), codes])

    at = np.array([0.0, 0.0, 1.0])
    h = 1e-4
    e = h * np.eye(3)
    slopes = np.stack([(by_group(at + d) - by_group(at - d)) / (2 * h) for d in e])
    H = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            corners = (
                s * t * by_group(at + s * e[i] + t * e[j]).sum() for s in (1, -1) for t in (1, -1)
            )
            H[i, j] = -sum(corners) / (4 * h**2)
    expected = 3 / np.trace(np.linalg.solve(H, slopes @ slopes.T))
    assert expected < 0.9
    # Second differences are good to h^2 = 1e-8 and to rounding, 1e-14 / h^2 = 1e-6.
    assert composite_power(logits, codes, weight, groups) == pytest.approx(expected, rel=1e-5)


def test_two_classes_are_a_sigmoid_with_offset_and_slope(cases):
    _, codes, weight, groups = cases
    x = np.linspace(-2, 3, 60)
    y = np.repeat(codes[::4] > 0, 4)
    p = expit(x)
    design = np.stack([np.ones_like(x), x])
    H = (design * (weight * p * (1 - p))) @ design.T
    sums = np.stack([np.bincount(groups, row * weight * (y - p)) for row in design])
    expected = 2 / np.trace(np.linalg.solve(H, sums @ sums.T))
    found = composite_power(np.stack([0 * x, x], axis=1), y.astype(int), weight, groups)
    assert expected < 0.9
    assert found == pytest.approx(expected, rel=1e-9)


def test_independent_cases_keep_their_likelihood():
    """A power of 1 in expectation, cut off there: the mean of 40 is within 0.1 of it."""
    rng = np.random.default_rng(1)
    powers = []
    for _ in range(40):
        logits = rng.normal(0, 1, (400, 3))
        codes = (logits + rng.gumbel(size=(400, 3))).argmax(axis=1)
        powers.append(composite_power(logits, codes, np.ones(400), np.arange(400)))
    assert 0.9 < np.mean(powers) <= 1


@pytest.mark.parametrize("K", [3, 5, 8])
def test_scores_that_say_nothing_leave_the_offsets_alone(K):
    """All logits equal: H has K - 1 equal curvatures W / K, and two that are rounding errors."""
    rng = np.random.default_rng(0)
    codes = np.repeat(rng.integers(0, K, 30), 4)
    groups = np.repeat(np.arange(30), 4)
    weight = rng.uniform(0.5, 2, 120)
    sums = np.add.reduceat(weight[:, None] * (np.eye(K)[codes] - 1 / K), np.arange(0, 120, 4))
    expected = (K - 1) / (K / weight.sum() * (sums**2).sum())
    logits = np.repeat(rng.normal(size=(120, 1)), K, axis=1)
    assert expected < 0.9
    assert composite_power(logits, codes, weight, groups) == pytest.approx(expected, rel=1e-9)


# What is wanted of whoever only predicts: everything, from pickles, and still no PyTorch.
FRESH = """
import pickle, sys, warnings

warnings.simplefilter("ignore")
with open(sys.argv[1], "rb") as file:
    problems = pickle.load(file)
found = [
    [model.predict(X), model.predict_proba(X), *model.predict_interval(X), type(model)]
    for model, X in problems
]
found.append(pickle.loads(pickle.dumps(problems[0][0])).predict_proba(problems[0][1]))
import bayesloss
found.append([bayesloss.reliability.__name__, bayesloss.CostMatrix().decide([0.3, 0.7])])
print([name for name in ("torch", "dask", "matplotlib") if name in sys.modules])
with open(sys.argv[1], "wb") as file:
    pickle.dump(found, file)
"""


@pytest.mark.filterwarnings("ignore:scores run the wrong way")
def test_predictions_of_pickles_are_the_same_to_the_bit_and_need_no_pytorch(tmp_path):
    tails = np.exp(3 * RNG.normal(size=(60, 1)))  # whose range is mapped
    problems = [(clone(model).fit(X, y), X) for model, X, y in PROBLEMS]
    problems.append((SoftmaxCalibrator().fit(THREE, Y), THREE))
    problems.append((LinkCalibrator().fit(tails[:, 0], Y == 0), tails[:, 0]))
    problems.append((CalibratedClassifier(GaussianNB(), cv=2).fit(tails, Y), tails))
    path = tmp_path / "problems.pickle"
    path.write_bytes(pickle.dumps(problems))
    run = [sys.executable, "-c", FRESH, str(path)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
    *found, again, _ = pickle.loads(path.read_bytes())
    for (model, X), answers in zip(problems, found, strict=True):
        here = [model.predict(X), model.predict_proba(X), *model.predict_interval(X)]
        for one, other in zip(answers, here, strict=False):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again, problems[0][0].predict_proba(problems[0][1]))
