"""The toy classification of W&N's appendix (Figure 8): labels from a piecewise linear source."""

import functools
import math
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import setp, subplots
from scipy.special import roots_hermite
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.learning.evidence.evidence import EvidenceMaximum, Objective, maximise_evidence
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.problems.toys import PERIOD, Problem, grid
from bayesloss_book.problems.toys import classification_problem as problem

_SAMPLES = 1_000  # of a posterior, in tables and figures of several data sets


def fit(
    data: Problem,
    *,
    objective: Objective = "bound",
    smoothness: Sequence[float] = (8.0, 2.0),
    n_basis: int = 64,
) -> EvidenceMaximum[Bernoulli]:
    """Fit the ISGP, hyper-parameters by an objective, searched from each value of a given."""
    # The search starts at a line that rises by 4 between the ends of the data. Log odds of size 1
    # are what an intercept is about: its prior gets no narrower.
    return maximise_evidence(
        ISGP(TrigonometricKernel(a=2.0, c=2 / PERIOD, n_basis=n_basis).scaled(0.04)),
        Bernoulli(),
        data.x,
        data.y,
        objective=objective,
        smoothness=smoothness,
        bounds={"gamma": (1e-3, 1.0)},
    )


def bands(posterior: Posterior, x: Tensor, n_samples: int, seed: int) -> pd.DataFrame:
    """Quantiles of nu, and of sigma(nu) as ``p``, at x; ``probability``, the mean of sigma(nu)."""
    Gamma = posterior.sample(n_samples, torch.Generator().manual_seed(seed))
    nu = posterior.prior.source(x, Gamma)
    levels = torch.tensor([0.025, 0.5, 0.975], dtype=torch.float64)
    columns = dict(zip(("low", "median", "high"), nu.quantile(levels, dim=0), strict=True))
    columns |= {f"p {name}": torch.sigmoid(values) for name, values in columns.items()}
    columns["probability"] = torch.sigmoid(nu).mean(dim=0)
    index = pd.Index(x.numpy(), name="x")
    return pd.DataFrame({name: value.numpy() for name, value in columns.items()}, index=index)


def comparison(problems: Sequence[tuple[str, int, int]]) -> pd.DataFrame:
    """Fits of several problems (truth, n, seed), compared with the truth on [-50, 50].

    The share ``covered`` of the range by the central 95 % of nu, the largest ``error`` of a
    probability, the share of samples that fall, and of the search a and convergence.
    """
    x = grid()
    rows = {}
    for truth, n, data_seed in problems:
        data, found = _fitted(truth, n, data_seed)
        posterior = found.posterior
        shown = bands(posterior, x, _SAMPLES, 0)
        source = data.source(x).numpy()
        Gamma = posterior.sample(_SAMPLES, torch.Generator().manual_seed(0))
        steps = posterior.prior.source(x, Gamma).diff(dim=1)
        rows[truth, n, data_seed] = {
            "covered": float(((shown["low"] <= source) & (source <= shown["high"])).mean()),
            "error": float((shown["probability"] - 1 / (1 + np.exp(-source))).abs().max()),
            "falls": float((steps < -1e-10).any(dim=1).double().mean()),
            "a": float(posterior.prior.kernel.a),
            "converged": float(found.converged),
        }
    return pd.DataFrame(rows).T.rename_axis(["truth", "n", "seed"])


@functools.cache
def _fitted(truth: str, n: int, seed: int) -> tuple[Problem, EvidenceMaximum[Bernoulli]]:
    """A data set and its fit, made once for table and figure."""
    data = problem(n, seed, truth)
    return data, fit(data)


def searches(data: Problem, starts: Sequence[float]) -> pd.DataFrame:
    """Where searches for both objectives end, one row an objective and a starting a."""
    rows = {}
    for objective in ("bound", "laplace"):
        for start in starts:
            # Where Laplace's evidence is chased to infinity there is no convergence.
            with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
                found = fit(data, objective=objective, smoothness=[start], n_basis=16)
            posterior = found.posterior
            rows[objective, start] = {
                "a": float(posterior.prior.kernel.a),
                "laplace": posterior.log_evidence,
                "bound": posterior.evidence_bound,
                "least curvature": posterior.least_curvature,
                "converged": found.converged,
            }
    return pd.DataFrame(rows).T.rename_axis(["objective", "start"])


def given_away(
    posterior: Posterior, data: Problem, n_samples: int, seed: int
) -> tuple[float, float]:
    """How far the bound on the expected log probability is from the expectation, in nats."""
    Gamma = posterior.sample(n_samples, torch.Generator().manual_seed(seed))
    sign = 2 * data.y - 1
    log_p = torch.nn.functional.logsigmoid(sign * posterior.prior.source(data.x, Gamma)).sum(dim=1)
    rows = posterior.likelihood.condense(posterior.prior.features, data.x, data.y)
    bound = posterior.likelihood.expected_log_density(*posterior.moments(data.x), rows)
    return float(log_p.mean() - bound), float(log_p.std()) / math.sqrt(n_samples)


