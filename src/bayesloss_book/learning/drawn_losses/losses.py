"""What the ISGP prior does to losses: W&N's theorems 2 and 4, carried out and counted."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
import torch
from scipy.integrate import quad
from scipy.optimize import minimize, minimize_scalar
from sklearn.datasets import load_breast_cancer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bayesloss.learning.sources.priors import ISGP
from bayesloss.quadrature import gauss_hermite
from bayesloss_book import Array
from bayesloss_book.problems.random_sources import (
    LOSSES,
    MARGINS,
    MarginLoss,
    inverse_source,
    make_prior,
)

# ------------------------------------------------------------------------------- theorem 2 (i)


def stationary_share(margin: MarginLoss, x: Array) -> Array:
    """The right side of (2): G'(-x) / (G'(-x) + G'(x))."""
    return margin.slope(-x) / (margin.slope(-x) + margin.slope(x))


def represented_link(margin: MarginLoss, u: Array, reach: float = 40.0) -> Array:
    """The x that minimises u G(x) + (1 - u) G(-x): the link by brute force, without (2)."""
    return np.array(
        [
            minimize_scalar(
                lambda x, p=p: p * margin.value(x) + (1 - p) * margin.value(-x),
                bounds=(-reach, reach),
                method="bounded",
                options={"xatol": 1e-11, "maxiter": 500},
            ).x
            for p in u
        ]
    )


# ------------------------------------------------------------------------------ theorem 2 (ii)


def calibration_gap(
    margins: Sequence[MarginLoss],
    prior: ISGP,
    Gamma: torch.Tensor,
    shares: Sequence[float],
    reach: float,
) -> Array:
    """How much worse the best wrong sign is than the best sign, for each share of positives.

    By brute force. For eta > 1/2 it is inf {C(alpha): alpha <= 0} - inf {C(alpha)}, with C(alpha) =
    eta G_nu(alpha) + (1 - eta) G_nu(-alpha), G_nu = G o nu^-1; it is to be positive.
    """
    # nu at -1, 0 and 1 is among the points for a whole reach, and so are points very near 0.
    t = torch.arange(-reach, reach + 0.01, 0.025, dtype=torch.float64)
    alpha = np.concatenate([prior.source(t, Gamma).abs().numpy(), np.geomspace(1e-4, 1, 60)])
    positive = np.unique(alpha)
    alpha = np.concatenate([-positive[::-1], [0.0], positive])
    x = inverse_source(prior, Gamma, alpha)
    eta = np.asarray(shares)[:, None]
    gaps = []
    for margin in margins:
        value = margin.value(x)
        risk = eta * value + (1 - eta) * value[::-1]
        gaps.append(risk[:, alpha <= 0].min(axis=1) - risk.min(axis=1))
    return np.array(gaps)


def calibration_trials(
    names: Sequence[str], *, n_paths: int, gamma: float, seed: int
) -> pd.DataFrame:
    """Calibration of G o nu^-1 by brute force, and by the sign of G'(nu^-1(0)), path by path."""
    prior = make_prior(a=2.0, c=0.25, n_basis=16, gamma=gamma)
    margins = [MARGINS[name] for name in names]
    found = []
    predicted = []
    for Gamma in prior.sample(n_paths, torch.Generator().manual_seed(seed)):
        gaps = calibration_gap(margins, prior, Gamma, (0.6, 0.8, 1.0), reach=4.0)
        found.append((gaps > 1e-12).all(axis=1))
        origin = inverse_source(prior, Gamma, np.zeros(1))
        predicted.append([bool(margin.slope(origin)[0] < 0) for margin in margins])
    return pd.DataFrame(
        {
            "slope at 0": [float(margin.slope(np.zeros(1))[0]) for margin in margins],
            "calibrated": np.mean(found, axis=0),
            "condition met": np.mean(predicted, axis=0),
            "disagreements": np.not_equal(found, predicted).sum(axis=0),
        },
        index=pd.Index(names, name="G"),
    )


def failure_probability(prior: ISGP, turn: float) -> float:
    """P(nu(turn) <= 0) under the prior, by Gil-Pelaez's formula for a quadratic form."""
    kappa = _kappa(prior, turn)
    mu = float(prior.mu)
    gamma = float(prior.gamma)

    def integrand(t: float) -> float:
        log = 1j * mu * t - t * t / (2 * gamma) - 0.5 * np.log(1 - 2j * kappa * t).sum()
        return float(np.exp(log).imag) / t

    edge = 9 * math.sqrt(gamma)  # beyond it the Gaussian factor is below rounding
    value, _ = quad(integrand, 0, edge, limit=400, epsabs=1e-11, epsrel=1e-10)
    return 0.5 - value / math.pi


def failure_frequency(prior: ISGP, turn: float, n_paths: int, seed: int) -> tuple[float, float]:
    """The share of paths with nu(turn) <= 0, and its standard error."""
    Gamma = prior.sample(n_paths, torch.Generator().manual_seed(seed))
    psi = prior.kernel.psi(torch.tensor([turn], dtype=torch.float64))[0]
    nu = Gamma[:, -1] + ((Gamma[:, :-1] @ psi) * Gamma[:, :-1]).sum(dim=1)
    share = float((nu <= 0).double().mean())
    return share, math.sqrt(share * (1 - share) / n_paths)


