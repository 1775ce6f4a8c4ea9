"""Toy problems on which Laplace's approximation can be compared with the truth."""

import math
from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from torch import Tensor

from bayesloss.learning.inference.laplace import Posterior, laplace
from bayesloss.learning.inference.likelihoods import Bernoulli, Gaussian
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book.drawing.figures import COLOURS


def small_prior() -> ISGP:
    """Two basis functions on a period of 8; the inputs of the toys lie in [-1, 1]."""
    return ISGP(TrigonometricKernel(a=2.0, c=0.25, n_basis=2), mu=0.0, gamma=1.0)


def regression(n: int, seed: int) -> tuple[Tensor, Tensor, Gaussian]:
    """Inputs in [-1, 1], a rising target with noise of standard deviation 1/2, its likelihood."""
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(n, dtype=torch.float64, generator=generator) - 1
    noise = torch.randn(n, dtype=torch.float64, generator=generator)
    return x, torch.tanh(1.5 * x) + 0.5 * noise, Gaussian(4.0)


def log_odds(x: Tensor) -> Tensor:
    """The true source of :func:`classification`: two lines that meet at zero."""
    return torch.where(x < 0, 1.0 * x, 5.0 * x) - 0.5


def classification(n: int, seed: int) -> tuple[Tensor, Tensor, Bernoulli]:
    """Inputs in [-1, 1], labels whose log odds are piecewise linear, and their likelihood."""
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(n, dtype=torch.float64, generator=generator) - 1
    y = torch.rand(n, dtype=torch.float64, generator=generator) < torch.sigmoid(log_odds(x))
    return x, y.to(torch.float64), Bernoulli()


def log_density_of_weights(
    prior: ISGP, likelihood: Gaussian, x: Tensor, y: Tensor, w: Tensor
) -> Tensor:
    """The log density log p(y, w) with the intercept integrated out, for w of shape (K, M).

    Given w, the targets are Gaussian with mean mu + w^T psi(x) w and covariance
    I/alpha + 1 1^T/gamma, whose inverse and determinant are Sherman and Morrison's.
    """
    alpha = float(likelihood.alpha)
    gamma = float(prior.gamma)
    n = len(y)
    h = prior.kernel.integrals(x)
    centred = y - prior.mu
    p = prior.kernel.square_coefficients(w)
    squares = centred @ centred - 2 * p @ (h.T @ centred) + ((p @ (h.T @ h)) * p).sum(dim=1)
    level = centred.sum() - p @ h.sum(dim=0)
    quadratic = alpha * (squares - alpha * level**2 / (gamma + n * alpha))
    log_det = math.log1p(n * alpha / gamma) - n * math.log(alpha / (2 * math.pi))
    eigenvalues = prior.kernel.eigenvalues
    log_prior = (w**2 / eigenvalues + torch.log(2 * math.pi * eigenvalues)).sum(dim=1)
    return -0.5 * (quadratic + log_det + log_prior)


def true_log_evidence(
    prior: ISGP, likelihood: Gaussian, x: Tensor, y: Tensor, *, half: int = 220
) -> float:
    """The log evidence of two basis functions, by the trapezoidal rule over both weights."""
    axis = torch.linspace(-7, 7, 2 * half + 1, dtype=torch.float64)
    scale = prior.kernel.eigenvalues.sqrt()
    grid = torch.cartesian_prod(axis, axis) * scale
    parts = [
        log_density_of_weights(prior, likelihood, x, y, part).logsumexp(dim=0)
        for part in grid.split(2**16)
    ]
    total = torch.stack(parts).logsumexp(dim=0)
    return float(total + torch.log(scale * (axis[1] - axis[0])).sum())


def printed_evidence(posterior: Posterior, x: Tensor, y: Tensor) -> float:
    """Appendix D's approximation as it is printed: log p(D, mode) - log det(H) / 2."""
    joint = LogJoint.of(posterior.prior, posterior.likelihood, x, y)
    return float(joint(posterior.mode) - 0.5 * torch.logdet(joint.hessian(posterior.mode)))