def slack(mean: float, sd: float) -> float:
    """What the bound on E log sigma(nu) gives away for a Gaussian nu and the label 1, in nats."""
    nodes, weights = roots_hermite(80)
    at_nodes = np.logaddexp(0, -(mean + math.sqrt(2) * sd * nodes))
    exact = torch.tensor(-(weights @ at_nodes) / math.sqrt(math.pi))
    one = torch.ones(1, dtype=torch.float64)
    row = Bernoulli().condense(lambda x: x[:, None], 0 * one, one)
    return float(exact - Bernoulli().expected_log_density(mean * one, sd**2 * one, row))


def draw_slack(means: Sequence[float] = (0.0, 1.5, 3.0)) -> Figure:
    """The slack of the bound against the standard deviation of nu, for some means."""
    figure, axis = subplots(figsize=(5.4, 3.8))
    sds = np.linspace(0, 4, 41)
    for mean, dashes, colour in zip(means, ("-", "--", ":"), ("ISGP", "GP", "PAVA"), strict=False):
        lost = [slack(mean, float(sd)) for sd in sds]
        label = f"mean ±{mean:g}" if mean else "mean 0"
        axis.plot(sds, lost, dashes, color=COLOURS[colour], label=label)
    axis.set(xlabel=r"standard deviation of $\nu$", ylabel="nats given away, a label")
    axis.legend()
    return figure


def draw_searches(ends: pd.DataFrame, floor: float = -200.0) -> Figure:
    """Where :func:`searches` ended: both objectives there; what is below the floor is an arrow."""
    figure, axis = subplots(figsize=(5.4, 3.2))
    names = {"laplace": "Laplace's", "bound": "the bound"}
    for height, (_, end) in enumerate(ends[::-1].iterrows()):
        low = max(end["bound"], floor)
        axis.plot([low, end["laplace"]], [height, height], color="black", lw=1, zorder=0)
        last = height == len(ends) - 1
        evidence, bound = ("Laplace's evidence", "lower bound") if last else (None, None)
        marker = "<" if end["bound"] < floor else "o"
        axis.plot(end["laplace"], height, "s", ms=9, color=COLOURS["GP"], label=evidence)
        axis.plot(low, height, marker, ms=9, color=COLOURS["ISGP"], label=bound)
    rows = [f"{names[objective]},\nfrom a = {start:g}" for objective, start in ends.index]
    axis.set_yticks(range(len(ends))[::-1], rows)
    axis.set(xlabel="nats at the end of the search", ylim=(-0.6, len(ends) - 0.2))
    axis.legend(loc="upper left")
    return figure


def draw_data_sets(problems: Sequence[tuple[str, int, int]]) -> Figure:
    """sigma(nu) under several data sets (truth, n, seed), with the central 95 % and the truth."""
    rows = -(-len(problems) // 2)
    figure, axes = subplots(rows, 2, figsize=(5.6, 2.7 * rows), sharex=True, sharey=True)
    x = grid()
    for axis, (truth, n, data_seed) in zip(axes.flat, problems, strict=False):
        data, found = _fitted(truth, n, data_seed)
        shown = bands(found.posterior, x, _SAMPLES, 0)
        band = shown["p low"], shown["p high"]
        axis.fill_between(x, *band, color=COLOURS["ISGP"], alpha=0.3, lw=0)
        axis.plot(x, shown["p median"], color=COLOURS["ISGP"])
        axis.plot(x, torch.sigmoid(data.source(x)), "--", color="black", lw=1.2)
        axis.set(title=f"{truth}, {n} labels, seed {data_seed}", ylim=(-0.03, 1.03))
    setp(axes[-1], xlabel="$x$")
    setp(axes[:, 0], ylabel=r"$\sigma(\nu(x))$")
    return figure


def draw_panels(data: Problem, shown: pd.DataFrame) -> Figure:
    """Figure 8: nu with the labels above, sigma(nu) below, with bands and truth."""
    figure, (upper, lower) = subplots(2, 1, figsize=(5.6, 6.0), sharex=True)
    x = torch.from_numpy(np.array(shown.index))
    colour = COLOURS["ISGP"]
    truth = data.source(x)
    for axis, prefix, true in ((upper, "", truth), (lower, "p ", torch.sigmoid(truth))):
        band = shown[f"{prefix}low"], shown[f"{prefix}high"]
        axis.fill_between(x, *band, color=colour, alpha=0.3, lw=0, label="central 95 %")
        axis.plot(x, shown[f"{prefix}median"], color=colour, label="median")
        axis.plot(x, true, "--", color="black", linewidth=1.2, label="truth")
    low, high = upper.get_ylim()
    for axis, levels in ((upper, (low, high)), (lower, (0.0, 1.0))):
        for label in (0, 1):
            kept = data.x[data.y == label]
            axis.plot(
                kept, torch.full_like(kept, levels[label]), "|", markersize=9,
                color=COLOURS["GP" if label else "data"], label=f"label {label}", clip_on=False,
            )  # fmt: skip
        axis.legend(loc="upper left", fontsize="small")
    upper.set(ylabel=r"$\nu(x)$", ylim=(low, high))
    lower.set(ylabel=r"$\sigma(\nu(x))$", xlabel="$x$", ylim=(-0.03, 1.03))
    return figure
