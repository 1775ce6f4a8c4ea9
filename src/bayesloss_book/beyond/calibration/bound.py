"""How rough may the curve be? Laplace's evidence, the bound, the truth, and losses that follow."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from bayesloss import ISGP, TrigonometricKernel
from bayesloss.learning.calibration.score_transform import ScoreTransform
from bayesloss.learning.data.rows import Rows
from bayesloss.learning.evidence.evidence import SMOOTHNESS, at_smoothness
from bayesloss.learning.evidence.mixtures import average_priors
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.threads import one_thread
from bayesloss_book.data.score_sets import draw
from bayesloss_book.problems.source_problems import whitened_log_likelihood
from bayesloss_book.references.samplers import annealed_importance_sampling
from bayesloss_book.rivals.baselines import log_loss
from paperledger.stores.results import runs

DATA = "normal classes"  # true log odds are a straight line
N_CASES = 200
N_DRAWS = 8  # that are annealed
ENDS = (SMOOTHNESS[0], SMOOTHNESS[-1])  # the roughest and the smoothest prior

_FILLED = 0.5  # the part of the period's half that scores fill
_N_BASIS = 32
_GAMMA = 0.25
_GRID = 400  # that the scores are spread on
_DRAWS = 128  # curves, for the mean probability under a Gaussian


@dataclass(frozen=True)
class _Problem:
    """One draw of calibration cases, their Laplace posteriors by smoothness, and test cases."""

    x: Tensor  # log odds of the cases, centred
    y: Tensor
    posteriors: list[Posterior]  # as SMOOTHNESS
    at: NDArray[np.float64]  # log odds of test cases, centred
    nodes: NDArray[np.float64]  # between which curves of test cases are interpolated
    truth: NDArray[np.float64]  # probabilities of test cases
    sigmoid_loss: float  # in nats

    @classmethod
    def of(cls, data: str, n: int, number: int) -> "_Problem":
        cases = draw(data, "curve", "curve", n, number)
        y = torch.from_numpy(cases.y)
        rows = Rows(cases.scores, cases.y, np.ones(n))
        to_log_odds = ScoreTransform.fit(rows, cases.probability)
        log_odds = torch.from_numpy(to_log_odds(cases.scores))
        centre = float(log_odds.max() + log_odds.min()) / 2
        half = float(log_odds.max() - log_odds.min()) / 2
        x = log_odds - centre
        kernel = TrigonometricKernel(a=2.0, c=_FILLED / half, n_basis=_N_BASIS)
        prior = ISGP(kernel, mu=centre, gamma=_GAMMA)
        likelihood = Bernoulli()
        grid = torch.linspace(-half, half, _GRID, dtype=torch.float64)
        shares = likelihood.shares(x, y, torch.ones_like(y), grid)
        observations = likelihood.on_grid(prior.features, grid, shares)
        priors = [at_smoothness(prior, a) for a in SMOOTHNESS]
        average = average_priors(priors, likelihood, observations, start=prior.start(x))
        test_log_odds = to_log_odds(cases.test_scores)
        at = test_log_odds - centre
        return cls(
            x=x,
            y=y,
            posteriors=average.components,
            at=at,
            nodes=np.linspace(at.min(), at.max(), 2 * _GRID),
            truth=cases.truth,
            sigmoid_loss=log_loss(expit(test_log_odds), cases.truth),
        )

    def loss(self, posterior: Posterior, Gamma: Tensor, weights: Tensor) -> float:
        """The log loss of weighted curves' mean probability, less the sigmoid's, in nats."""
        paths = posterior.prior.source(torch.from_numpy(self.nodes), Gamma)
        mean = (weights @ torch.sigmoid(paths)).numpy()
        p = np.interp(self.at, self.nodes, mean)
        return log_loss(p, self.truth) - self.sigmoid_loss

    def gaussian_loss(self, posterior: Posterior) -> float:
        """The same over draws from Laplace's Gaussian."""
        generator = torch.Generator().manual_seed(0)
        shape = (_DRAWS, len(posterior.mode))
        noise = torch.randn(shape, dtype=torch.float64, generator=generator)
        even = torch.full((_DRAWS,), 1 / _DRAWS, dtype=torch.float64)
        return self.loss(posterior, posterior.mode + noise @ posterior.root.T, even)


def judge(data: str, n: int, draws: int) -> pd.DataFrame:
    """By draw and smoothness ``a``: evidence and bound, and loss less the sigmoid's, in nats."""
    return pd.concat([_judge_one(data, n, number) for number in range(draws)], ignore_index=True)


def _judge_one(data: str, n: int, number: int) -> pd.DataFrame:
    problem = _Problem.of(data, n, number)
    evidence = np.array([posterior.log_evidence for posterior in problem.posteriors])
    bound = np.array([posterior.evidence_bound for posterior in problem.posteriors])
    return pd.DataFrame(
        {
            "number": number,
            "a": [float(posterior.prior.kernel.a) for posterior in problem.posteriors],
            "evidence": evidence - evidence.max(),
            "bound": bound - bound.max(),
            "loss": [problem.gaussian_loss(posterior) for posterior in problem.posteriors],
        }
    )


def cells() -> list[dict[str, Any]]:
    """The roughest and the smoothest prior on each draw."""
    return [{"number": number, "a": a} for number in range(N_DRAWS) for a in ENDS]


def measure(*, number: int, a: float, n_chains: int, n_temperatures: int) -> dict[str, float]:
    """Compare Laplace's Gaussian with the exact posterior, on one draw under one prior.

    ``laplace``, ``bound``, ``annealed`` and its standard error ``annealed_error``: log evidences in
    nats. ``effective_size``: of the annealed sample. ``loss_gaussian`` and ``loss_exact``: the log
    loss under Laplace's Gaussian and under the annealed posterior, less the sigmoid's, in nats.
    """
    problem = _Problem.of(DATA, N_CASES, number)
    posterior = problem.posteriors[SMOOTHNESS.index(a)]
    prior = posterior.prior
    joint = LogJoint.of(prior, Bernoulli(), problem.x, problem.y, None)
    with one_thread():
        sample = annealed_importance_sampling(
            whitened_log_likelihood(joint),
            len(prior.location),
            n_chains=n_chains,
            n_temperatures=n_temperatures,
            seed=number,
        )
    Gamma = prior.location + prior.precision.rsqrt() * sample.points
    return {
        "laplace": posterior.log_evidence,
        "bound": posterior.evidence_bound,
        "annealed": sample.log_evidence,
        "annealed_error": sample.error,
        "effective_size": sample.effective_size,
        "loss_gaussian": problem.gaussian_loss(posterior),
        "loss_exact": problem.loss(posterior, Gamma, sample.weights),
    }


run = runs(measure, cells, "link_prior", n_chains=256, n_temperatures=150)
