"""The toys of the page on GP classification: brute-force truths, and its figures."""

import math

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from scipy.optimize import minimize
from torch import Tensor

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.loss_em_probit import loss_em_probit
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.laplace import laplace_probit, log_joint
from bayesloss.calibrating.probit.whitened_gp import GaussianWeights, WhitenedGP, predictive
from bayesloss.calibrating.utility import LogUtility
from bayesloss.kernels import SquaredExponential
from bayesloss_book.drawing.figures import COLOURS, legend_above
from bayesloss_book.references.probit_references import (
    GRID,
    by_importance_sampling,
    costs_at,
    draw_data,
)

# Labels at inputs between 0 and 1: alone, together, against each other.
SMALL = {
    "+ - far apart": ([0.1, 0.9], [1, -1]),
    "+ + close": ([0.1, 0.3], [1, 1]),
    "+ + -": ([0.1, 0.4, 0.6], [1, 1, -1]),
    "- - -": ([0.0, 0.5, 1.0], [-1, -1, -1]),
}


def small_problem(name: str, amplitude: float) -> tuple[WhitenedGP, Tensor]:
    """One of ``SMALL``, as a batch of one, with length scale 0.3."""
    inputs, labels = SMALL[name]
    kernel = SquaredExponential(a=0.3**-2, b=amplitude**2)
    prior = WhitenedGP.at(kernel, torch.tensor([inputs], dtype=torch.float64), batch_dims=1)
    return prior, torch.tensor([labels], dtype=torch.float64)


def brute_force(features: Tensor, y: Tensor, *, n: int = 161) -> tuple[Tensor, Tensor, float]:
    """Mean, covariance, log evidence of up to three whitened weights, by the trapezoidal rule."""
    grid, log_density, volume = _on_grid(features, y, 8.0, n)
    log_mass = torch.logsumexp(log_density, 0)
    weight = (log_density - log_mass).exp()
    mean = weight @ grid
    centred = grid - mean
    covariance = centred.mT @ (centred * weight[:, None])
    return mean, covariance, float(log_mass) + math.log(volume)


def error_table(amplitudes: tuple[float, ...]) -> pd.DataFrame:
    """The largest errors of EP and Laplace on ``SMALL``: mean, covariance and log evidence."""
    rows = {}
    for amplitude in amplitudes:
        for name in SMALL:
            prior, y = small_problem(name, amplitude)
            mean, covariance, log_evidence = brute_force(prior.features[0], y[0], n=101)
            row: dict[tuple[str, str], float] = {}
            for method, infer in (("EP", expectation_propagation), ("Laplace", laplace_probit)):
                q = infer(prior.features, y)
                row[method, "mean"] = float((q.mean[0] - mean).abs().max())
                row[method, "covariance"] = float((q.covariance[0] - covariance).abs().max())
                row[method, "log evidence"] = float(q.log_evidence) - log_evidence
            rows[amplitude, name] = row
    return pd.DataFrame(rows).T.rename_axis(["amplitude", "labels"])


