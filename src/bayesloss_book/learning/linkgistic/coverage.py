"""How often the band of a learned link holds the truth: simulated data sets, one after another."""

from dataclasses import replace

import numpy as np
import torch

from bayesloss_book.learning.linkgistic.held_out import fixed_link, relinked
from bayesloss_book.learning.linkgistic.rounds import KINKED, Round, Task, kinked, learn
from paperledger.stores.results import crossed, runs


def covered(found: Round, problem: Task, n_samples: int = 400) -> float:
    """The share of test inputs whose true log odds lie within the 95 % band of nu."""
    if problem.odds is None:
        raise ValueError("expected a problem with true log odds, got none")
    centre = torch.from_numpy(problem.X.mean(axis=0))
    x = (torch.from_numpy(problem.X_test) - centre) @ found.beta
    draws = found.posterior.sample(n_samples, torch.Generator().manual_seed(0))
    low, high = np.quantile(found.posterior.prior.source(x, draws), [0.025, 0.975], axis=0)
    return float(((low <= problem.odds) & (problem.odds <= high)).mean())


def measure(*, seed: int, n: int, C: float, n_basis: int) -> dict[str, float]:
    """Coverage in round 0 by the score that bands are over; weights of logistic regression."""
    problem = kinked(n, seed)
    found = learn(problem, rounds=0, C=C, n_basis=n_basis)[0]
    known = replace(
        problem, X=(problem.X @ KINKED)[:, None], X_test=(problem.X_test @ KINKED)[:, None]
    )
    return {
        "fitted": covered(found, problem),
        "held_out": covered(relinked(problem, found, fixed_link(problem, C)[1]), problem),
        "known": covered(learn(known, rounds=0, C=C, n_basis=n_basis)[0], known),
    }


# Of data sets like the one of the slider.
run = runs(measure, lambda: crossed(seed=range(100)), "link_coverage", n=1000, C=1e3, n_basis=32)
