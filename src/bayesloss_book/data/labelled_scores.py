"""Labels with scores: simulated links, cars, and three of scikit-learn's tables.

Scores lie in [-50, 50], half of the period of the trigonometric kernel with c = 1/100.
"""

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book import Array
from bayesloss_book.data.data_sets import load_auto_mpg

N_BASIS = 16
# scores' largest size, and where their outer hundredths are put
_REACH = 50.0
_EDGE = 45.0

DATA = {
    "simulated": "links drawn from the prior",
    "cars": "cars: more than 22 miles a gallon, by weight",
    "breast cancer": "breast cancer: benign",
    "diabetes": "diabetes: progression above 140",
    "digits": "digits: five to nine",
}


@dataclass(frozen=True)
class Problem:
    """Labelled scores to learn from, and scores to decide on."""

    x: Tensor  # (n,), scores, and labels 0 and 1
    y: Tensor  # (n,)
    targets: Tensor  # (S,), in ascending order
    # (S,), what the targets turned out to be, or, where links are simulated, the probability of a 1
    labels: Tensor


def make_prior() -> ISGP:
    """The same for all: log odds rise by 8 between the ends, on average, and are near 0 midway."""
    kernel = TrigonometricKernel(a=1.5, c=0.01, n_basis=N_BASIS).scaled(0.08)
    return ISGP(kernel, mu=0.0, gamma=0.1)


def problem(data: str, n: int, seed: int, n_targets: int = 200) -> Problem:
    """Draw n labelled scores, and other scores as targets."""
    if data == "simulated":
        prior = make_prior()
        generator = torch.Generator().manual_seed(seed)
        Gamma = prior.sample(1, generator)[0]
        x = _REACH * (2 * torch.rand(n, dtype=torch.float64, generator=generator) - 1)
        coin = torch.rand(n, dtype=torch.float64, generator=generator)
        y = (coin < torch.sigmoid(prior.source(x, Gamma))).to(torch.float64)
        targets = torch.linspace(-_REACH, _REACH, n_targets, dtype=torch.float64)
        return Problem(x, y, targets, torch.sigmoid(prior.source(targets, Gamma)))
    rng = np.random.default_rng(seed)
    if data == "cars":
        cars = load_auto_mpg()
        score = -cars["weight"].to_numpy(dtype=float)
        label = (cars["mpg"] > 22).to_numpy(dtype=float)
        order = rng.permutation(len(label))
    else:
        X, label = _table(data)
        order = rng.permutation(len(label))
        half = order[: len(order) // 2]
        model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[half], label[half])
        score = model.decision_function(X)
        order = order[len(half) :]
    low, high = np.quantile(score[order], [0.01, 0.99])
    score = np.clip((score - (low + high) / 2) * 2 * _EDGE / (high - low), -_REACH, _REACH)
    learn = order[:n]
    rest = order[n:][:n_targets]
    rest = rest[np.argsort(score[rest], kind="stable")]
    parts = (score[learn], label[learn], score[rest], label[rest])
    return Problem(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))


def _table(data: str) -> tuple[Array, Array]:
    load = {"breast cancer": load_breast_cancer, "diabetes": load_diabetes, "digits": load_digits}
    X, y = load[data](return_X_y=True)
    positive = {"breast cancer": y == 1, "diabetes": y > 140, "digits": y >= 5}
    return X, positive[data].astype(float)
