r"""What keeps a bound below the evidence: the Gaussian's shape, other modes, or an expectation.

For a Gaussian q (with its twin) and the ratio l = log p(D, Gamma) - log q(Gamma), the bound is
E_q l, and the log evidence exceeds it by KL(q || posterior). That divergence can be had without the
evidence. Along the path p_beta, proportional to q exp(beta l), from q to the posterior,

    KL(q || posterior) = int_0^1 (1 - beta) Var_beta(l) d beta,

because d/d beta log Z_beta = E_beta l and d/d beta E_beta l = Var_beta l. Each variance is taken
over chains of elliptical slice sampling, which begin at q and stay with its mode, so that the
divergence is that from the posterior of this mode. The modes' evidences add up.
"""

import math
import time
from typing import Any

import numpy as np
import torch

from bayesloss.learning.evidence.importance import log_ratios, weigh_draws
from bayesloss.learning.evidence.variational import variational
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss_book.beyond.variational.long_chains import gaussians, importance_evidence, jumper
from bayesloss_book.problems.source_problems import cells as problems
from bayesloss_book.problems.source_problems import data_set, prior_and_likelihood
from bayesloss_book.references.samplers import elliptical_slice_sampling
from paperledger.stores.results import runs

DRAWS = (64, 256, 1024)
_NODES = 5  # of Gauss and Legendre's rule in beta
_REPEATS = 16  # of each weighted estimate


def divergence(
    joint: LogJoint, q: Posterior, *, n_chains: int, n_draws: int, seed: int
) -> tuple[float, float]:
    """KL(q || posterior) in nats by chains along the path, and its standard error over chains."""
    nodes, shares = np.polynomial.legendre.leggauss(_NODES)
    total = torch.zeros(n_chains, dtype=torch.float64)
    for k, (node, share) in enumerate(zip(nodes, shares, strict=True)):
        beta = (1 + float(node)) / 2

        def tempered(z: torch.Tensor, beta: float = beta) -> torch.Tensor:
            return beta * log_ratios(joint, q, z)

        sizes = {"n_chains": n_chains, "n_draws": n_draws, "n_burn_in": n_draws // 3}
        z = elliptical_slice_sampling(tempered, len(q.mode), seed=seed + k, **sizes)
        ratios = log_ratios(joint, q, z.flatten(0, 1)).view(n_chains, n_draws)
        total += share / 2 * (1 - beta) * ((ratios - ratios.mean()) ** 2).mean(dim=1)
    return float(total.mean()), float(total.std()) / math.sqrt(n_chains)


def measure(
    *, task: str, n: int, seed: int, n_basis: int, n_chains: int, n_draws: int
) -> dict[str, float]:
    """Take the distance of one problem's bound from the evidence apart.

    All in nats but for counts and seconds. ``n_modes``. Of the best Gaussian: ``bound`` as
    :func:`variational` gives it; ``exact``, ``exact_error``: E_q l by draws; ``divergence``,
    ``divergence_error``. ``added``, ``added_error``: the log of the sum over modes of exp(E_q l +
    KL). ``weighted_K``, ``weighted_K_sd``: mean and standard deviation of 16 estimates by K
    weighted draws of the best Gaussian, with ``weighted_K_error`` the mean standard error that they
    give themselves. ``mixture``, ``mixture_error``: by 1024 weighted draws of the Gaussians at all
    modes. ``process_seconds``, ``weighted_seconds``: of the Gaussian, and of 1024 weighted draws.
    """
    prior, likelihood = prior_and_likelihood(task, n_basis)
    x, y = data_set(task, n, seed)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
    generator = torch.Generator().manual_seed(seed)
    starts = torch.cat([prior.start(x)[None], prior.sample(40, generator)])
    found = gaussians(joint, x, y, starts, "exact")
    out: dict[str, float] = {"n_modes": len(found), "bound": found[0].log_evidence}
    sums = []
    errors = []
    for k, q in enumerate(found):
        noise = torch.randn((4096, len(q.mode)), dtype=torch.float64, generator=generator)
        ratios = log_ratios(joint, q, noise)
        exact = float(ratios.mean())
        error = float(ratios.std()) / math.sqrt(len(ratios))
        distance = divergence(joint, q, n_chains=n_chains, n_draws=n_draws, seed=100 * seed + k)
        if k == 0:
            out |= {"exact": exact, "exact_error": error}
            out |= {"divergence": distance[0], "divergence_error": distance[1]}
        sums.append(exact + distance[0])
        errors.append(math.hypot(error, distance[1]))
    shares = np.exp(np.array(sums) - np.logaddexp.reduce(sums))
    out["added"] = float(np.logaddexp.reduce(sums))
    out["added_error"] = float(np.linalg.norm(shares * errors))
    for draws in DRAWS:
        weighted = [
            weigh_draws(found[0], x, y, n_draws=draws, generator=generator) for _ in range(_REPEATS)
        ]
        values = [one.log_evidence for one in weighted]
        out[f"weighted_{draws}"] = float(np.mean(values))
        out[f"weighted_{draws}_sd"] = float(np.std(values, ddof=1))
        out[f"weighted_{draws}_error"] = float(np.mean([one.error for one in weighted]))
    mixture = importance_evidence(joint, jumper(found), DRAWS[-1], seed)
    begin = time.process_time()
    again = variational(prior, likelihood, x, y)
    middle = time.process_time()
    weigh_draws(again, x, y, n_draws=DRAWS[-1], generator=generator)
    return out | {
        "mixture": mixture[0],
        "mixture_error": mixture[1],
        "process_seconds": middle - begin,
        "weighted_seconds": time.process_time() - middle,
    }


def cells() -> list[dict[str, Any]]:
    """The toy problems with 50 data, and with noise those with 10."""
    sizes = {"regression": (10, 50), "classification": (50,)}
    return [problem for problem in problems() if problem["n"] in sizes[problem["task"]]]


run = runs(measure, cells, "variational_gaps", n_basis=64, n_chains=32, n_draws=150)
