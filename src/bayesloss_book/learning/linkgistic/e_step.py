"""What an E-step of linkgistic regression costs, for N scores and M basis functions."""

from functools import partial
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss.learning.inference.laplace import approximate
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss.learning.sources.priors import ISGP, grid_size
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book.drawing.figures import COLOURS
from paperledger.stores.results import crossed, runs


def measure(*, n: int, n_basis: int, repeat: int) -> dict[str, float]:
    """From scores to the link's posterior: nodes, rows with data, steps, and evidence a datum."""
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(n, dtype=torch.float64, generator=generator)
    y = torch.rand(n, dtype=torch.float64, generator=generator) < torch.sigmoid(x)
    low = float(x.min())
    high = float(x.max())
    prior = ISGP(TrigonometricKernel(a=1.2, c=0.5 / max(high, -low), n_basis=n_basis), gamma=0.01)
    likelihood = Bernoulli()
    nodes = torch.linspace(low, high, grid_size(prior, high - low, n), dtype=torch.float64)
    shares = likelihood.shares(x, y.to(x.dtype), torch.ones_like(x), nodes)
    joint = LogJoint(prior, likelihood, likelihood.on_grid(prior.features, nodes, shares))
    mode = find_mode(joint, prior.start(nodes))
    return {
        "nodes": len(nodes),
        "rows": len(joint.data.targets),
        "steps": mode.n_iter,
        "log_evidence": approximate(joint, mode, with_bound=False).log_evidence / n,
    }


def cells() -> list[dict[str, Any]]:
    """N from 10^3 to 10^7 at M = 64, and M from 8 to 128 at N = 10^6; three repetitions."""
    found = crossed(n=[10**k for k in range(3, 8)], n_basis=[64], repeat=range(3))
    return found + crossed(n=[10**6], n_basis=(8, 16, 32, 128), repeat=range(3))


def medians(results: pd.DataFrame) -> pd.Series:
    """The median time of the repetitions, in seconds, by n and n_basis."""
    return results.groupby(["n", "n_basis"], sort=False)["seconds"].median()


def draw_cost(results: pd.DataFrame) -> Figure:
    """Median times and grid sizes against N at M = 64; times against M at N = 10^6."""
    times = medians(results).reset_index()
    figure, (upper, lower) = subplots(2, 1, figsize=(5.6, 6.2))
    at_64 = times[times["n_basis"] == 64]
    upper.plot(at_64["n"], at_64["seconds"], "o-", color=COLOURS["ISGP"], label="seconds")
    nodes = results[results["n_basis"] == 64].groupby("n")["nodes"].first()
    upper.plot(nodes.index, nodes / 1000, "s:", color=COLOURS["GP"], label="thousand grid nodes")
    upper.set(title="M = 64", xlabel="number of scores N", xscale="log", yscale="log")
    upper.legend(fontsize="small")
    at_million = times[times["n"] == 10**6].sort_values("n_basis")
    lower.plot(at_million["n_basis"], at_million["seconds"], "o-", color=COLOURS["ISGP"])
    lower.set(title="N = 1,000,000", xlabel="number of basis functions M", ylabel="seconds")
    lower.set_xscale("log", base=2)
    lower.set_ylim(0)
    return figure


# One after another on one thread, so that the times can be compared.
run = partial(runs(measure, cells, "link_cost"), n_jobs=1)