def divergences(amplitude: float = 3.0) -> pd.DataFrame:
    """Both KL divergences in nats of Gaussians from the posterior of two equal labels."""
    prior, y = small_problem("+ + close", amplitude)
    features = prior.features
    grid, log_density, volume = _on_grid(features[0], y[0], 9.0, 241)
    log_p = log_density - torch.logsumexp(log_density, 0) - math.log(volume)
    p = log_p.exp() * volume

    def both(mean: Tensor, covariance: Tensor) -> tuple[float, float]:
        log_q = torch.distributions.MultivariateNormal(mean, covariance).log_prob(grid)
        forward = float((p * (log_p - log_q)).sum())
        return forward, float((log_q.exp() * volume * (log_q - log_p)).sum())

    def unpack(v: np.ndarray) -> tuple[Tensor, Tensor]:
        root = torch.tensor([[math.exp(v[2]), 0.0], [v[3], math.exp(v[4])]], dtype=torch.float64)
        return torch.tensor(v[:2]), root @ root.T

    moments = brute_force(features[0], y[0])[:2]
    laplace = laplace_probit(features, y)
    start = torch.linalg.cholesky(laplace.covariance[0])
    logs = [float(start[0, 0].log()), float(start[1, 0]), float(start[1, 1].log())]
    search = minimize(
        lambda v: both(*unpack(v))[1], [*laplace.mean[0].tolist(), *logs], method="BFGS"
    )
    targets, noise = prior.project(torch.linspace(0, 1, 50, dtype=torch.float64)[None])
    loss_em = loss_em_probit(features, y, targets, noise, CostMatrix(0.2, 1.0))
    ep = expectation_propagation(features, y)
    rows = {
        "least KL(p||q)": moments,
        "least KL(q||p)": unpack(search.x),
        "EP": (ep.mean[0], ep.covariance[0]),
        "Laplace": (laplace.mean[0], laplace.covariance[0]),
        "loss-EM": (loss_em.q.mean[0], loss_em.q.covariance[0]),
    }
    names = ["KL(p||q)", "KL(q||p)"]
    return pd.DataFrame({k: dict(zip(names, both(*v), strict=True)) for k, v in rows.items()}).T


def pull_table(thresholds: dict[str, float], n_sets: int, seed: int) -> pd.DataFrame:
    """What the loss does to the mode, for every cost, averaged over data sets."""
    prior, y, unit = draw_data(0.3, 3.0, n_sets, 300, seed)
    features, noise = prior.project(unit[0].expand(n_sets, -1))
    q = laplace_probit(prior.features, y)
    rows = {}
    for name, threshold in thresholds.items():
        costs = costs_at(threshold)
        mean, variance = q.latent(features)
        edge = costs.probit_threshold * (noise**2 + variance).sqrt()
        h = torch.where(mean > edge, 1.0, -1.0).to(torch.float64)
        term = LogUtility(features, noise, h, costs, max(costs.c_plus, costs.c_minus))
        found = loss_em_probit(prior.features, y, features, noise, costs)
        rows[name] = {
            "prior": float(q.mean.norm(dim=-1).mean()),
            "loss": float(term.derivatives(q.mean)[0].norm(dim=-1).mean()),
            "shift": float((found.q.mean - q.mean).norm(dim=-1).mean()),
            "changed": float((found.decisions != h).to(torch.float64).mean()),
            "log U": float(term.value(q.mean).abs().max()),
        }
    return pd.DataFrame(rows).T.rename_axis("c_plus")


def draw_answers(seed: int, index: int, threshold: float = 0.275) -> Figure:
    """The probability of +1 by four methods on one data set of 15 points."""
    prior, y, _ = draw_data(0.3, 3.0, index + 1, 10, seed)
    features, noise = prior.project(GRID.expand(len(y), -1))
    costs = costs_at(threshold)
    ep = expectation_propagation(prior.features, y)
    exact = by_importance_sampling(prior, y, ep, n_draws=2048, seed=0).predictive.on_grid
    laplace = laplace_probit(prior.features, y)
    loss_em = loss_em_probit(prior.features, y, features, noise, costs).q
    answers: dict[str, tuple[Tensor, str, str]] = {
        "exact": (exact, "-", "data"),
        "EP": (predictive(ep, features, noise), "--", "ISGP"),
        "Laplace": (predictive(laplace, features, noise), "-.", "GP"),
        "loss-EM": (predictive(loss_em, features, noise), ":", "PAVA"),
    }
    figure, axis = subplots(figsize=(5.6, 4.2))
    for name, (values, dashes, colour) in answers.items():
        axis.plot(GRID.numpy(), values[index].numpy(), dashes, color=COLOURS[colour], label=name)
    axis.axhline(threshold, color="black", linewidth=0.8)
    axis.annotate("threshold", (-0.05, threshold), (0, 3), textcoords="offset points")
    x = prior.inputs[index].numpy()
    labels = y[index].numpy()
    axis.plot(x[labels > 0], 0 * x[labels > 0] + 1.04, "^", color=COLOURS["data"], clip_on=False)
    axis.plot(x[labels < 0], 0 * x[labels < 0] - 0.04, "v", color=COLOURS["data"], clip_on=False)
    axis.set(xlabel="input $x$", ylabel="probability of $+1$", ylim=(-0.06, 1.06))
    legend_above(figure, axis, ncols=4)
    return figure


