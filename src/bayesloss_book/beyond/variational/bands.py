"""Do variational bands cover? The cells are those of the page on Laplace, data set for data set."""

import warnings
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

from bayesloss.learning.evidence.evidence import maximise_evidence
from bayesloss.learning.evidence.mixtures import PosteriorMixture, average_hyperparameters
from bayesloss.learning.evidence.variational import nearest
from bayesloss.learning.inference.laplace import Posterior, approximate
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import Mode
from bayesloss_book.problems.source_problems import grid, prior_and_likelihood, simulate
from bayesloss_book.references.gaussian_bounds import best_gaussian
from paperledger.stores.results import runs

METHODS = {
    "exact": "variational",
    "normal": "variational, as if ν were normal",
    "bound": "variational, by Jaakkola and Jordan's bound",
    "laplace_fitted": "Laplace, fitted hyper-parameters",
    "variational_fitted": "variational, fitted hyper-parameters",
    "laplace_averaged": "Laplace, averaged over hyper-parameters",
    "variational_averaged": "variational, averaged over hyper-parameters",
    "laplace_fitted_limited": "Laplace, fitted, γ limited",
    "laplace_averaged_limited": "Laplace, averaged, γ limited",
    "variational_averaged_limited": "variational, averaged, γ limited",
}
N_DRAWS = 99  # ranks run from 0 to this


def measure(*, task: str, method: str, seed: int, n: int, n_basis: int) -> dict[str, float]:
    """Simulate a data set, infer nu by one method, and compare with the truth.

    ``covered_50``, ``covered_80``, ``covered_95``: the part of the 21 points of the grid where the
    truth lies in the band. ``rank_left``, ``rank_right``: how many of 99 draws of nu lie below the
    truth at -40 and at 40. ``steepness``: the rise of the mean of nu over the grid less that of the
    truth. ``width``: the mean standard deviation of nu. ``converged``: 1 or 0.
    """
    Gamma, x, y = simulate(task, n, n_basis, seed)
    prior, likelihood = prior_and_likelihood(task, n_basis)
    truth = prior.source(grid(), Gamma)
    generator = torch.Generator().manual_seed(seed + 1_000_000)
    # Counted, not printed.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        by_variation = method.startswith("variational")
        averaged = "_averaged" in method
        if averaged or "_fitted" in method:
            # The mixtures share their points, which Laplace's bound chooses.
            objective = nearest if method == "variational_fitted" else "bound"
            # With mu free as well, the evidence takes gamma to infinity.
            limits = {"gamma": (1e-10, float(prior.gamma))} if "_limited" in method else None
            given = prior, likelihood, x, y
            single = maximise_evidence(*given, objective=objective, bounds=limits).posterior
        else:
            single = best_gaussian(method, prior, likelihood, x, y)
        converged = single.converged
        posterior: Posterior | PosteriorMixture = single
        draws = single.prior.source(grid(), single.sample(N_DRAWS, generator))
        if averaged:
            data = single.likelihood.condense(prior.features, x, y)
            fit = _variational if by_variation else approximate
            mixture = average_hyperparameters(single, data, fit)
            posterior = mixture
            draws = mixture.sample_source(grid(), N_DRAWS, generator)
    mean, variance = posterior.moments(grid())
    miss = ((truth - mean).abs() / variance.sqrt()).numpy()
    below = (draws < truth).sum(dim=0)
    left, right = (int((grid() - at).abs().argmin()) for at in (-40, 40))
    covered = {
        f"covered_{level}": float(np.mean(miss <= stats.norm.ppf(0.5 + level / 200)))
        for level in (50, 80, 95)
    }
    return {
        **covered,
        "rank_left": int(below[left]),
        "rank_right": int(below[right]),
        "steepness": float((mean[-1] - mean[0]) - (truth[-1] - truth[0])),
        "width": float(variance.sqrt().mean()),
        "converged": int(converged),
    }


def _variational(joint: LogJoint, mode: Mode) -> Posterior:
    return nearest(joint, mode)[0]


def cells() -> list[dict[str, Any]]:
    """400 data sets at the true hyper-parameters, 100 by the bound for labels, fewer at others.

    With Gaussian noise all variational ones are "normal"; "limited" keeps gamma from growing.
    """
    labels = {"normal": 400, "exact": 400, "bound": 100}
    noise = dict.fromkeys(("variational_averaged", "laplace_averaged", "laplace_fitted"), 40)
    noise |= {"variational_fitted": 22, "laplace_fitted_limited": 24}
    noise |= {"variational_averaged_limited": 8, "laplace_averaged_limited": 8}
    counts = {("regression", "normal"): 400}
    counts |= {("classification", method): count for method, count in labels.items()}
    counts |= {("regression", method): count for method, count in noise.items()}
    return [
        {"task": task, "method": method, "seed": seed}
        for (task, method), count in counts.items()
        for seed in range(count)
    ]


run = runs(measure, cells, "variational_bands", n=100, n_basis=16)
