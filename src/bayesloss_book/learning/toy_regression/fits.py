"""The toy regression of W&N's appendix (Figures 3, 5, 6 and 7): problems, fits and measurements."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
import torch
from scipy.stats import foldnorm
from torch import Tensor

from bayesloss.learning.evidence.evidence import EvidenceMaximum, Objective, maximise_evidence
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Gaussian
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss.learning.sources.priors import ISGP, SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book.problems.toys import NOISE as NOISE  # the page shows it
from bayesloss_book.problems.toys import PERIOD, REACH, Problem, grid
from bayesloss_book.problems.toys import regression_problem as problem


def fit(
    data: Problem,
    kind: type[SourcePrior] = ISGP,
    *,
    objective: Objective = "bound",
    free_intercept: bool = False,
    n_basis: int = 64,
) -> EvidenceMaximum[Gaussian]:
    """Fit a prior with the trigonometric kernel, c = 1/100, hyper-parameters by the evidence.

    A ``free_intercept`` may become narrow; the evidence would have nu be known for certain at 0.
    """
    # Where the search starts: a straight line through the data's range, or their variance.
    variance = float(data.y.var())
    start = math.sqrt(variance) / REACH if kind is ISGP else variance
    return maximise_evidence(
        kind(TrigonometricKernel(a=2.0, c=2 / PERIOD, n_basis=n_basis).scaled(start)),
        Gaussian(4 / variance),
        data.x,
        data.y,
        objective=objective,
        bounds={} if free_intercept else {"gamma": (1e-3, 1 / variance)},
    )


@cache
def fitted(
    truth: str, n: int, seed: int, kind: type[SourcePrior], objective: Objective
) -> EvidenceMaximum[Gaussian]:
    """The fit of one problem, made once for all that a page shows of it."""
    return fit(problem(n, seed, truth), kind, objective=objective)


def bands(posterior: Posterior, x: Tensor) -> pd.DataFrame:
    """Means and deviations of nu, f and new targets at x (n,), f^2 and its 95 % quantiles.

    f is Gaussian under q, so abs(f) is a folded Gaussian; it is shown for one of the two twins.
    """
    nu, variance = posterior.moments(x)
    columns = {"nu": nu, "nu_sd": variance.sqrt()}
    if isinstance(posterior.likelihood, Gaussian):
        columns["noisy_sd"] = (variance + 1 / posterior.likelihood.alpha).sqrt()
    if isinstance(posterior.prior, ISGP):
        basis = posterior.prior.kernel.basis(x)
        f = basis @ posterior.mode[:-1]
        sd = (basis @ posterior.root[:-1]).norm(dim=1)
        columns |= {"f": f, "f_sd": sd, "square": f**2 + sd**2}
        folded = foldnorm((f.abs() / sd).numpy(), scale=sd.numpy())
        for name, level in (("square_low", 0.025), ("square_high", 0.975)):
            columns[name] = torch.from_numpy(np.asarray(folded.ppf(level)) ** 2)
    index = pd.Index(x.numpy(), name="x")
    return pd.DataFrame({name: value.numpy() for name, value in columns.items()}, index=index)


def comparison(
    problems: Sequence[tuple[str, int, int]],
    kind: type[SourcePrior] = ISGP,
    objective: Objective = "bound",
    n_samples: int = 400,
) -> pd.DataFrame:
    """Fits of several problems (truth, n, seed), compared with the truth on [-50, 50].

    The ``error`` of the mean of nu, the shares of the range ``covered`` by two deviations and by
    95 % of slopes, the share of samples that fall, the ``noise``, and of the search the rest.
    """
    x = grid()
    rows = {}
    for truth, n, seed in problems:
        data = problem(n, seed, truth)
        found = fitted(truth, n, seed, kind, objective)
        posterior = found.posterior
        mean, variance = posterior.moments(x)
        error = data.source(x) - mean
        Gamma = posterior.sample(n_samples, torch.Generator().manual_seed(seed))
        slopes = posterior.prior.derivative(x, Gamma)
        low = slopes.quantile(0.025, dim=0)
        high = slopes.quantile(0.975, dim=0)
        inside = (low <= data.slope(x)) & (data.slope(x) <= high)
        rows[truth, n, seed] = {
            "error": float(error.square().mean().sqrt()),
            "covered": float((error.abs() <= 2 * variance.sqrt()).double().mean()),
            "slope covered": float(inside.double().mean()),
            "falls": float((slopes < 0).any(dim=1).double().mean()),
            "noise": float(found.likelihood.alpha) ** -0.5,
            "converged": float(found.converged),
            "a": float(posterior.prior.kernel.a),
            "laplace": posterior.log_evidence,
            "bound": posterior.evidence_bound,
        }
    return pd.DataFrame(rows).T.rename_axis(["truth", "n", "seed"])


def evidence_at(
    found: EvidenceMaximum[Gaussian], data: Problem, objective: Objective, **changes: float
) -> float:
    """The objective in nats with some of a, b, gamma, mu and alpha changed, or NaN."""
    prior = found.posterior.prior
    likelihood = found.likelihood
    here = {"a": prior.kernel.a, "b": prior.kernel.b, "gamma": prior.gamma, "mu": prior.mu}
    here = {name: float(value) for name, value in here.items()} | {"alpha": float(likelihood.alpha)}
    unknown = set(changes) - set(here)
    if unknown:
        raise ValueError(f"expected changes of some of {list(here)}, got {sorted(unknown)}")
    here |= changes
    kernel = TrigonometricKernel(
        a=here["a"], b=here["b"], c=prior.kernel.c, n_basis=prior.kernel.n_basis
    )
    there = prior.moved(kernel, mu=here["mu"], gamma=here["gamma"])
    noise = Gaussian(here["alpha"])
    joint = LogJoint(there, noise, noise.condense(there.features, data.x, data.y))
    mode = find_mode(joint, found.posterior.mode)
    if not mode.converged:
        return math.nan
    value = joint.log_evidence if objective == "laplace" else joint.evidence_bound
    return float(value(mode.Gamma))


def slices(
    found: EvidenceMaximum[Gaussian], data: Problem, objective: Objective, n: int = 25
) -> pd.DataFrame:
    """Figure 7: the evidence as one hyper-parameter moves, the others staying as found."""
    prior = found.posterior.prior
    alpha = float(found.likelihood.alpha)
    factors = np.geomspace(0.25, 4, n)
    values = {
        "a": 1 + (float(prior.kernel.a) - 1) * factors,
        "b": float(prior.kernel.b) * factors,
        "mu": float(prior.mu) + np.linspace(-1, 1, n),
        "alpha": alpha * factors,
        "gamma": np.geomspace(1e-4, 1e10, n),
    }
    rows = [(name, float(value)) for name, column in values.items() for value in column]
    evidence = [evidence_at(found, data, objective, **{name: value}) for name, value in rows]
    return pd.DataFrame(rows, columns=["name", "value"]).assign(evidence=evidence)


def flat_limit(posterior: Posterior) -> float:
    """The gamma below which the evidence falls by 1/2 nat for every e-fold: the data's own."""
    return 1 / float(posterior.covariance[-1, -1]) - float(posterior.prior.gamma)