def draw_spread(x: Tensor, wide: Tensor, narrow: Tensor, thresholds: tuple[float, float]) -> Figure:
    """Two curves of probabilities, and where they decide differently at the second threshold."""
    figure, axis = subplots(figsize=(5.6, 4.0))
    axis.plot(x, wide, color=COLOURS["GP"], label="Laplace")
    axis.plot(x, narrow, "--", color=COLOURS["ISGP"], label="a quarter of its covariance")
    for threshold in thresholds:
        axis.axhline(threshold, color="black", linewidth=0.8)
        place = (float(x[0]), threshold)
        axis.annotate(f"{threshold:g}", place, (0, 3), textcoords="offset points")
    differ = (wide > thresholds[-1]) != (narrow > thresholds[-1])
    axis.fill_between(x, 0, 1, where=differ, color=COLOURS["bound"], alpha=0.4, linewidth=0)
    axis.set(xlabel="input $x$", ylabel="probability of $+1$", ylim=(0, 1))
    legend_above(figure, axis, ncols=2)
    return figure


def draw_strength(strength: pd.DataFrame) -> Figure:
    """The pulls and the shift of :func:`pull_table`, by the cost of a false positive."""
    figure, axis = subplots(figsize=(5.6, 4.0))
    styles = {
        "prior": ("pull of the prior", "-", "Linear", "s"),
        "loss": ("pull of the loss", "--", "GP", "o"),
        "shift": ("shift of the mode", ":", "PAVA", "^"),
    }
    for column, (label, dashes, colour, marker) in styles.items():
        line = {"color": COLOURS[colour], "marker": marker, "label": label}
        axis.plot(range(len(strength)), strength[column], dashes, **line)
    axis.set_xticks(range(len(strength)), strength.index)
    axis.set(yscale="log", xlabel="cost of a false positive, $c_+$", ylabel="length")
    axis.legend(loc="lower left")
    return figure


def draw_pull(seed: int, n_sets: int) -> Figure:
    """How far loss-EM moves the mode, against M, for three costs."""
    prior, y, unit = draw_data(0.3, 3.0, n_sets, 200, seed)
    features, noise = prior.project(unit[0].expand(n_sets, -1))
    q: GaussianWeights = laplace_probit(prior.features, y)
    figure, axis = subplots(figsize=(5.6, 4.0))
    multiples = np.geomspace(1, 100, 7)
    styles = {0.5: ("-", "ISGP"), 0.275: ("--", "GP"), 0.05: (":", "PAVA")}
    for threshold, (dashes, colour) in styles.items():
        costs = costs_at(threshold)
        data = (prior.features, y, features, noise, costs)
        found = (loss_em_probit(*data, max_loss=float(multiple)) for multiple in multiples)
        shifts = [float((each.q.mean - q.mean).norm(dim=-1).mean()) for each in found]
        label = f"$c_+ = {costs.c_plus:.2f}$"
        axis.plot(multiples, shifts, dashes, marker="o", color=COLOURS[colour], label=label)
    axis.set(xscale="log", yscale="log", xlabel="$M$, as a multiple of the larger cost")
    axis.set_ylabel("shift of the mode")
    axis.legend()
    return figure


def _on_grid(features: Tensor, y: Tensor, half: float, n: int) -> tuple[Tensor, Tensor, float]:
    """Points, log of posterior times evidence, and the volume of a point."""
    r = features.shape[-1]
    axis = torch.linspace(-half, half, n, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * r).reshape(-1, r)
    log_density = log_joint(grid, features, y) - 0.5 * r * math.log(2 * math.pi)
    return grid, log_density, (2 * half / (n - 1)) ** r
