"""Linkgistic regression watched at work: EM round by round, and what it can and cannot promise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit, xlogy
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.isotonic import isotonic_regression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale
from torch import Tensor

from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.links.em import EM, LinkModel
from bayesloss.learning.sources.priors import GP, ISGP, SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import fit_fixed_link
from bayesloss_book import Array

KINKED = np.array([2.0, -2.0, 1.0])  # the weights of the simulated data
STEP = np.array([1.0, -1.0])


@dataclass(frozen=True)
class Task:
    """Labels of two classes, for training and for testing."""

    X: Array  # (n, d)
    y: NDArray[np.int64]  # (n,)
    X_test: Array  # (n_test, d)
    y_test: NDArray[np.int64]  # (n_test,)
    # (n_test,), the true log odds at the test inputs, where the data are simulated
    odds: Array | None = None


def kinked(n: int, seed: int, n_test: int = 5000) -> Task:
    """Log odds that rise slowly below zero and steeply above, in three standard normal inputs."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n + n_test, 3))
    x = X @ KINKED
    odds = np.where(x < 0, 0.3 * x, 2.5 * x) - 0.5
    y = (generator.random(n + n_test) < expit(odds)).astype(np.int64)
    return Task(X[:n], y[:n], X[n:], y[n:], odds[n:])


def step(n: int, seed: int, n_test: int = 5000) -> Task:
    """Two skewed (exponential) inputs; the probability climbs a step, from 0.03 to 0.88."""
    generator = np.random.default_rng(seed)
    X = generator.exponential(size=(n + n_test, 2))
    odds = logit(0.03 + 0.85 * expit(6 * (X @ STEP + 0.8)))
    y = (generator.random(n + n_test) < expit(odds)).astype(np.int64)
    return Task(X[:n], y[:n], X[n:], y[n:], odds[n:])


def digit(which: int, seed: int) -> Task:
    """One digit against the rest: scikit-learn's digits, 64 inputs in [0, 1], half for testing."""
    X, y = load_digits(return_X_y=True)
    return _halves(X / 16, (y == which).astype(np.int64), seed)


def cancer(seed: int) -> Task:
    """Benign against malignant tumours: 30 standardised inputs, half for testing."""
    X, y = load_breast_cancer(return_X_y=True)
    return _halves(scale(X), y.astype(np.int64), seed)


def _halves(X: Array, y: NDArray[np.int64], seed: int) -> Task:
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
    return Task(X, y, X_test, y_test)


@dataclass(frozen=True)
class Round:
    """What EM holds after one E-step."""

    beta: Tensor  # (d,)
    scores: Tensor  # (n,)
    posterior: Posterior
    value: float  # Laplace's log evidence less the penalty on the weights, in nats
    # how much the M-step before raised its own objective, in nats; NaN in the first round
    rise: float


def linear_data(X: Array, y: NDArray[np.int64], C: float = math.inf) -> LinearScores:
    """One problem as the search for weights sees it."""
    labels = torch.from_numpy(np.ascontiguousarray(y, dtype=np.int64))
    inputs = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float64))
    return LinearScores.of(inputs, labels[None], torch.ones(len(X), dtype=torch.float64), C)


