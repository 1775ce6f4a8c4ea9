"""The four losses of the page on proper losses, and what is measured on them (W&N section 2)."""

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from torch import Tensor

from bayesloss.proper_losses import LogLoss, MatsushitaLoss, ProperLoss, SkewedLogLoss, SquareLoss

LOSSES: dict[str, ProperLoss] = {
    "log": LogLoss(),
    "square": SquareLoss(),
    "Matsushita": MatsushitaLoss(),
    "skewed log": SkewedLogLoss(power=3),
}


def bumpy(x: Tensor, start: float = 0.5, slope: float = 1.0, bump: float = 0.8) -> Tensor:
    """A source for examples, start + slope x + bump sin x: increasing while bump < slope."""
    return start + slope * x + bump * torch.sin(x)


def tightest(n_random: int, seed: int) -> pd.DataFrame:
    """How near random instances come to violating what a Bayes risk promises, as quotients."""
    generator = np.random.default_rng(seed)
    rows = {}
    for name, loss in LOSSES.items():
        p, q, t = torch.from_numpy(generator.uniform(size=(3, n_random)))
        far = (p - q).abs() > 1e-3  # nearer, rounding decides
        p = p[far]
        q = q[far]
        t = t[far].clamp(1e-3, 1 - 1e-3)
        chord = t * loss.bayes_risk(p) + (1 - t) * loss.bayes_risk(q)
        gap = loss.bayes_risk(t * p + (1 - t) * q) - chord
        a = loss.canonical_link(q)
        young = loss.conjugate(a) - loss.bayes_risk(p) - a * p
        grid = torch.linspace(1e-3, 1 - 1e-3, 9999, dtype=torch.float64)
        rows[name] = {
            "divergence": float((loss.divergence(p, q) / (p - q) ** 2).min()),
            "concavity": float((gap / (t * (1 - t) * (p - q) ** 2)).min()),
            "Fenchel-Young": float((young / (p - q) ** 2).min()),
            "half the least weight": float(loss.weight(grid).min()) / 2,
        }
    return pd.DataFrame(rows).T


def skewed_truth(n: int = 241) -> tuple[Tensor, Tensor]:
    """Scores from -4 to 4, and probabilities that are a line under the skewed log loss's link."""
    x = torch.linspace(-4, 4, n, dtype=torch.float64)
    return x, LOSSES["skewed log"].inverse_canonical_link(x)


def best_line(charge: ProperLoss, link: ProperLoss) -> Tensor:
    """The probabilities of a line under one loss's link, fitted to the skewed truth by another."""
    x, truth = skewed_truth()

    def predict(line: np.ndarray) -> Tensor:
        return link.inverse_canonical_link(float(line[0]) + float(line[1]) * x)

    def cost(line: np.ndarray) -> float:
        return float(charge.conditional_risk(truth, predict(line)).mean())

    options = {"xatol": 1e-7, "fatol": 1e-13, "maxiter": 2000}
    found = minimize(cost, [0.0, 1.0], method="Nelder-Mead", options=options)
    if not found.success:
        raise RuntimeError(f"expected the best line to be found, got: {found.message}")
    return predict(found.x)
