"""What would other averages do about steps, plateaus and harm? Rough priors, and "no change".

*Rough* adds six priors to the nine of `LinkCalibrator`; *no change* averages its posterior with the
curve that leaves the scores' probabilities as they are, even a priori. Both were chosen on other
truths, and on `TUNED`, which is left out here. All see the same draws: truths at four sizes, and
the benchmark's sets with 200 cases.
"""

import warnings
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.special import expit, logit, logsumexp

from bayesloss import LinkCalibrator, TrigonometricKernel
from bayesloss.learning.calibration import calibrator_fit
from bayesloss.learning.calibration.calibrator_base import WIDER, Scale
from bayesloss.learning.sources.priors import CentredISGP
from bayesloss_book import Array
from bayesloss_book.beyond.calibration import benchmark, rivals
from bayesloss_book.data.score_sets import TUNED, Curve, ScoreSet, draw, from_curve, kind
from bayesloss_book.data.score_tables import LARGER, TABLES
from bayesloss_book.rivals.baselines import SMALLEST, log_loss
from paperledger.stores.results import runs

SIZES = (50, 200, 1_000, 5_000)
FAMILIES = {
    "step": ("one step", "two steps"),
    "plateau": ("wrong labels", "heavy tails, wrong labels"),
    "smooth": ("normal classes", "gamma classes", "beta classes", "Cauchy link"),
}
OTHERS = ("rough", "no change")
_MORE = {
    "one step": Curve(lambda s: np.log(4) * np.sign(s), lambda r, n: r.uniform(-1, 1, n)),
    "heavy tails, wrong labels": Curve(
        lambda s: logit(0.2 + 0.6 * expit(2 * s)), lambda r, n: r.standard_t(3, n)
    ),
}
# of truths; of sets one draw, and all test cases
_DRAWS = 8
_N_TEST = 1_000
_FAR = 0.01  # the share of test scores at either end that are far
_NINE = calibrator_fit._priors


def cells() -> list[dict[str, Any]]:
    """Truths at every size, then sets of scores with 200 cases."""
    sets = [
        cell
        for real in ((), TABLES, LARGER)
        for cell in benchmark.cells(sizes=(200,), draws=1, real=real)
        if kind(cell["data"]) != "curve"
        and ScoreSet(cell["data"], cell["task"], cell["model"]) not in TUNED
    ]
    return [
        {"data": data, "task": "curve", "model": "curve", "n": n, "number": number}
        for names in FAMILIES.values()
        for data in names
        for n in SIZES
        for number in range(_DRAWS)
    ] + sorted(sets, key=lambda cell: (cell["data"], cell["task"], cell["model"]))


def measure(*, data: str, task: str, model: str, n: int, number: int) -> dict[str, float]:
    """The ``log_loss`` by method, in nats; of truths, what share of scores a 95 % band covers.

    Also ``far``, the same of the outermost scores, and what "no change" has of the posterior.
    """
    known = task == "curve"
    if data in _MORE:
        cases = from_curve(_MORE[data], n, np.random.default_rng([len(data), n, number]))
    else:
        cases = draw(data, task, model, n, number)
    scores, y, test, truth, probability = cases
    if known:
        test = test[:_N_TEST]
        truth = truth[:_N_TEST]
    scale: Scale = "probability" if probability else "real"
    with warnings.catch_warnings(action="ignore"):
        link = LinkCalibrator(scale=scale).fit(scores, y)
        with patch.object(calibrator_fit, "_priors", rough_priors):
            rough = LinkCalibrator(scale=scale).fit(scores, y)
        sigmoid, none = (rivals.fit(name, scores, y, probability) for name in ("sigmoid", "none"))
    bounds = [part.evidence_bound for part in link.average_.components]
    w = expit(-len(y) * log_loss(none(scores), y) - logsumexp(bounds) + np.log(len(bounds)))
    p = link.predict_proba(test)[:, 1]
    same = none(test)
    predicted = {
        "link": p,
        "rough": rough.predict_proba(test)[:, 1],
        "no change": (1 - w) * p + w * same,
        "sigmoid": sigmoid(test),
        "none": same,
    }
    found = {f"{name}: log_loss": log_loss(each, truth) for name, each in predicted.items()}
    found |= {
        f"{name}: {what}": np.nan for name in ("link", *OTHERS) for what in ("coverage", "far")
    }
    if known:
        low, high = np.quantile(test, [_FAR, 1 - _FAR])
        far = (test < low) | (test > high)
        mixed = mixed_band(link.sample_proba(test), same, w)
        bands = (link.predict_interval(test), rough.predict_interval(test), mixed)
        for name, (least, most) in zip(("link", *OTHERS), bands, strict=True):
            held = (least <= truth) & (truth <= most)
            found[f"{name}: coverage"] = float(held.mean())
            found[f"{name}: far"] = float(held[far].mean())
    return found | {"no change: weight": float(w)}


def rough_priors(c: float, centre: float) -> list[CentredISGP]:
    """The calibrator's nine and six rougher ones, of nearly white spectra or far from any line."""
    kernel = TrigonometricKernel(a=1.3, c=c, n_basis=32)
    rougher = [
        CentredISGP(kernel.scaled(variance, a), tau=0.2, mu=centre, gamma=0.25)
        for variance, roughness in ((0.9, (1.05, 1.15, 1.3, 2)), (0.5, (1.05, 1.15)))
        for a in roughness
    ]
    *nine, smoothest = _NINE(c, centre)
    return [*nine, *rougher, smoothest]


def mixed_band(curves: Array, same: Array, w: float) -> tuple[Array, Array]:
    """The 95 % band of curves (s, m) and, with probability w, another; widened as the library's."""
    odds = logit(np.vstack([curves, same]).clip(SMALLEST, 1 - SMALLEST))
    weights = np.append(np.full(len(curves), (1 - w) / len(curves)), w)
    low, middle, high = np.quantile(
        odds, [0.025, 0.5, 0.975], axis=0, weights=weights, method="inverted_cdf"
    )
    return expit(middle + WIDER * (low - middle)), expit(middle + WIDER * (high - middle))


run = runs(measure, cells, "calibrators_averages")
