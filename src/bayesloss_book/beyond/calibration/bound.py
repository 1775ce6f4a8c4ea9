"""How rough may the curve be? Laplace's evidence, the bound on it, and the loss that follows."""

import numpy as np
import pandas as pd
import torch
from scipy.special import expit

from bayesloss import ISGP, TrigonometricKernel
from bayesloss.learning.calibration.score_transform import ScoreTransform
from bayesloss.learning.data.rows import Rows
from bayesloss.learning.evidence.evidence import SMOOTHNESS, at_smoothness
from bayesloss.learning.evidence.mixtures import average_priors
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss_book.data.score_sets import draw
from bayesloss_book.rivals.baselines import log_loss

_FILLED = 0.5  # the part of the period's half that scores fill
_N_BASIS = 32
_GAMMA = 0.25
_GRID = 400  # that the scores are spread on
_DRAWS = 128  # curves, for the mean probability


def judge(data: str, n: int, draws: int) -> pd.DataFrame:
    """By draw and smoothness ``a``: evidence and bound, and loss less the sigmoid's, in nats."""
    return pd.concat([_judge_one(data, n, number) for number in range(draws)], ignore_index=True)


def _judge_one(data: str, n: int, number: int) -> pd.DataFrame:
    cases = draw(data, "curve", "curve", n, number)
    y = torch.from_numpy(cases.y)
    rows = Rows(cases.scores, cases.y, np.ones(n))
    to_log_odds = ScoreTransform.fit(rows, cases.probability)
    x = torch.from_numpy(to_log_odds(cases.scores))
    centre, half = float(x.max() + x.min()) / 2, float(x.max() - x.min()) / 2
    kernel = TrigonometricKernel(a=2.0, c=_FILLED / half, n_basis=_N_BASIS)
    prior = ISGP(kernel, mu=centre, gamma=_GAMMA)
    likelihood = Bernoulli()
    grid = torch.linspace(-half, half, _GRID, dtype=torch.float64)
    shares = likelihood.shares(x - centre, y, torch.ones_like(y), grid)
    observations = likelihood.on_grid(prior.features, grid, shares)
    priors = [at_smoothness(prior, a) for a in SMOOTHNESS]
    average = average_priors(priors, likelihood, observations, start=prior.start(x - centre))
    at = to_log_odds(cases.test_scores)
    nodes = np.linspace(at.min() - centre, at.max() - centre, 2 * _GRID)
    losses = []
    for posterior in average.components:
        generator, shape = torch.Generator().manual_seed(0), (_DRAWS, len(posterior.mode))
        noise = torch.randn(shape, dtype=torch.float64, generator=generator)
        paths = prior.source(torch.from_numpy(nodes), posterior.mode + noise @ posterior.root.T)
        p = np.interp(at - centre, nodes, torch.sigmoid(paths).mean(dim=0).numpy())
        losses.append(log_loss(p, cases.truth))
    evidence = np.array([posterior.log_evidence for posterior in average.components])
    bound = np.array([posterior.evidence_bound for posterior in average.components])
    return pd.DataFrame(
        {
            "number": number,
            "a": [float(posterior.prior.kernel.a) for posterior in average.components],
            "evidence": evidence - evidence.max(),
            "bound": bound - bound.max(),
            "loss": np.array(losses) - log_loss(expit(at), cases.truth),
        }
    )
