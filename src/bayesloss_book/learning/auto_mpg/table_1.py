"""Table 1 of W&N: four ways to regress miles per gallon on one feature of a car."""

import math
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm, t
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold

from bayesloss.learning.estimators.monotone import ISGPRegressor
from bayesloss.learning.sources.priors import PriorName
from bayesloss_book import Array
from bayesloss_book.data.data_sets import load_auto_mpg
from bayesloss_book.ledger.quoted import quoted
from bayesloss_book.rivals.baselines import PLUG_IN
from paperledger.stores.results import Folder, crossed, run_cells

INPUTS = {
    "accel": "acceleration",
    "displ": "displacement",
    "power": "horsepower",
    "weight": "weight",
}
SIZES = ("large", "small")
METHODS = ("GP", "ISGP", "PAVA", "Linear")
UNITS = {"accel": "s to 60 mph", "displ": "cubic inches", "power": "hp", "weight": "lb"}

N_SPLITS = 5
PERIOD_FRACTION = 0.25
PERIOD_FRACTIONS = (0.125, 0.25, 0.5, 0.75, 1.0)
_cars = cache(load_auto_mpg)


def cells(partitions: Sequence[int], methods: Sequence[str] = METHODS) -> list[dict[str, Any]]:
    """All cells of Table 1, for each seed of a partition: 160 a partition with all four methods."""
    return crossed(
        partition=partitions, input=INPUTS, size=SIZES, split=range(N_SPLITS), method=methods
    )


def run(folder: Folder, *, n_partitions: int = 10, n_jobs: int | None = None) -> None:
    """All at the paper's scale: partitions of table 1, and parts of the kernel's period."""
    fixed = {"n_basis": 64, "period_fraction": PERIOD_FRACTION}
    every = cells(range(n_partitions))
    run_cells(measure, every, folder, "auto_mpg", parameters=fixed, n_jobs=n_jobs)
    varied = [
        {**cell, "period_fraction": fraction}
        for fraction in PERIOD_FRACTIONS
        for cell in cells([0], ("GP", "ISGP"))
    ]
    run_cells(measure, varied, folder, "auto_mpg_period", parameters={"n_basis": 64}, n_jobs=n_jobs)


def measure(
    *,
    input: str,
    size: str,
    split: int,
    method: str,
    partition: int,
    n_basis: int,
    period_fraction: float,
) -> dict[str, float]:
    """Fit one method on one training set, and measure it on the test set.

    ``mse``: mean squared error, in squared miles per gallon. ``nll``: negative log likelihood of a
    Gaussian predictive density, in nats a test point. ``covered``: the share of test points within
    its central 95 % interval. For GP and ISGP also ``log_evidence``, ``evidence_bound``,
    ``smoothness`` (the kernel's a) and ``converged`` (0 or 1), else NaN.
    """
    x, y = rows_of(input)
    train, test = split_of(len(x), size, split, partition)
    inference = dict.fromkeys(
        ("log_evidence", "evidence_bound", "smoothness", "converged"), math.nan
    )
    if method in ("GP", "ISGP"):
        model = fit(method, x[train], y[train], n_basis, period_fraction)
        mean, std = model.predict(x[test, None], return_std=True)
        variance = std**2 + model.noise_variance_
        inference = {
            "log_evidence": model.log_evidence_,
            "evidence_bound": model.evidence_bound_,
            "smoothness": float(model.posterior_.prior.kernel.a),
            "converged": float(model.converged_),
        }
    else:
        mean, variance = plug_in(method, x[train], y[train], x[test])
    error = y[test] - mean
    return {
        "mse": float(np.mean(error**2)),
        "nll": float(-np.mean(norm.logpdf(error, scale=np.sqrt(variance)))),
        "covered": float(np.mean(np.abs(error) <= norm.ppf(0.975) * np.sqrt(variance))),
        **inference,
    }


def fit(method: str, x: Array, y: Array, n_basis: int, period_fraction: float) -> ISGPRegressor:
    """The GP or the ISGP, with hyper-parameters of maximal evidence."""
    prior: PriorName = "gp" if method == "GP" else "isgp"
    model = ISGPRegressor(n_basis=n_basis, period_fraction=period_fraction, prior=prior, **PLUG_IN)
    return model.fit(x[:, None], y)


@cache
def fitted(input: str, method: str, n_basis: int, period_fraction: float) -> ISGPRegressor:
    """The GP or the ISGP on all cars, fitted once for all that the page shows of it."""
    return fit(method, *rows_of(input), n_basis, period_fraction)


def rows_of(input: str) -> tuple[Array, Array]:
    """Input and miles per gallon of all cars for which the input is known: 398, or 392 (power)."""
    known = _cars()[["mpg", INPUTS[input]]].dropna()
    return known[INPUTS[input]].to_numpy(), known["mpg"].to_numpy()


