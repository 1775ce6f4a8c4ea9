r"""LHG's loss-EM with its full M-step (their Table 1), where the utility is of the set.

For a choice h let :math:`U(z, h) = \mathrm E[u(t, k, P) \mid z] + M - 1`, with a utility u in
[0, 1], so that the largest loss is 1. Both steps raise LHG's bound (10) of the log gain,

.. math:: \mathrm E_q[\log U(z, h)] - \mathrm{KL}(q \,\|\, p(z \mid \mathcal D)).

Here q is Gaussian. Without the utility, at M infinite, it is the one of least KL(q || p). Given z
and what z leaves open of the latent function labels are independent: U is a mean over two sums.

* E-step: the fixed point of natural gradients (Khan and Lin 2017), by Bonnet's and Price's
  theorems. The mean gradient and Hessian of log U are those of its quadratic fit at draws of q.
* M-step: the logarithm is concave, so that no choice h' raises the mean of log U by more than
  :math:`\mathrm E_q[U(z, h') / U(z, h)] - 1`, linear in the utility, so that sorts find it.
"""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesloss.calibrating.decide_together import Utility, decide_together
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.whitened_gp import WhitenedGP, curvature, hazard
from bayesloss.quadrature import gauss_hermite
from bayesloss_book.beyond.together import experiment, loss_ep
from paperledger.stores.results import runs

PAPER = {"n_sets": 2, "n_draws": 256, "n_open": 8, "n_chain": 256, "n_labels": 8}
STARTS = ("informed", "random")  # the choice of the Gaussian of least KL to the posterior, or LHG's
Pair = tuple[Tensor, Tensor]  # of a Gaussian: its shift, and its precision
M = 1.1  # in units of the largest loss, which it has to exceed; LHG's experiments have 1


def moments(q: Pair) -> tuple[Tensor, Tensor, Tensor]:
    """Of a Gaussian's shift and precision: mean, root R of the covariance R R', and R^-1'."""
    factor = torch.linalg.cholesky(q[1])
    root = torch.linalg.inv(factor).T
    return root @ (root.T @ q[0]), root, factor


def counts(p: Tensor) -> Tensor:
    """How many of independent events happen: of chances (n, k) the probabilities (k + 1, n)."""
    mass = p.new_zeros((p.shape[1] + 1, len(p)))
    mass[0] = 1
    for i, each in enumerate(p.T):
        mass[1 : i + 2] += each * (mass[: i + 1] - mass[1 : i + 2])
        mass[0] *= 1 - each
    return mass


def mean_utility(p: Tensor, chosen: NDArray[Any], utility: Utility) -> Tensor:
    """The mean utility of a choice where labels are independent, with chances p (n, m) of 1."""
    k = int(chosen.sum())
    m = len(chosen)
    t = np.arange(k + 1)[:, None]
    s = np.arange(m - k + 1)
    values = torch.from_numpy(np.asarray(utility(t, k, t + s) + 0.0 * s, dtype=float))
    return (counts(p[:, chosen]) * (values @ counts(p[:, ~chosen]))).sum(0)


