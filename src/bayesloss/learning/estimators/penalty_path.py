r"""The penalty of linkgistic regression, chosen by scores that the weights have not seen.

For each C, weights with the fixed link are fitted without each of ten folds, from the strongest
penalty to the weakest and each from the one before. Their scores of the folds give

    loss(C) = -mean_n log p(y_n | x_n),

with p the posterior mean under a link fitted to all these scores: a smooth function of one variable
can hardly overfit. That link has one stiff prior, or the given one, and in a joint model it is the
best common scale. Only at the chosen C is all fitted.

The leave-one-out scores that links are fitted to (:mod:`bayesloss.learning.weights.leave_one_out`)
would save the refits, but are too kind where penalties are weak: a case that is left out moves
weights by more than one Newton step, the more so where classes can be separated.
"""

from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bayesloss.arrays import Array, Numbers
from bayesloss.learning.estimators.linkgistic_fit import Problems, Settings
from bayesloss.learning.links.em import fit_links
from bayesloss.learning.links.link_model import LinkModel
from bayesloss.learning.links.multinomial import common_scale, fit_softmax, folds_of
from bayesloss.learning.links.tables import enough_nodes, expected_log_probabilities
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import WeightFit, fit_fixed_link
from bayesloss.warnings import warn_caller

_FOLDS = 10  # those of five would be too harsh on fits to few rows a column
_STIFF = 3  # the place, in the family, of the prior that scores the path
_PATIENCE = 2  # how many weaker penalties in a row are tried that are no better


def strengths(C: Numbers | Literal["auto"]) -> Array:
    """The values of C to choose from, ascending, or the one that is given."""
    values = np.geomspace(1e-4, 1e4, 10) if isinstance(C, str) else np.sort(np.atleast_1d(C))
    values = values.astype(np.float64)
    if values.ndim != 1 or len(values) == 0 or not (values > 0).all():
        raise ValueError(f"expected positive values of C, got C={C!r}")
    return values


def held_out_losses(problems: Problems, Cs: Array, joint: bool, settings: Settings) -> Array:
    """The mean held-out log loss at each C, NaN if not tried since two in a row were no better."""
    problems, _ = problems.narrowed()
    labels = problems.labels
    weight = problems.weight
    numbers = torch.arange(1, len(labels) + 1, device=labels.device)
    classes = (numbers[:, None] * labels).sum(0).cpu()
    fold = folds_of(classes, problems.groups, _FOLDS).to(weight.device)
    parts = [replace(problems, weight=weight * (fold != k)) for k in fold.unique()]
    loss, tol = settings.likelihood.loss, settings.model.tol
    fit_fold = fit_softmax if joint else partial(fit_fixed_link, loss=loss)
    fits: dict[int, WeightFit] = {}
    means = np.full(len(Cs), np.nan)
    for i, C in enumerate(Cs):
        for k, part in enumerate(parts):
            fits[k] = fit_fold(part.at(C), tol=tol, start=fits.get(k))[0]
        seen = torch.stack([each.scores for each in fits.values()])
        seen = seen.gather(0, fold.expand_as(seen[:1]))[0]
        data = problems.at(C)
        losses = _joint_losses(seen, data) if joint else _losses(seen, fits[0], data, settings)
        means[i] = float(data.weight @ losses) / data.total
        if i - np.nanargmin(means) == _PATIENCE:
            return means
    warn_at_the_end(Cs, int(np.nanargmin(means)))
    return means


def warn_at_the_end(Cs: Array, best: int) -> None:
    """Warn if the best of several penalties is the first or the last of those tried."""
    if len(Cs) == 1 or 0 < best < len(Cs) - 1:
        return
    which = "strongest" if best == 0 else "weakest"
    warn_caller(
        f"the best penalty of those tried, C={Cs[best]:.3g}, is the {which}: there may be better "
        "ones beyond; give others as a list, C=[...]"
    )


def _losses(seen: Tensor, fit: WeightFit, data: LinearScores, settings: Settings) -> Tensor:
    """Held-out losses with a link for each class."""
    prior_of = partial(settings.priors.first, weight=data.weight.cpu(), member=_STIFF)
    noise, loss = settings.noise, settings.likelihood.loss
    model = LinkModel(settings.likelihood, prior_of, noise, not settings.chance, constant_ends=True)
    links = fit_links(data, model, tol=1.0, max_iter=0, fixed=replace(fit, scores=seen))
    losses = torch.zeros_like(data.weight)
    for q, draws, x, y in zip(links.posteriors, links.draws, links.seen, data.labels, strict=True):
        table = expected_log_probabilities(q.prior, loss, draws, enough_nodes(q.prior))
        losses -= table(x.cpu(), y.cpu())[0].to(losses.device) / len(data.labels)
    return losses


def _joint_losses(seen: Tensor, data: LinearScores) -> Tensor:
    """The same for one model of all classes."""
    scale = common_scale(seen, torch.zeros_like(seen[:, 0]), data)
    return -(data.labels * torch.log_softmax(scale * seen, dim=0)).sum(0)