def _kappa(prior: ISGP, x: float) -> Array:
    root = prior.kernel.eigenvalues.sqrt()
    psi = prior.kernel.psi(torch.tensor([x], dtype=torch.float64))[0]
    return torch.linalg.eigvalsh(root[:, None] * psi * root).numpy()


# ----------------------------------------------------------------------------------- theorem 4


def prior_average(
    function: Callable[[Array], Array], prior: ISGP, x: float, n_nodes: int = 24
) -> float:
    """E[function(nu(x))] under a prior with two basis functions, by Gauss and Hermite."""
    first, second = _kappa(prior, x)
    node, weight = (each.numpy() for each in gauss_hermite(n_nodes))
    start = float(prior.mu) + node / math.sqrt(float(prior.gamma))
    nu = start[:, None, None] + first * node[:, None] ** 2 + second * node**2
    return float(np.einsum("i,j,k,ijk->", weight, weight, weight, function(nu)))


def random_instances(n: int, seed: int) -> pd.DataFrame:
    """Theorem 4 on random priors, losses, scores and labels: the slack, right less left side."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        name = str(rng.choice(list(LOSSES)))
        c = float(np.exp(rng.uniform(-3, 1)))
        gamma = float(np.exp(rng.uniform(-5, 5)))
        prior = make_prior(c=c, n_basis=2, gamma=gamma)
        y = rng.choice([-1.0, 1.0])
        x = rng.uniform(-1, 1) / c
        left = float(LOSSES[name](np.array(y), np.array(x)))
        right = prior_average(partial(LOSSES[name], np.array(y)), prior, x)
        rows.append({"loss": name, "left": left, "slack": right - left})
    return pd.DataFrame(rows)


def breast_cancer() -> tuple[Array, Array]:
    """Real scores: the logit of a strongly regularised logistic regression, and labels -1, 1."""
    data = load_breast_cancer()
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.001)).fit(data.data, data.target)
    return model.decision_function(data.data), 2.0 * data.target - 1


def starting_points(gammas: Sequence[float], *, n_paths: int, seed: int) -> pd.DataFrame:
    """The distance of EM's starts on the way to the least average log loss over the prior."""
    data = load_breast_cancer()
    X = StandardScaler().fit_transform(data.data)
    y = 2.0 * data.target - 1
    fits = {
        "fixed link": LogisticRegression(C=0.001),
        "ridge": Ridge(1000.0),
        "linear discriminant": LinearDiscriminantAnalysis(),
        "weaker penalty": LogisticRegression(C=0.01),
    }
    weights = {name: np.ravel(fit.fit(X, y).coef_) for name, fit in fits.items()}
    weights["class means"] = X[y > 0].mean(axis=0) - X[y < 0].mean(axis=0)
    length = np.linalg.norm(weights["fixed link"])
    rows = {}
    for gamma in gammas:
        prior = make_prior(c=0.25 / float(np.abs(X).max() * length), gamma=gamma)
        Gamma = prior.sample(n_paths, torch.Generator().manual_seed(seed))
        average = partial(penalised_average, prior, Gamma, X, y, 0.001)
        least = minimize(average, weights["fixed link"], jac=True, method="L-BFGS-B").fun
        zero = average(np.zeros(X.shape[1]))[0]
        rows[gamma] = {
            name: (zero - average(beta * length / np.linalg.norm(beta))[0]) / (zero - least)
            for name, beta in weights.items()
        }
    return pd.DataFrame(rows).T.rename_axis("gamma")


def penalised_average(
    prior: ISGP, Gamma: torch.Tensor, X: Array, y: Array, C: float, beta: Array
) -> tuple[float, Array]:
    """The log loss averaged over paths and data, with scikit-learn's penalty, and its gradient."""
    x = torch.from_numpy(X @ beta)
    nu = prior.source(x, Gamma).numpy()
    slope = prior.derivative(x, Gamma).numpy()
    pull = ((LOSSES["log"].inverse_link(nu) - (y + 1) / 2) * slope).mean(axis=0) / len(y)
    weight = C * len(y)
    value = float(LOSSES["log"](y, nu).mean() + beta @ beta / (2 * weight))
    return value, X.T @ pull + beta / weight


def slack_table(gammas: Sequence[float], *, n_paths: int, seed: int) -> pd.DataFrame:
    """Both sides of theorem 4 on the breast-cancer data, in the units of each loss."""
    logit, y = breast_cancer()
    probability = LOSSES["log"].inverse_link(logit)
    rows = {}
    for name, loss in LOSSES.items():
        x = loss.link(probability)
        left = float(loss(y, x).mean())
        for gamma in gammas:
            prior = make_prior(a=1.2, c=0.5 / float(np.abs(x).max()), gamma=gamma)
            Gamma = prior.sample(n_paths, torch.Generator().manual_seed(seed))
            nu = prior.source(torch.from_numpy(x), Gamma).numpy()
            slack = loss(y, nu).mean(axis=1) - left
            rows[name, gamma] = {
                "canonical loss": left,
                "average over sources": left + slack.mean(),
                "slack": slack.mean(),
                "error": slack.std(ddof=1) / math.sqrt(n_paths),
                "paths below canonical": (slack < 0).mean(),
            }
    return pd.DataFrame(rows).T.rename_axis(["loss", "gamma"])