class FullLossEM(loss_ep.Draws):
    """One data set and its targets x. The same normal numbers serve all steps."""

    def __init__(
        self, gp: WhitenedGP, y: Tensor, x: Tensor, utility: Utility, n: int, n_open: int, seed: int
    ) -> None:
        super().__init__(gp, x, (n, n_open), seed)
        self.y = y
        self.utility = utility
        self.n_open = n_open
        r = gp.features.shape[1]
        self.coin = torch.rand((n * n_open, len(x)), dtype=x.dtype, generator=self.chance)
        self.pairs = torch.triu_indices(r, r)
        squares = self.normal[:, self.pairs].prod(1) - (self.pairs[0] == self.pairs[1]).double()
        self.fit = torch.linalg.pinv(torch.cat([squares[:, :1] * 0 + 1, self.normal, squares], 1))

    def chances(self, q: Pair) -> Tensor:
        """Of each label, (n n_open, m), given the weights and what these leave open."""
        mean, root, _ = moments(q)
        f = (mean + self.normal @ root.T) @ self.targets.T
        return torch.special.ndtr(f[:, None] + self.left).flatten(0, 1)

    def log_gain(self, p: Tensor, chosen: NDArray[Any]) -> Tensor:
        """Log U at each of the n draws of the weights."""
        each = mean_utility(p, chosen, self.utility).reshape(-1, self.n_open)
        return (each.mean(1) + M - 1).log()

    def site(self, q: Pair, chosen: NDArray[Any]) -> Pair:
        """The Gaussian factor that stands for the utility under q: its shift and precision."""
        mean, _, factor = moments(q)
        found = self.fit @ self.log_gain(self.chances(q), chosen)
        r = len(mean)
        H = mean.new_zeros((r, r))
        H[self.pairs[0], self.pairs[1]] = found[r + 1 :]
        precision = -factor @ (H + H.T) @ factor.T
        return factor @ found[1 : r + 1] + precision @ mean, precision

    def with_labels(self, site: Pair, q: Pair) -> Pair:
        """The Gaussian of least KL to prior times likelihood times a Gaussian factor, from q on."""
        nodes, weights = gauss_hermite(32)
        for _ in range(300):
            mean, root, _ = moments(q)
            f = self.features @ mean
            spread = (self.features @ root).norm(dim=1)
            margin = self.y[:, None] * (f[:, None] + spread[:, None] * nodes)
            bend = curvature(margin) @ weights
            pull = self.y * (hazard(margin) @ weights) + bend * f
            precision = torch.eye(len(mean)) + (self.features.T * bend) @ self.features + site[1]
            new = self.features.T @ pull + site[0], precision
            change = max(float((a - b).abs().max()) for a, b in zip(new, q, strict=True))
            q = 0.5 * (q[0] + new[0]), 0.5 * (q[1] + new[1])
            if change < 1e-7:
                break
        return q

    def e_step(self, q: Pair, chosen: NDArray[Any]) -> tuple[Pair, bool]:
        """The Gaussian of least KL to posterior times utility, from q on, and whether it stays."""
        for _ in range(30):
            try:
                new = self.with_labels(self.site(q, chosen), q)
            except torch.linalg.LinAlgError:  # a factor that no Gaussian fits
                return q, False
            mean, _, factor = moments(new)
            step = factor.T @ (mean - moments(q)[0])
            q = new
            if float(step.abs().max()) < 1e-3:
                return q, True
        return q, False

    def m_step(self, q: Pair, chosen: NDArray[Any], k: int | None) -> tuple[NDArray[Any], float]:
        """The choice of most mean log U that sorts find, and by how much no choice has more."""
        p = self.chances(q)
        labels = (self.coin < p).numpy()
        value = self.log_gain(p, chosen)
        plain = decide_together(labels, self.utility, k=k).chosen  # the best choice under q
        by_plain = self.log_gain(p, plain)
        while True:
            weight = (-value).exp().repeat_interleave(self.n_open).numpy()
            bound = decide_together(labels, self.utility, k=k, sample_weight=weight)
            own = np.average(experiment.worth(self.utility, labels, chosen), weights=weight)
            missed = float(max(bound.bound - own, 0) * weight.mean())
            tries = [(by_plain, plain), (self.log_gain(p, bound.chosen), bound.chosen)]
            best = max(tries, key=lambda each: float(each[0].mean()))
            if best[0].mean() <= value.mean() + 1e-9:
                return chosen, missed
            value, chosen = best

    def run(self, q: Pair, chosen: NDArray[Any], k: int | None) -> tuple[NDArray[Any], float, bool]:
        """E-steps and M-steps in turn: the last choice, what it may miss, and whether it stays."""
        for _ in range(20):
            q, settled = self.e_step(q, chosen)
            new, missed = self.m_step(q, chosen, k)
            if (new == chosen).all():
                return chosen, missed, settled
            chosen = new
        return chosen, missed, False


def measure(*, n_draws: int, n_open: int, **cell: Any) -> dict[str, float]:
    """Utility gained over EP: ``utility/m/test/start``, and by the ``gaussian`` of least KL.

    ``/missed`` and ``/settled`` are those of the last round, ``/changed`` how many choices differ
    from that Gaussian's.
    """

    def choose(
        gp: WhitenedGP, y: Tensor, x: Tensor, utility: Utility, k: int | None, seed: int
    ) -> loss_ep.Tried:
        em = FullLossEM(gp, y, x, utility, n_draws, n_open, seed)
        ep = expectation_propagation(gp.features[None], y[None])
        precision = torch.linalg.inv(ep.covariance[0])
        start = precision @ ep.mean[0], precision
        q = em.with_labels((0 * start[0], 0 * start[1]), start)
        by_ep, least = (
            decide_together((em.coin < em.chances(each)).numpy(), utility, k=k).chosen
            for each in (start, q)
        )
        order = np.random.default_rng(seed).random(len(x))
        drawn = order < 0.5 if k is None else order.argsort().argsort() < k
        choices = {"/gaussian": least}
        numbers = {}
        for name, first in zip(STARTS, (least, drawn), strict=True):
            found, numbers[f"/{name}/missed"], numbers[f"/{name}/settled"] = em.run(q, first, k)
            choices[f"/{name}"], numbers[f"/{name}/changed"] = found, (found != least).any()
        return loss_ep.Tried(by_ep, choices, numbers)

    return loss_ep.gains(choose, **cell)


def summary(stored: pd.DataFrame) -> pd.DataFrame:
    """Mean gains and their standard errors over cells: over ``gaussian``, and of that over EP."""
    rows = {}
    for utility, name in product(experiment.UTILITIES, (*STARTS, "gaussian")):
        gain = loss_ep.per_cell(stored, utility, f"/{name}")
        gain -= 0 if name == "gaussian" else loss_ep.per_cell(stored, utility, "/gaussian")
        rows[utility, name] = {"gain": gain.mean(), "error": gain.sem()}
    return pd.DataFrame(rows).T


# Two data sets a cell.
run = runs(measure, lambda: experiment.cells(n_repetitions=1), "together_loss_em", **PAPER)