def evidence_table(sizes: Sequence[int], seed: int) -> pd.DataFrame:
    """How far each approximation is from the true log evidence, in nats, for several n."""
    prior = small_prior()
    rows = {}
    for n in sizes:
        x, y, likelihood = regression(n, seed)
        truth = true_log_evidence(prior, likelihood, x, y)
        posterior = laplace(prior, likelihood, x, y)
        rows[n] = {
            "as printed": printed_evidence(posterior, x, y) - truth,
            "with both constants": posterior.log_evidence - truth,
            "lower bound": posterior.evidence_bound - truth,
        }
    return pd.DataFrame(rows).T.rename_axis("n")


def draw_evidence(table: pd.DataFrame) -> Figure:
    """The errors of :func:`evidence_table` against n."""
    figure, axis = subplots(figsize=(6.4, 3.6))
    styles = {"as printed": (":", "GP"), "with both constants": ("--", "PAVA")}
    styles["lower bound"] = ("-", "ISGP")
    for name, (dashes, colour) in styles.items():
        axis.plot(table.index, table[name], dashes, marker="o", color=COLOURS[colour], label=name)
    axis.axhline(0, color="black", linewidth=0.8)
    axis.set(xscale="log", xlabel="number of data n", ylabel="error in nats")
    axis.legend()
    return figure


def draw_posterior(n: int, seed: int) -> Figure:
    """The true posterior of the two weights, with its twin modes, and Laplace's Gaussian."""
    prior = small_prior()
    x, y, likelihood = regression(n, seed)
    posterior = laplace(prior, likelihood, x, y)
    axis = torch.linspace(-1.8, 1.8, 161, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    values = log_density_of_weights(prior, likelihood, x, y, grid).reshape(161, 161)
    density = (values - values.max()).exp().numpy().T  # contourf wants rows to run upwards
    figure, panel = subplots(figsize=(5.2, 4.4))
    panel.contourf(axis.numpy(), axis.numpy(), density, levels=8, cmap="Blues")
    angle = np.linspace(0, 2 * math.pi, 100)
    circle = torch.tensor(np.stack([np.cos(angle), np.sin(angle)]))
    root = torch.linalg.cholesky(posterior.covariance[:2, :2])
    for sign in (1, -1):
        for radius in (1, 2):
            ring = sign * posterior.mode[:2, None] + radius * root @ circle
            panel.plot(*ring.numpy(), color=COLOURS["GP"], linewidth=1.2)
    panel.plot(0, 0, "x", color="black")
    panel.set(xlabel="weight of the cosine", ylabel="weight of the sine", aspect="equal")
    return figure


def compare_losses(
    prior: ISGP, sizes: Sequence[int], seeds: Iterable[int], n_samples: int
) -> pd.DataFrame:
    """:func:`losses` at 201 inputs of :func:`classification`; a row a size and a seed."""
    x_new = torch.linspace(-1, 1, 201, dtype=torch.float64)
    rows = {}
    for n, seed in product(sizes, seeds):
        x, y, likelihood = classification(n, seed)
        q = laplace(prior, likelihood, x, y)
        rows[n, seed] = losses(q, x_new, log_odds(x_new).sigmoid(), n_samples, seed)
    return pd.DataFrame(rows).T.rename_axis(["n", "seed"])


def losses(posterior: Posterior, x: Tensor, p: Tensor, n_samples: int, seed: int) -> pd.Series:
    """Three expected log losses of labels that are 1 with probabilities p, and an error; nats."""
    Gamma = posterior.sample(n_samples, torch.Generator().manual_seed(seed))
    nu = posterior.prior.source(x, Gamma)
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    single = loss(nu, p.expand_as(nu), reduction="none").mean(dim=1)
    averaged = torch.sigmoid(nu).mean(dim=0)
    return pd.Series(
        {
            "averaged over sources": float(single.mean()),
            "of the mean source": float(loss(posterior.mean(x), p)),
            "of the averaged probability": float(loss(averaged.logit(), p)),
            "error": float(single.std()) / math.sqrt(n_samples),
        }
    )
