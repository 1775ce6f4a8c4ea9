"""The power plant of LHG section 2.2, and toys for the other claims of that section.

The paper gives no numbers. Ours: temperatures in degrees Celsius, a posterior of two Gaussians, and
costs such that the Bayes decision is to shut down.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr
from scipy.stats import norm
from torch import Tensor

from bayesloss.calibrating.decision_theory import bayes_action, loss_divergence, posterior_risk
from bayesloss_book.models.families import gaussians
from bayesloss_book.references.decision_references import discretise

ACTIONS = ("on", "off")


@dataclass(frozen=True)
class PowerPlant:
    """A reactor of unknown temperature, to be kept on or shut down."""

    # the posterior, a mixture of Gaussians; degrees Celsius
    weights: tuple[float, ...] = (0.85, 0.15)
    means: tuple[float, ...] = (280.0, 350.0)
    deviations: tuple[float, ...] = (15.0, 10.0)
    critical: float = 345.0  # the temperature above which a running plant melts down
    meltdown: float = 100.0  # the cost of a meltdown, and of shutting down at any temperature
    shutdown: float = 5.0

    @property
    def states(self) -> Tensor:
        """The middles of 1,360 cells of a quarter of a degree; whole degrees are their borders."""
        edges = torch.linspace(130, 470, 1361, dtype=torch.float64)
        return (edges[1:] + edges[:-1]) / 2

    @property
    def posterior(self) -> Tensor:
        """The masses of the cells, of shape (1360,)."""
        return discretise(torch.as_tensor(np.log(self.density(self.states.numpy()))))

    @property
    def losses(self) -> Tensor:
        """The loss of "on" and "off" in each cell, of shape (1360, 2)."""
        on = torch.where(self.states > self.critical, self.meltdown, 0.0).to(torch.float64)
        return torch.stack([on, torch.full_like(on, self.shutdown)], dim=1)

    def density(self, theta: np.ndarray) -> np.ndarray:
        """The posterior's density."""
        return self._mix(norm.pdf, theta)

    def tail(self, theta: np.ndarray | float) -> np.ndarray:
        """The posterior's probability of a temperature above theta."""
        return self._mix(norm.sf, theta)

    def moments(self) -> tuple[float, float]:
        """The posterior's mean and standard deviation."""
        w, m, s = (np.array(part) for part in (self.weights, self.means, self.deviations))
        mean = float(w @ m)
        return mean, float(np.sqrt(w @ (s**2 + (m - mean) ** 2)))

    def gaussian(self, mean: float, deviation: float) -> Tensor:
        """The masses of a Gaussian in the plant's cells."""
        return discretise(-0.5 * ((self.states - mean) / deviation) ** 2)

    def _mix(self, function: Callable[..., np.ndarray], theta: np.ndarray | float) -> np.ndarray:
        parts = zip(self.weights, self.means, self.deviations, strict=True)
        return np.sum([w * function(theta, m, s) for w, m, s in parts], axis=0)


def tail_matching(plant: PowerPlant) -> tuple[float, float]:
    """Mean and deviation of the Gaussian of least KL(p || q) that minimises d_L(p || q)."""
    mean, deviation = plant.moments()
    z = float(norm.isf(plant.tail(plant.critical)))

    def cross_entropy(log_sigma: float) -> float:
        sigma = math.exp(log_sigma)
        centre = plant.critical - z * sigma
        return log_sigma + ((mean - centre) ** 2 + deviation**2) / (2 * sigma**2)

    found = minimize_scalar(
        cross_entropy,
        bracket=(math.log(deviation) - 1, math.log(deviation)),
        options={"xtol": 1e-10},
    )
    sigma = math.exp(found.x)
    return plant.critical - z * sigma, sigma


