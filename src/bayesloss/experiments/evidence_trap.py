"""What goes wrong when Laplace's evidence is maximised for an ISGP, on the data of Table 1.

Near a singular Hessian, and for rough priors, Laplace's evidence promises what is not there; the
lower bound by the same Gaussian does not. And with a free prior mean the evidence wants a prior of
the intercept that is infinitely narrow.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from sklearn.exceptions import ConvergenceWarning

from bayesloss.companion.figures import COLOURS
from bayesloss.experiments.auto_mpg import INPUTS, PERIOD_FRACTION, fit, rows_of, split_of
from bayesloss.learning.evidence import Objective, at_smoothness, maximise_evidence
from bayesloss.learning.laplace import Posterior, laplace
from bayesloss.learning.regression import SEARCH_RANGES

__all__ = ["compare_objectives", "draw_trap", "free_intercept"]


def compare_objectives(n_basis: int, starts: Sequence[float]) -> pd.DataFrame:
    """Where two objectives lead from several starting values of a: acceleration, Large, one split.

    The figures are coarse on purpose: where Laplace's evidence leads astray, its path is chaotic.
    """
    trial = _Trial(n_basis)
    rows = []
    objectives: tuple[Objective, ...] = ("laplace", "bound")
    for objective in objectives:
        for start in starts:
            with warnings.catch_warnings():
                # Where Laplace's evidence is chased to infinity there is no convergence.
                warnings.simplefilter("ignore", ConvergenceWarning)
                posterior = maximise_evidence(
                    trial.prior,
                    trial.likelihood,
                    trial.x,
                    trial.y,
                    objective=objective,
                    smoothness=[start],
                    bounds=SEARCH_RANGES,
                ).posterior
            gap = posterior.log_evidence - posterior.evidence_bound
            error = trial.test_error(posterior)
            rows.append(
                {
                    "maximised": "Laplace's evidence" if objective == "laplace" else "lower bound",
                    "start": f"a = {start:g}",
                    "Laplace's evidence less bound": "over 10" if gap > 10 else f"{gap:.1f}",
                    "mean squared test error": "over 80" if error > 80 else f"{error:.1f}",
                }
            )
    return pd.DataFrame(rows).set_index(["maximised", "start"])


def free_intercept(n_basis: int) -> pd.DataFrame:
    """What happens when the intercept's prior may become as narrow as it likes: all cars."""
    rows = {}
    for name, column in INPUTS.items():
        x, y = rows_of(name)
        model = fit("ISGP", x, y, n_basis, PERIOD_FRACTION)
        kept = model.posterior_
        freed = maximise_evidence(
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


def draw_trap(n_basis: int) -> Figure:
    """Laplace's evidence, its lower bound and the test error as a alone varies; the same data."""
    trial = _Trial(n_basis)
    values = 1 + np.geomspace(0.03, 30, 24)
    posteriors = [
        laplace(at_smoothness(trial.prior, a), trial.likelihood, trial.x, trial.y) for a in values
    ]
    figure, (left, right) = subplots(1, 2, figsize=(8.0, 3.4))
    left.plot(
        values - 1,
        [posterior.log_evidence for posterior in posteriors],
        "--",
        color=COLOURS["GP"],
        label="Laplace's evidence",
    )
    left.plot(
        values - 1,
        [posterior.evidence_bound for posterior in posteriors],
        color=COLOURS["ISGP"],
        label="lower bound on the evidence",
    )
    left.set(xscale="log", xlabel="$a - 1$  (rough ← → smooth)", ylabel="nats", ylim=(-435, -410))
    left.legend()
    errors = [trial.test_error(posterior) for posterior in posteriors]
    right.plot(values - 1, errors, color=COLOURS["data"])
    right.set(xscale="log", xlabel="$a - 1$  (rough ← → smooth)", ylabel="mean squared test error")
    return figure


class _Trial:
    """Acceleration, Large, the first split, in the units of a fit, and where that fit ended."""

    def __init__(self, n_basis: int) -> None:
        x, y = rows_of("accel")
        train, test = split_of(len(x), "large", 0, 0)
        model = fit("ISGP", x[train], y[train], n_basis, PERIOD_FRACTION)
        self.prior, self.likelihood = model.posterior_.prior, model.likelihood_
        self.x, self.y = model.standardise(x[train], y[train])
        self._new_x, self._new_y = model.standardise(x[test], y[test])
        self._unit = y[train].var()

    def test_error(self, posterior: Posterior) -> float:
        """The mean squared error of the posterior mean, in squared miles per gallon."""
        error = posterior.mean(self._new_x) - self._new_y
        return float((error**2).mean()) * self._unit
