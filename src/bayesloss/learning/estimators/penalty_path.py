r"""The penalty of linkgistic regression, chosen by scores that the weights have not seen.

Cross-validation would refit on every fold for every C. Links, however, are fitted to approximate
leave-one-out scores (:mod:`bayesloss.learning.weights.leave_one_out`), which already give

    loss(C) = -mean_n log p(y_n | x_n^(-n)),

with x_n^(-n) the score of case n under weights fitted without it, or without its group, and p the
posterior mean under a link fitted to all these scores: a smooth function of one variable can hardly
overfit. From the strongest penalty to the weakest, each fit has the fixed link and starts at the
one before; a link with one stiff prior, or the given one, scores it. Only at the chosen C is all
fitted.

In a joint model of K classes, scores are shifted by the Newton step of one class at a time. Only
differences of the classes' weights matter, so the others take back a share 1/K of a common step,
exact if all classes are alike. The loss is that of a softmax on the best common scale.
"""

from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from bayesloss.arrays import Array
from bayesloss.learning.estimators.linkgistic_fit import Problems, Settings
from bayesloss.learning.links.em import fit_links
from bayesloss.learning.links.link_model import LinkModel
from bayesloss.learning.links.multinomial import common_scale, fit_softmax
from bayesloss.learning.links.tables import enough_nodes, expected_log_probabilities, moved
from bayesloss.learning.weights.leave_one_out import LeaveOneOut
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import WeightFit, fit_fixed_link
from bayesloss.warnings import warn_caller

_RANGE, _MANY = (1e-4, 1e4), 10  # of C, as in scikit-learn
_STIFF = 3  # the place, in the family, of the prior that scores the path
_PATIENCE = 2  # how many weaker penalties in a row are tried that are no better


def strengths(C: float | str | ArrayLike) -> Array:
    """The values of C to choose from, ascending, or the one that is given."""
    values = np.geomspace(*_RANGE, _MANY) if isinstance(C, str) else np.sort(np.atleast_1d(C))
    values = values.astype(np.float64)
    if values.ndim != 1 or len(values) == 0 or not (values > 0).all():
        raise ValueError(f"expected positive values of C, got C={C!r}")
    return values


def held_out_losses(problems: Problems, Cs: Array, joint: bool, settings: Settings) -> Array:
    """The mean held-out log loss at each C, NaN if not tried since two in a row were no better."""
    losses_of, fit = _joint_losses if joint else _losses, None
    means = np.full(len(Cs), np.nan)
    for i, C in enumerate(Cs):
        data = problems.at(C)
        losses, fit = losses_of(data, problems.groups, settings, fit)
        means[i] = float(data.weight @ losses) / data.total
        if i - np.nanargmin(means) == _PATIENCE:
            return means
    best = int(np.nanargmin(means))
    if len(Cs) > 1 and best in (0, len(Cs) - 1):
        warn_caller(
            f"the best penalty of those tried, C={Cs[best]:.3g}, is the "
            f"{'strongest' if best == 0 else 'weakest'}: there may be better ones beyond; give "
            "others as a list, C=[...]"
        )
    return means


def _losses(
    data: LinearScores, groups: Tensor | None, settings: Settings, before: WeightFit | None
) -> tuple[Tensor, WeightFit]:
    """Held-out losses with a link for each class, and the fit with the fixed link."""
    weight, priors, loss = data.weight.cpu(), settings.priors, settings.likelihood.loss
    tol = settings.model.tol
    fixed, _ = fit_fixed_link(data, loss, tol, before)
    prior_of = partial(priors.first, weight=weight, member=_STIFF)
    model = LinkModel(settings.likelihood, prior_of, settings.noise, not settings.chance)
    out = LeaveOneOut(data, settings.seed, groups)
    fit = fit_links(data, model, tol=tol, max_iter=0, leave_one_out=out, fixed=fixed)
    losses = torch.zeros_like(data.weight)
    tables = [
        expected_log_probabilities(q.prior, loss, draws, enough_nodes(q.prior))
        for q, draws in zip(fit.posteriors, fit.draws, strict=True)
    ]
    for table, x, y in zip(moved(tables, losses.device), fit.seen, data.labels, strict=True):
        losses -= table(x, y)[0] / len(data.labels)
    return losses, fixed


def _joint_losses(
    data: LinearScores, groups: Tensor | None, settings: Settings, before: WeightFit | None
) -> tuple[Tensor, WeightFit]:
    """The same for one model of all classes."""
    fit, _ = fit_softmax(data, settings.model.tol, before)
    p = torch.softmax(fit.scores, dim=0)
    slopes = list(zip(-p, 1 - p, strict=True))
    alone = LeaveOneOut(data, 0, groups).held_out_scores(fit.scores, slopes)
    seen = torch.lerp(alone, fit.scores, 1 / len(data.labels))
    scale = common_scale(seen, torch.zeros_like(fit.offset), data)
    return -(data.labels * torch.log_softmax(scale * seen, dim=0)).sum(0), fit
