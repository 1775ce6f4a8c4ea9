r"""EM for weights and links together (W&N section 4.2).

E-step: with the scores x = beta . z held, the Laplace posterior of nu. Each datum is seen as one
number, so the data are spread on a grid, and the cost does not grow with their number. M-step: with
the posterior held, raise the penalised expected log likelihood in beta.

Were the posterior exact, every round would raise the marginal likelihood of beta. Laplace's is not,
and a round may lower it; the record shows where.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from tqdm import tqdm

from bayesloss.learning.isgp import SourcePrior
from bayesloss.learning.laplace import LogJoint, Mode, Posterior, approximate, find_mode
from bayesloss.learning.likelihoods import Bernoulli
from bayesloss.learning.linear_scores import LinearScores, WeightFit, maximise_weights
from bayesloss.learning.link_tables import expected_log_probabilities
from bayesloss.proper_losses import ProperLoss

__all__ = ["LinkFit", "fit_links", "grid_size"]

_NEWTON_STEPS = 100  # of an E-step; from the mode of the round before, five or six suffice
_WEIGHT_STEPS = 10  # L-BFGS iterations between two E-steps: the posterior moves meanwhile
_FIXED_STEPS = 1000  # L-BFGS iterations for the fixed link


@dataclass(frozen=True)
class LinkFit:
    """What EM found for K problems that share their inputs.

    Attributes
    ----------
    beta : Tensor of shape (K, d)
    scores : Tensor of shape (K, n)
    posteriors : list of Posterior
    draws : list of Tensor of shape (S, M + 1)
        From each posterior.
    converged : bool
    unsettled : tuple of str
        What did not converge.
    history : dict of str to list of Tensor of shape (K,)
        "log_evidence" after each E-step; "expected_before", "expected" around, and "change" after
        each M-step, the last round's being without one.
    """

    beta: Tensor
    scores: Tensor
    posteriors: list[Posterior]
    draws: list[Tensor]
    unsettled: tuple[str, ...]
    history: dict[str, list[Tensor]] = field(repr=False)


def fit_links(
    data: LinearScores,
    likelihood: Bernoulli,
    prior_of: Callable[[Tensor], SourcePrior],
    noise: Tensor,
    *,
    tol: float,
    max_iter: int,
    progress: bool = False,
    watch: Callable[[Tensor, list[Posterior]], None] | None = None,
) -> LinkFit:
    """Fit the fixed link, then alternate between links and weights.

    Parameters
    ----------
    data : LinearScores
    likelihood : Bernoulli
    prior_of : callable
        Makes the prior of a link from the scores of the fixed link, of shape (n,).
    noise : Tensor of shape (S, M + 1)
        Standard normal numbers that become draws from each posterior.
    tol : float
        EM ends when no problem's log evidence, less the penalty, changes by more than tol nats a
        datum in a round; see also :func:`maximise_weights`.
    max_iter : int
        The largest number of rounds.
    progress : bool
        Whether a progress bar is shown.
    watch : callable, optional
        Called after each E-step with the weights, (K, d), and the posteriors given them.

    Returns
    -------
    LinkFit
    """
    fit, start = _fixed_link(data, likelihood.loss, tol)
    unsettled = [] if fit.settled(tol) else ["the fit with the fixed link"]
    priors = [prior_of(x) for x in fit.scores.cpu()]
    modes = [
        torch.cat([prior.start(x)[:-1], nu_0[None]])
        for prior, x, nu_0 in zip(priors, fit.scores.cpu(), start.cpu(), strict=True)
    ]
    history: dict[str, list[Tensor]] = {
        name: [] for name in ("log_evidence", "expected_before", "expected", "change")
    }
    before = None
    with tqdm(total=max_iter, desc="EM", unit="round", disable=not progress) as bar:
        while True:
            found = [
                _link_posterior(data, likelihood, prior, k, fit.scores[k], mode)
                for k, (prior, mode) in enumerate(zip(priors, modes, strict=True))
            ]
            posteriors = [posterior for posterior, _ in found]
            if watch is not None:
                watch(fit.beta, posteriors)
            modes = [mode.Gamma for _, mode in found]
            draws = [posterior.mode + noise @ posterior.root.T for posterior in posteriors]
            evidence = fit.beta.new_tensor([posterior.log_evidence for posterior in posteriors])
            history["log_evidence"].append(evidence)
            value = evidence / data.total - 0.5 * data.ridge * (fit.beta**2).sum(1)
            gain = math.inf if before is None else float((value - before).abs().max())
            bar.update()
            bar.set_postfix({"nats a datum": f"{float(value.mean()):.6f}"})
            if gain < tol or len(history["log_evidence"]) > max_iter:
                break
            before = value
            fit = _raise_weights(data, likelihood.loss, priors, draws, fit, tol, history)
    if gain >= tol:
        unsettled.append(f"EM (its last round still changed the evidence by {gain:.2g} a datum)")
    unsettled += [
        f"the E-step of problem {k}" for k, (_, mode) in enumerate(found) if not mode.converged
    ]
    return LinkFit(fit.beta, fit.scores, posteriors, draws, tuple(unsettled), history)


def grid_size(prior: SourcePrior, width: float, n: float) -> int:
    """How many nodes scores of this width need for n data, so that the grid is not felt.

    Linear weights with spacing h change the log likelihood of a datum by h^2/12 times its second
    derivative in x, on average. For n data that moves the mode by about sqrt(n) (h/l)^2 / 12
    posterior standard deviations, where l = log(a) / (pi c) is the scale on which the kernel's
    functions vary. A thousandth of one is allowed, so the grid grows with the fourth root of n.
    """
    scale = math.log(float(prior.kernel.a)) / (math.pi * prior.kernel.c)
    return max(64, math.ceil(width / scale * n**0.25 / math.sqrt(0.012)) + 1)


def _fixed_link(data: LinearScores, loss: ProperLoss, tol: float) -> tuple[WeightFit, Tensor]:
    """Weights for nu(x) = x + offset; scores come without the offset, which is nu_0's to be."""

    def log_probability(scores: Tensor) -> tuple[Tensor, Tensor]:
        value, first, _ = loss.log_probabilities(scores)
        one = data.labels == 1
        return torch.where(one, value[1], value[0]), torch.where(one, first[1], first[0])

    zeros = data.centre.new_zeros((len(data.labels), len(data.centre)))
    fit = maximise_weights(
        data, log_probability, zeros, zeros[:, 0], free_offset=True, tol=tol, max_iter=_FIXED_STEPS
    )
    without = replace(
        fit, offset=torch.zeros_like(fit.offset), scores=fit.scores - fit.offset[:, None]
    )
    return without, fit.offset