def approximations(plant: PowerPlant) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of the three Gaussians of LHG figure 1, by optimisation."""
    states = plant.states
    p = plant.posterior
    family = gaussians(states)
    half = float(states[-1] - states[0]) / 2
    middle = float(states[-1] + states[0]) / 2

    def in_degrees(parameters: Tensor) -> tuple[float, float]:
        return middle + half * float(parameters[0]), half * math.exp(float(parameters[1]))

    return {
        "min KL(q‖p)": in_degrees(family.nearest(p.log()).parameters),
        "min KL(p‖q)": in_degrees(family.moment_matching(p).parameters),
        "right tail": tail_matching(plant),
    }


def decision_table(plant: PowerPlant, fits: dict[str, tuple[float, float]]) -> pd.DataFrame:
    """Each distribution's moments, its risk of staying on, its decision and what that costs."""
    p = plant.posterior
    losses = plant.losses
    rows = {}
    for name, (mean, deviation) in {"posterior": plant.moments(), **fits}.items():
        q = p if name == "posterior" else plant.gaussian(mean, deviation)
        rows[name] = {
            "mean": mean,
            "deviation": deviation,
            "P(θ > T)": float(q[plant.states > plant.critical].sum()),
            "q-risk of on": float(posterior_risk(q, losses)[0]),
            "decision": ACTIONS[int(bayes_action(q, losses))],
            "d_L": float(loss_divergence(p, q, losses)),
        }
    return pd.DataFrame(rows).T.infer_objects()


def divergence_map(plant: PowerPlant, means: Tensor, deviations: Tensor) -> Tensor:
    """d_L(p || q) for Gaussians on a grid, of shape (means, deviations)."""
    pairs = torch.cartesian_prod(means, deviations)
    z = (plant.states - pairs[:, :1]) / pairs[:, 1:]
    values = loss_divergence(plant.posterior, discretise(-0.5 * z**2), plant.losses)
    return values.reshape(len(means), len(deviations))


def expectation_propagation(
    states: Tensor, log_prior: Tensor, log_factors: Tensor, *, max_sweeps: int = 200
) -> tuple[float, float]:
    """Mean and variance of EP's Gaussian, factors integrated on the even grid (K,)."""
    n = len(log_factors)
    precision = torch.zeros(n, dtype=torch.float64)
    shift = torch.zeros(n, dtype=torch.float64)
    for _ in range(max_sweeps):
        before = torch.cat([precision, shift])
        for i in range(n):
            rest = torch.arange(n) != i
            cavity = log_prior - 0.5 * precision[rest].sum() * states**2
            tilted = discretise(cavity + shift[rest].sum() * states + log_factors[i])
            mean = (tilted * states).sum()
            variance = (tilted * (states - mean) ** 2).sum()
            precision[i] = 1 / variance - 1 - precision[rest].sum()
            shift[i] = mean / variance - shift[rest].sum()
        if (torch.cat([precision, shift]) - before).abs().max() < 1e-10:
            total = 1 + precision.sum()
            return float(shift.sum() / total), float(1 / total)
    raise RuntimeError(f"expected sites at rest after {max_sweeps} sweeps")


def predictive_divergence(
    q: Sequence[tuple[float, float]], p: tuple[float, float], inputs: np.ndarray, p_threshold: float
) -> np.ndarray:
    """d_L(p || q) of probit classifiers, for Gaussians q = (mean, deviation)."""

    def positive(mean: float, deviation: float) -> np.ndarray:
        return norm.cdf((inputs - mean) / math.hypot(1, deviation))

    truth = positive(*p)
    costs = np.stack([(1 - p_threshold) * truth, p_threshold * (1 - truth)])  # of saying 0, or 1
    risks = [np.where(positive(*each) > p_threshold, costs[1], costs[0]).mean() for each in q]
    return np.array(risks) - costs.min(axis=0).mean()


def probit_factors(states: Tensor, slopes: Sequence[float]) -> Tensor:
    """The log of Phi(slope * theta) for each slope, of shape (n, K)."""
    return torch.as_tensor(log_ndtr(np.outer(slopes, states.numpy())))


def tightest_bound(n: int, seed: int) -> pd.DataFrame:
    """How close d_L comes to zero and to its upper bound, as parts of that, at random."""
    rng = np.random.default_rng(seed)
    lower = math.inf
    upper = math.inf
    zero = 0
    for _ in range(n):
        n_states = rng.integers(2, 7)
        n_actions = rng.integers(2, 5)
        both = rng.exponential(size=(2, n_states)) ** 2
        p, q = torch.tensor(both / both.sum(axis=1, keepdims=True))
        losses = torch.tensor(rng.beta(0.3, 0.3, size=(n_states, n_actions)))
        value = float(loss_divergence(p, q, losses))
        bound = float((losses.max() - losses.min()) * (p - q).abs().sum())
        lower = min(lower, value / bound)
        upper = min(upper, 1 - value / bound)
        zero += value == 0
    table = pd.DataFrame({"least gap": {"0 ≤ d_L": lower, "d_L ≤ r |p − q|₁": upper}})
    table["d_L = 0"] = f"{zero} of {n}"
    return table