def learn(
    problem: Task,
    *,
    rounds: int,
    C: float = 1.0,
    prior: str = "isgp",
    n_basis: int = 64,
    filled: float = 0.5,
    n_samples: int = 64,
    tol: float = 0.0,
    seed: int = 0,
) -> list[Round]:
    """The paper's EM, and what it holds after each E-step.

    With no rounds the link of the fixed weights is learned; its scores fill a part of [-1/c, 1/c].
    """
    data = linear_data(problem.X, problem.y, C)

    def make(scores: Tensor) -> SourcePrior:
        kernel = TrigonometricKernel(a=1.2, c=filled / float(scores.abs().max()), n_basis=n_basis)
        if prior == "gp":
            kernel = kernel.scaled(max(float((scores**2).mean()), 1.0))
        return {"isgp": ISGP, "gp": GP}[prior](kernel, gamma=0.01)

    noise = torch.randn(
        (n_samples, n_basis + 1), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    likelihood = Bernoulli()
    tol = tol or 1e-8
    fixed, adapted = fit_fixed_link(data, likelihood.loss, tol)
    link_prior = make(fixed.scores[0] - fixed.offset[0])
    em = EM(adapted, LinkModel(likelihood, link_prior, [link_prior], noise), fixed, tol)
    watched = [(em.beta[0].clone(), em.found()) for _ in em.rounds(rounds)]
    pairs = zip(em.history["expected_before"], em.history["expected"], strict=True)
    rises = [math.nan] + [data.total * (after - before) for before, after in pairs]
    return [
        Round(
            beta=beta,
            scores=data.scores(beta[None])[0],
            posterior=posterior,
            value=posterior.log_evidence - 0.5 * data.ridge * data.total * float(beta @ beta),
            rise=rise,
        )
        for (beta, posterior), rise in zip(watched, rises, strict=True)
    ]


def reach(problem: Task, C: float = 1.0) -> float:
    """The largest score, in absolute value, of the fit with the fixed link."""
    return float(learn(problem, rounds=0, C=C, n_basis=2)[0].scores.abs().max())


def drawn(found: Round, y: NDArray[np.int64], n: int, seed: int) -> pd.DataFrame:
    """The log likelihood and log weight of draws from Laplace's q and its twin, in nats.

    The mean of the weights is an unbiased estimate of the evidence p(y), so by Markov's inequality
    it exceeds e^t p(y) with a probability below e^-t.
    """
    prior = found.posterior.prior
    q = found.posterior
    Gamma = q.sample(n, torch.Generator().manual_seed(seed))
    nu = prior.source(found.scores, Gamma)
    fit = torch.nn.functional.logsigmoid(torch.where(torch.from_numpy(y) == 1, nu, -nu)).sum(dim=1)

    def log_q(points: Tensor) -> Tensor:
        z = torch.linalg.solve(q.root, (points - q.mode).T)
        return -0.5 * (z**2).sum(dim=0) - torch.linalg.slogdet(q.root).logabsdet

    twin = torch.cat([-Gamma[:, :-1], Gamma[:, -1:]], dim=1)
    proposal = torch.logaddexp(log_q(Gamma), log_q(twin)) - math.log(2)
    distance = (prior.precision * (Gamma - prior.location) ** 2).sum(dim=1)
    # The factors of 2 pi are the same in prior and proposal.
    log_prior = 0.5 * (prior.precision.log().sum() - distance)
    columns = {"log likelihood": fit, "log weight": fit + log_prior - proposal}
    return pd.DataFrame({name: values.numpy() for name, values in columns.items()})


def best_monotone(scores: Tensor, y: NDArray[np.int64]) -> float:
    """The largest log likelihood that any increasing link gives the labels, in nats."""
    _, place = scores.unique(return_inverse=True)
    counts = np.bincount(place)
    ones = np.bincount(place, y)
    share = isotonic_regression(ones / counts, sample_weight=counts)
    return float((xlogy(ones, share) + xlogy(counts - ones, 1 - share)).sum())


def degrees(beta: Array, truth: Array) -> float:
    """The angle between two vectors of weights."""
    cosine = beta @ truth / (np.linalg.norm(beta) * np.linalg.norm(truth))
    return float(np.degrees(np.arccos(min(float(cosine), 1.0))))


def by_round(problem: Task, rounds: Sequence[Round], shown: Sequence[int]) -> pd.DataFrame:
    """Length of the weights, slope of nu at the training scores, log losses, after rounds."""
    rows = {}
    for number in shown:
        found = rounds[number]
        draws = found.posterior.sample(64, torch.Generator().manual_seed(0))
        centred = found.scores - found.scores.mean()
        slope = centred @ found.posterior.mean(found.scores) / (centred @ centred)
        length = float(found.beta.norm())
        row = {"length": length, "slope": float(slope), "product": length * float(slope)}
        centre = torch.from_numpy(problem.X.mean(axis=0))
        for name, X, y in (
            ("training log loss", problem.X, problem.y),
            ("test log loss", problem.X_test, problem.y_test),
        ):
            x = (torch.from_numpy(X) - centre) @ found.beta
            u = torch.sigmoid(found.posterior.prior.source(x, draws)).mean(dim=0)
            row[name] = float(log_loss(y, u.numpy()))
        rows[number] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("round")


def bent_draws(posterior: Posterior, x: Tensor, n: int, seed: int) -> int:
    """How many of n draws of nu from a posterior fall somewhere on the points x."""
    nu = posterior.prior.source(x, posterior.sample(n, torch.Generator().manual_seed(seed)))
    # An increasing path is flat to rounding error where f is zero.
    return int((nu.diff(dim=1) < -1e-9).any(dim=1).sum())


def shifted(prior: SourcePrior, Gamma: Tensor, by: float) -> Tensor:
    """The Gamma of the path x -> nu(x + by) of an ISGP: its waves turned, its intercept nu(by)."""
    half = prior.kernel.n_basis // 2
    angle = math.pi * prior.kernel.c * by * torch.arange(1, half + 1, dtype=Gamma.dtype)
    cosine = Gamma[:half]
    sine = Gamma[half:-1]
    turned = [
        cosine * angle.cos() + sine * angle.sin(),
        sine * angle.cos() - cosine * angle.sin(),
        prior.source(torch.tensor([by], dtype=Gamma.dtype), Gamma),
    ]
    return torch.cat(turned)


def atoms(n: int, seed: int) -> tuple[ISGP, Tensor]:
    """A prior on n paths of an ISGP, equally likely: its posterior is a sum, and so exact."""
    prior = ISGP(TrigonometricKernel(a=1.5, c=0.1, n_basis=8), gamma=1.0)
    return prior, prior.sample(n, torch.Generator().manual_seed(seed))


def joint_of_atoms(paths: tuple[ISGP, Tensor], Z: Tensor, y: Tensor, beta: Tensor) -> Tensor:
    """The log of p(path) p(y | path, beta) for each of K paths, of shape (..., K)."""
    prior, Gamma = paths
    x = (Z @ beta[..., None])[..., 0]
    nu = prior.source(x.flatten(), Gamma).reshape(-1, *x.shape)
    signed = torch.where(y == 1, nu, -nu)
    return torch.nn.functional.logsigmoid(signed).sum(-1).movedim(0, -1) - math.log(len(Gamma))


def ascents(n_instances: int, seed: int, *, n: int = 20, d: int = 2) -> pd.DataFrame:
    """Moves of beta: the rise of "Q", of the log evidence, and the posteriors' divergence."""
    generator = torch.Generator().manual_seed(seed)
    paths = atoms(30, seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    Z = normal(n_instances, n, d)
    old = normal(n_instances, d)
    reach = torch.rand(n_instances, 1, dtype=torch.float64, generator=generator)
    new = old + reach * normal(n_instances, d)
    y = (normal(n_instances, n) < 0).to(torch.float64)
    before, after = (joint_of_atoms(paths, Z, y, beta) for beta in (old, new))
    q = torch.log_softmax(before, dim=-1)
    q_new = torch.log_softmax(after, dim=-1)
    columns = {
        "Q": (q.exp() * (after - before)).sum(-1),
        "log evidence": after.logsumexp(-1) - before.logsumexp(-1),
        "divergence": (q.exp() * (q - q_new)).sum(-1),
    }
    return pd.DataFrame({name: values.numpy() for name, values in columns.items()})
