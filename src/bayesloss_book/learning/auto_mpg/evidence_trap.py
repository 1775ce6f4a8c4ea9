"""What goes wrong when Laplace's evidence is maximised for an ISGP, on the data of Table 1."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.learning.estimators.monotone import SEARCH_RANGES
from bayesloss.learning.evidence import evidence
from bayesloss.learning.inference.laplace import laplace
from bayesloss.learning.inference.likelihoods import Gaussian
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.threads import one_thread
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.learning.auto_mpg import table_1
from bayesloss_book.references.samplers import AnnealedSample, annealed_importance_sampling
from paperledger.stores.results import runs

STARTS = (8.0, 2.0, 1.2)


def cells() -> list[dict[str, Any]]:
    """A slice through nine values of a, and the ends of three searches for each objective."""
    values = [round(float(1 + gap), 4) for gap in np.geomspace(0.03, 30, 9)]
    points = [("slice", a) for a in values]
    points += [(objective, a) for objective in ("laplace", "bound") for a in STARTS]
    return [{"path": path, "a": a, "seed": seed} for path, a in points for seed in (0, 1)]


def measure(*, path: str, a: float, seed: int, n_basis: int) -> dict[str, float]:
    """Compare Laplace's approximation with the truth at one setting.

    ``a_end``: the setting's smoothness. ``laplace``, ``bound``, ``annealed`` and its standard error
    ``annealed_error``: log evidences in nats. ``effective_size``: of the annealed sample.
    ``error_laplace`` and ``error_exact``: mean squared test errors of the mean of nu under
    Laplace's Gaussian and under the annealed posterior, in squared miles per gallon.
    """
    trial = _Trial(n_basis)
    if path == "slice":
        prior = evidence.at_smoothness(trial.prior, a)
        likelihood = trial.likelihood
        posterior = laplace(prior, likelihood, trial.x, trial.y)
    else:
        found = _search(trial, "laplace" if path == "laplace" else "bound", a)
        posterior = found.posterior
        likelihood = found.likelihood
    sample, exact = trial.anneal(posterior.prior, likelihood, seed)
    return {
        "a_end": float(posterior.prior.kernel.a),
        "laplace": posterior.log_evidence,
        "bound": posterior.evidence_bound,
        "annealed": sample.log_evidence,
        "annealed_error": sample.error,
        "effective_size": sample.effective_size,
        "error_laplace": trial.test_error(posterior.mean(trial.new_x)),
        "error_exact": trial.test_error(exact),
    }


def draw_trap(results: pd.DataFrame) -> Figure:
    """The slice: three log evidences above, two test errors below."""
    on_slice = results[results["path"] == "slice"].groupby("a").mean(numeric_only=True)
    gap = on_slice.index - 1
    figure, (upper, lower) = subplots(2, 1, figsize=(5.4, 6.4), sharex=True)
    for axis, name, dashes, colour, label in (
        (upper, "annealed", "-", "data", "the truth, annealed"),
        (upper, "laplace", "--", "GP", "Laplace's"),
        (upper, "bound", ":", "ISGP", "lower bound"),
        (lower, "error_exact", "-", "data", "exact posterior"),
        (lower, "error_laplace", "--", "GP", "Laplace's Gaussian"),
    ):
        axis.plot(gap, on_slice[name], dashes, marker="o", color=COLOURS[colour], label=label)
    for axis in (upper, lower):
        axis.legend()
    upper.set(ylabel="log evidence in nats")
    lower.set(xscale="log", xlabel="$a - 1$  (rough ← → smooth)", ylabel="mean squared test error")
    return figure


def search_ends(results: pd.DataFrame) -> pd.DataFrame:
    """Where the searches ended, one row an objective and start."""
    ends = results[results["path"] != "slice"]
    return ends.groupby(["path", "a"], sort=False).mean(numeric_only=True)


def free_intercept(n_basis: int) -> pd.DataFrame:
    """What happens when the intercept's prior may become as narrow as it likes: all cars."""
    rows = {}
    for name, column in table_1.INPUTS.items():
        x, y = table_1.rows_of(name)
        model = table_1.fitted(name, "ISGP", n_basis, table_1.PERIOD_FRACTION)
        kept = model.posterior_
        freed = evidence.maximise_evidence(
            kept.prior,
            model.likelihood_,
            *model.standardise(x, y),
            bounds={**SEARCH_RANGES, "gamma": (SEARCH_RANGES["gamma"][0], 1e6)},
        ).posterior
        centre = torch.zeros(1, dtype=torch.float64)
        rows[column] = {
            "gamma, limited": f"{float(kept.prior.gamma):.0f}",
            "gamma, free": f"{float(freed.prior.gamma):.0e}",
            "nats gained": f"{freed.evidence_bound - kept.evidence_bound:.1f}",
            "sd at the centre, limited": f"{float(kept.variance(centre)) ** 0.5:.3f}",
            "sd at the centre, free": f"{float(freed.variance(centre)) ** 0.5:.3f}",
        }
    return pd.DataFrame(rows).T.rename_axis("input")


class _Trial:
    """Acceleration, Large, the first split, in the units of a fit, and where that fit ended."""

    def __init__(self, n_basis: int) -> None:
        x, y = table_1.rows_of("accel")
        train, test = table_1.split_of(len(x), "large", 0, 0)
        model = table_1.fit("ISGP", x[train], y[train], n_basis, table_1.PERIOD_FRACTION)
        self.prior = model.posterior_.prior
        self.likelihood = model.likelihood_
        self.x, self.y = model.standardise(x[train], y[train])
        self.new_x, self._new_y = model.standardise(x[test], y[test])
        self._unit = y[train].var()

    def test_error(self, mean: Tensor) -> float:
        """The mean squared error of predictions, in squared miles per gallon."""
        return float(((mean - self._new_y) ** 2).mean()) * self._unit

    def anneal(
        self, prior: SourcePrior, likelihood: Gaussian, seed: int
    ) -> tuple[AnnealedSample, Tensor]:
        """A sample from the exact posterior, and its mean of nu at the test inputs."""
        data = likelihood.condense(prior.features, self.x, self.y)
        joint = torch.vmap(LogJoint(prior, likelihood, data).log_likelihood)
        scale = prior.precision.rsqrt()
        with one_thread():
            sample = annealed_importance_sampling(
                lambda z: joint(prior.location + scale * z),
                len(scale),
                n_chains=64,
                n_temperatures=120,
                seed=seed,
            )
        nu = prior.source(self.new_x, prior.location + scale * sample.points)
        return sample, sample.weights @ nu


def _search(trial: _Trial, objective: evidence.Objective, start: float) -> evidence.EvidenceMaximum:
    # Where Laplace's evidence is chased to infinity there is no convergence.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        given = trial.prior, trial.likelihood, trial.x, trial.y
        how = {"smoothness": [start], "bounds": SEARCH_RANGES}
        return evidence.maximise_evidence(*given, objective=objective, **how)


run = runs(measure, cells, "evidence_trap", n_basis=32)