def _link_posterior(
    data: LinearScores,
    likelihood: Bernoulli,
    prior: SourcePrior,
    problem: int,
    scores: Tensor,
    start: Tensor,
) -> tuple[Posterior, Mode]:
    """The E-step of one problem: Newton's method on the grid, from the mode of the round before."""
    low, high = float(scores.min()), float(scores.max())
    if low == high:  # constant inputs: one node would do
        high = low + 1 / prior.kernel.c
    size = grid_size(prior, high - low, data.total)
    nodes = torch.linspace(low, high, size, dtype=scores.dtype)
    observed = likelihood.spread(
        prior.features,
        scores.cpu(),
        data.labels[problem].to(scores.dtype).cpu(),
        data.weight.cpu(),
        nodes,
    )
    joint = LogJoint(prior, likelihood, observed)
    mode = find_mode(joint, start, max_iter=_NEWTON_STEPS)
    return approximate(joint, mode), mode


def _raise_weights(
    data: LinearScores,
    loss: ProperLoss,
    priors: list[SourcePrior],
    draws: list[Tensor],
    fit: WeightFit,
    tol: float,
    history: dict[str, list[Tensor]],
) -> WeightFit:
    """The M-step: a few L-BFGS iterations on the tabulated expectation, and its record."""
    tables = [
        expected_log_probabilities(prior, loss, Gamma).to(data.Z.device)
        for prior, Gamma in zip(priors, draws, strict=True)
    ]

    def log_probability(scores: Tensor) -> tuple[Tensor, Tensor]:
        pairs = [
            table(x, labels) for table, x, labels in zip(tables, scores, data.labels, strict=True)
        ]
        values, slopes = zip(*pairs, strict=True)
        return torch.stack(values), torch.stack(slopes)

    moved = maximise_weights(
        data,
        log_probability,
        fit.beta,
        fit.offset,
        free_offset=False,
        tol=tol,
        max_iter=_WEIGHT_STEPS,
    )
    size = fit.beta.norm(dim=1).clamp_min(torch.finfo(fit.beta.dtype).tiny)
    history["expected_before"].append(moved.start)
    history["expected"].append(moved.objective)
    history["change"].append((moved.beta - fit.beta).norm(dim=1) / size)
    return moved
