r"""What to label next, so that decisions at one's own costs get better soonest.

A link's posterior is held by paths nu_k with weights. The expected cost after one more label at x
needs nothing but the second moments of their probabilities p_k, for

    p(s | yes at x) = E[p_k(s) p_k(x)] / E[p_k(x)].

So the value of a label is closed for all candidates at once, as in `one more label` of
:mod:`bayesloss_book.beyond.both`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit, xlogy
from torch import Tensor

from bayesloss_book import Array
from bayesloss_book.beyond.costs_unknown.fits import REAL
from bayesloss_book.data import score_sets as scores
from bayesloss_book.data.labelled_scores import DATA, make_prior, problem
from bayesloss_book.references.samplers import elliptical_slice_sampling
from paperledger.stores.results import runs

NODES = np.linspace(-50, 50, 101)  # scores are rounded to these
RATIOS = {"1": 1 / 2, "5": 1 / 6, "19": 1 / 20}  # a missed case to a false yes, and the threshold
LABELS = (4, 6, 8, 12, 16, 24, 32, 48, 64)  # the first four at random
METHODS = {
    "random": "at random",
    "threshold": "nearest to the threshold",
    "variance": "largest variance of the log odds",
    "log": "least expected log loss",
    "regret": "least expected cost",
}
_AT_COSTS = ("threshold", "regret")  # those that know the costs
# cases to choose from, in real tables and in the five kinds
_POOL = 1_000
_SMALL_POOL = 120


@dataclass(frozen=True)
class Pool:
    """Cases to choose from, and the cases that decisions are on, by node."""

    nodes: NDArray[np.int64]  # (N,)
    labels: Array  # (N,)
    mass: Array  # (G,), the targets' distribution
    positive: Array  # (G,), the part of the mass with label 1, or its expectation

    @classmethod
    def of(cls, x: Array, y: Array, targets: Array, truth: Array) -> "Pool":
        """From scores within the range of the nodes."""
        at, seen = (np.rint(np.clip(part, -50, 50) + 50).astype(np.int64) for part in (x, targets))
        mass, positive = (np.bincount(seen, w, 101) / len(seen) for w in (None, truth))
        return cls(at, y, mass, positive)

    def regret(self, p: Array, t: float) -> float:
        """Cost of deciding by p less that of the best cut, a missed case costing 1."""
        price = (t * (self.mass - self.positive) - (1 - t) * self.positive) / (1 - t)  # of yes
        return float(price[p > t].sum() - np.append(np.cumsum(price[::-1])[::-1], 0.0).min())


class Paths:
    """Draws from the posterior over links: reweighted, resampled, and moved."""

    def __init__(self, n_paths: int, seed: int) -> None:
        self.prior, self.chance = make_prior(), np.random.default_rng(seed)
        self.features = self.prior.features(torch.from_numpy(NODES))
        self.counts = torch.zeros((2, len(NODES)), dtype=torch.float64)
        self.z = torch.from_numpy(self.chance.normal(size=(n_paths, len(self.prior.location))))
        self._restart()

    def _source(self, z: Tensor, features: Tensor) -> Tensor:
        Gamma = self.prior.location + z * self.prior.precision.rsqrt()
        return self.prior.coefficients(Gamma) @ features.T

    def _log_likelihood(self, z: Tensor) -> Tensor:
        seen = self.counts.sum(dim=0) > 0
        nu = self._source(z, self.features[seen])
        (noes, ones) = self.counts[:, seen]
        return torch.nn.functional.logsigmoid(nu) @ (noes + ones) - nu @ noes

    def _restart(self) -> None:
        self.nu = self._source(self.z, self.features).numpy()
        self.p, self.weight = expit(self.nu), np.full(len(self.z), 1 / len(self.z))

    def add(self, node: int, label: float) -> None:
        """One more label."""
        self.counts[int(label), node] += 1
        self.weight = self.weight * np.abs(1 - label - self.p[:, node])
        self.weight /= self.weight.sum()
        if 1 / (self.weight**2).sum() < len(self.z) / 4:
            levels = (np.arange(len(self.z)) + self.chance.random()) / len(self.z)
            kept = np.searchsorted(np.cumsum(self.weight), levels).clip(max=len(self.z) - 1)
            self.z = elliptical_slice_sampling(
                self._log_likelihood,
                self.z.shape[1],
                n_chains=len(self.z),
                n_draws=1,
                n_burn_in=4,
                seed=int(self.chance.integers(2**31)),
                start=self.z[torch.from_numpy(kept)],
            )[:, 0]
            self._restart()

    @property
    def mean(self) -> Array:
        """The probability of a 1 at each node."""
        return self.weight @ self.p


def expected_after(p: Array, weight: Array, mass: Array, t: float | None) -> Array:
    """The expected risk on targets after one label at each node, (G,): at costs t, or log loss."""
    at = weight @ p
    both = (p * weight[:, None]).T @ p  # E[p(s) p(x)]
    total = np.zeros(len(at))
    for chance, joint in ((at, both), (1 - at, at[:, None] - both)):
        # The risk is positively homogeneous, so Pr[label] times that of the posterior mean is
        # that of the joint probabilities of (yes at s, label at x) and (no at s, label at x).
        yes = joint
        no = chance - joint
        if t is None:
            risk = xlogy(chance, chance) - xlogy(yes, yes) - xlogy(no, no.clip(1e-300))
        else:
            risk = np.minimum(t * no, (1 - t) * yes)
        total += mass @ risk
    return total


def choose(method: str, paths: Paths, mass: Array, t: float) -> Array:
    """What is to be least at the node of the next label, (G,)."""
    if method == "threshold":
        return np.abs(logit(paths.mean.clip(1e-12, 1 - 1e-12)) - logit(t))
    if method == "variance":
        mean = paths.weight @ paths.nu
        return mean**2 - paths.weight @ paths.nu**2
    return expected_after(paths.p, paths.weight, mass, t if method == "regret" else None)


def curve(pool: Pool, method: str, t: float, n_paths: int, seed: int) -> dict[int, Array]:
    """The probabilities by number of labels, chosen from a pool in random order."""
    paths = Paths(n_paths, seed)
    left = list(range(len(pool.labels)))
    found = {}
    for n in range(1, LABELS[-1] + 1):
        place = 0
        if method != "random" and n > LABELS[0]:
            place = int(choose(method, paths, pool.mass, t)[pool.nodes[left]].argmin())
        case = left.pop(place)
        paths.add(int(pool.nodes[case]), float(pool.labels[case]))
        if n in LABELS:
            found[n] = paths.mean
    return found


def draw(data: str, number: int) -> Pool:
    """One draw of a pool and of targets."""
    if data in DATA:
        one = problem(data, _SMALL_POOL, number)
        return Pool.of(*(part.numpy() for part in (one.x, one.y, one.targets, one.labels)))
    found = scores.draw(data, "real", REAL[data], _POOL, number)
    x = found.scores
    targets = found.test_scores
    if found.probability:
        x, targets = (logit(part.clip(1e-3, 1 - 1e-3)) for part in (x, targets))
    low, high = np.quantile(x, [0.01, 0.99])
    x, targets = ((part - (low + high) / 2) * 90 / (high - low) for part in (x, targets))
    return Pool.of(x, found.y, targets, found.truth)


def measure(*, data: str, number: int, n_paths: int) -> dict[str, float]:
    """Regrets of one draw in thousandths of a missed case: ``METHOD/RATIO/LABELS``."""
    pool = draw(data, number)
    out = {}
    for method in METHODS:
        found: dict[int, Array] = {}
        for ratio, t in RATIOS.items():
            if method in _AT_COSTS or not found:
                found = curve(pool, method, t, n_paths, number)
            for n, p in found.items():
                out[f"{method}/{ratio}/{n}"] = round(1e3 * pool.regret(p, t), 6)
    return out


def cells(n_draws: int = 48) -> list[dict[str, Any]]:
    """Draws of the five kinds of data and of ten real tables."""
    return [{"data": data, "number": k} for k in range(n_draws) for data in (*DATA, *REAL)]


def curves(stored: pd.DataFrame) -> pd.DataFrame:
    """Mean avoidable costs over draws by data, method, ratio and number of labels."""
    names = [name for name in stored if name.count("/") == 2]
    mean = stored.groupby("data", sort=False)[names].mean().T
    index = [(m, r, int(n)) for m, r, n in (name.split("/") for name in names)]
    names = ["method", "ratio", "labels"]
    return mean.set_axis(pd.MultiIndex.from_tuples(index, names=names)).sort_index()


def against_random(found: pd.DataFrame) -> pd.DataFrame:
    """Avoidable cost in per cent of random labels', by ratio, labels and method, and its error."""
    rows = {}
    for method, ratio, n in found.index:
        base = found.loc[("random", ratio, n)]
        part = found.loc[(method, ratio, n)].sum() / base.sum()
        error = (found.loc[(method, ratio, n)] - part * base).sem() / base.mean()
        rows[ratio, n, method] = {"mean": 100 * part, "error": 100 * error}
    return pd.DataFrame(rows).T.rename_axis(["ratio", "labels", "method"]).sort_index()


def needed(found: pd.DataFrame, n: int = 32) -> pd.DataFrame:
    """Labels for the avoidable cost of n random ones, at most 64; NaN where those hardly help."""
    rows = {}
    for ratio in RATIOS:
        for data in found:
            random = found.loc[("random", ratio), data]
            counts = 0 < random[n] <= 0.75 * random[LABELS[0]]
            rows[ratio, data] = {
                m: _first(found.loc[(m, ratio), data].to_numpy(), random[n]) if counts else np.nan
                for m in METHODS
            }
    return pd.DataFrame(rows).T.rename_axis(["ratio", "data"])


def _first(regret: Array, goal: float) -> float:
    """The number of labels at which a curve over LABELS first falls to the goal."""
    if not (regret <= goal).any():
        return LABELS[-1]
    k = int((regret <= goal).argmax())
    before = slice(max(k - 1, 0), k + 1)
    return float(np.exp(np.interp(-goal, -regret[before], np.log(LABELS)[before])))


run = runs(measure, cells, "costs_labels", n_paths=512)