def split_of(
    n: int, size: str, split: int, partition: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The training and the test rows of one split of a random partition into five."""
    folds = KFold(N_SPLITS, shuffle=True, random_state=partition)
    train, test = list(folds.split(np.arange(n)))[split]
    return (train, test) if size == "large" else (test, train)


def printed() -> pd.Series:
    """The numbers of Table 1 as printed, indexed by size, input and method."""
    table = quoted("wn-table-1")
    keys = product(SIZES, INPUTS, METHODS)
    values = {(size, name, method): table[size][name][method] for size, name, method in keys}
    return pd.Series(values).rename_axis(["size", "input", "method"])


def summary(results: pd.DataFrame, measure: str = "mse") -> pd.DataFrame:
    """``mean`` and ``sd`` over partitions of a measure's mean; ``luck`` of another, at 99 %."""
    keys = ["size", "input", "method"]
    averaged = results.groupby([*keys, "partition"], sort=False)[measure].mean()
    out = averaged.groupby(keys, sort=False).agg(mean="mean", sd="std")
    out["luck"] = _luck(results) * out["sd"]
    return out.reindex(printed().index)


def ratio(results: pd.DataFrame) -> tuple[float, float]:
    """The constant, by PAVA and Linear, from our squared errors to print; its standard error."""
    x, y, spread = _without_settings(results)
    weight = 1 / spread**2
    return float((weight * (y / x)).sum() / weight.sum()), float(weight.sum() ** -0.5)


def affine_fit(results: pd.DataFrame) -> tuple[float, float, float]:
    """Printed numbers as an affine function of ours: slope, intercept, and its error."""
    x, y, spread = _without_settings(results)
    coefficients, covariance = np.polyfit(x, y, 1, w=1 / (x * spread), cov="unscaled")
    return float(coefficients[0]), float(coefficients[1]), float(np.sqrt(covariance[1, 1]))


def beside_print(results: pd.DataFrame) -> pd.DataFrame:
    """The printed numbers, also in squared miles per gallon, and ours with standard errors."""
    found = summary(results)
    error = found["sd"] / results["partition"].nunique() ** 0.5
    return pd.DataFrame(
        {
            "in print": printed().map("{:,.1f}".format),
            "in print, mpg²": (printed() / ratio(results)[0]).map("{:.2f}".format),
            "here, mpg²": found["mean"].map("{:.2f}".format),
            "± here": error.map("{:.2f}".format),
        }
    )


def paired_gains(results: pd.DataFrame) -> pd.DataFrame:
    """The ISGP's gain over the GP in per cent, input by input: printed, ours, and its luck."""
    mse = results.groupby(["size", "input", "partition", "method"], sort=False)["mse"].mean()
    mse = mse.unstack("method")
    gain = 100 * (1 - mse["ISGP"] / mse["GP"])
    ours = gain.groupby(["size", "input"], sort=False).agg(["mean", "std"])
    table = printed().unstack("method")
    out = pd.DataFrame(
        {
            "printed": 100 * (1 - table["ISGP"] / table["GP"]),
            "ours": ours["mean"],
            "luck of one draw": _luck(results) * ours["std"],
        }
    )
    return out.reindex(ours.index)


def gains(results: pd.DataFrame) -> pd.DataFrame:
    """By what fraction one method's squared error is less than another's: mean and error."""
    keys = ["size", "input", "partition"]
    mse = results.groupby([*keys, "method"], sort=False)["mse"].mean().unstack("method")
    columns = {}
    for better, worse in (("GP", "PAVA"), ("ISGP", "PAVA"), ("ISGP", "GP")):
        gain = (1 - mse[better] / mse[worse]).unstack("input")
        columns[f"{better} over {worse}"] = gain.assign(all=gain.mean(axis=1)).stack()
    long = pd.concat(columns, names=["pair"])
    out = long.groupby(["size", "pair", "input"], sort=False).agg(["mean", "sem"])
    return out.rename(columns={"sem": "error"})


def by_fraction(results: pd.DataFrame, target: pd.Series) -> pd.DataFrame:
    """How the results of one partition depend on the part of the period that the inputs cover."""
    keys = ["period_fraction", "size", "input", "method"]
    mse = results.groupby(keys, sort=False)["mse"].mean()
    off = np.log(mse / target.reindex(mse.index.droplevel(0)).to_numpy())
    means = mse.groupby(["period_fraction", "method", "size"]).mean().unstack(["method", "size"])
    out = pd.DataFrame(
        {
            f"{method}, {size.capitalize()}": means[method, size]
            for method in ("ISGP", "GP")
            for size in SIZES
        }
    )
    isgp = results[results["method"] == "ISGP"]
    pairs = mse.unstack("method").xs("small", level="size")
    gain = 100 * (1 - pairs["ISGP"] / pairs["GP"])
    out["ISGP over GP, Small, %"] = gain.groupby("period_fraction").mean()
    out["bound, ISGP"] = isgp.groupby("period_fraction")["evidence_bound"].mean()
    out["off the print"] = (off**2).groupby("period_fraction").mean().pow(0.5)
    return out


def plug_in(method: str, x: Array, y: Array, x_new: Array) -> tuple[Array, Array]:
    """PAVA or least squares: predictions, and the noise variance that the residuals suggest."""
    if method == "PAVA":
        increasing = bool(np.corrcoef(x, y)[0, 1] >= 0)  # as ISGPRegressor decides
        model = IsotonicRegression(increasing=increasing, out_of_bounds="clip").fit(x, y)
        fitted = model.predict(x)
        mean = model.predict(x_new)
        n_parameters = len(np.unique(fitted))
    elif method == "Linear":
        line = LinearRegression().fit(x[:, None], y)
        fitted = line.predict(x[:, None])
        mean = line.predict(x_new[:, None])
        n_parameters = 2
    else:
        raise ValueError(f"expected a method of {METHODS}, got {method!r}")
    return mean, np.full(len(x_new), np.sum((y - fitted) ** 2) / (len(y) - n_parameters))


def _without_settings(results: pd.DataFrame) -> tuple[pd.Series, pd.Series, pd.Series]:
    """For PAVA and Linear: our errors, the printed numbers, and the luck in their ratio."""
    ours = summary(results)
    ours = ours[ours.index.get_level_values("method").isin(["PAVA", "Linear"])]
    table = printed()[ours.index]
    return ours["mean"], table, table / ours["mean"] * ours["sd"] / ours["mean"]


def _luck(results: pd.DataFrame) -> float:
    """Half the width, in standard deviations, of a 99 % interval for one more partition."""
    n = results["partition"].nunique()
    return float(t.ppf(0.995, n - 1) * np.sqrt(1 + 1 / n))
