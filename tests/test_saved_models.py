"""Which saved models need PyTorch's own classes: skops cannot load these, and the guide says so."""

import pickle
import pickletools
from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from bayesloss import (
    CalibratedClassifier,
    CostClassifier,
    CostMatrix,
    GPClassifier,
    ISGPRegressor,
    LinkCalibrator,
    LinkgisticClassifier,
    PaperLink,
    SoftmaxCalibrator,
)

GUIDE = Path(__file__).resolve().parents[1] / "book" / "guide" / "your_own_data.md"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 2))
Y = (X[:, 0] + RNG.logistic(size=90) > 0).astype(int)
K = np.arange(90) % 3

WITHOUT = {
    "LinkCalibrator": lambda: LinkCalibrator().fit(X[:, 0], Y),
    "SoftmaxCalibrator": lambda: SoftmaxCalibrator().fit(RNG.normal(size=(90, 3)), K),
    "CalibratedClassifier": lambda: CalibratedClassifier(GaussianNB()).fit(X, Y),
    "CostClassifier": lambda: CostClassifier(GaussianNB(), CostMatrix(1, 5)).fit(X, Y),
    "LinkgisticClassifier": lambda: LinkgisticClassifier().fit(X, Y),
    "one against the rest": lambda: LinkgisticClassifier(multi_class="ovr").fit(X, K),
}
WITH = {
    "ISGPRegressor": lambda: ISGPRegressor(n_basis=8).fit(X[:, 0], Y),
    "GPClassifier": lambda: GPClassifier(length_scale=1.0, amplitude=2.0).fit(X, Y),
    "joint": lambda: LinkgisticClassifier(multi_class="joint").fit(X, K),
    "PaperLink": lambda: LinkgisticClassifier(link=PaperLink(n_basis=8)).fit(X, Y),
}


def holds_tensors(model):
    """Whether a pickle names anything of PyTorch's."""
    said = [str(arg) for _, arg, _ in pickletools.genops(pickle.dumps(model)) if arg is not None]
    return any(each.split(".")[0].split(" ")[0] == "torch" for each in said)


@pytest.mark.parametrize("name", WITHOUT)
def test_these_are_saved_without_tensors(name):
    assert not holds_tensors(WITHOUT[name]())


@pytest.mark.parametrize("name", WITH)
def test_these_hold_tensors_and_the_guide_names_them(name):
    assert holds_tensors(WITH[name]())
    (said,) = [line for line in GUIDE.read_text("utf-8").splitlines() if "skops" in line]
    assert name in said.partition("hold PyTorch's tensors")[2]
