"""The fit of linkgistic regression by W&N's recipe: each class against the rest, by EM.

If the prior is chosen by the evidence and a few rows have scores beyond the kernel's period, the
inputs are centred without them, and all is fitted again, with links that are constant beyond it.
"""

from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Bool, Float
from sklearn.utils import check_random_state
from torch import Tensor

from bayesloss.learning.estimators.linkgistic_fit import (
    FIXED_LINK,
    LinkgisticFit,
    side_by_side,
    warn_if_separable,
)
from bayesloss.learning.estimators.paper_link import PaperLink
from bayesloss.learning.estimators.problems import Problems
from bayesloss.learning.inference.laplace import even_normals
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.links.em import LinkFit, LinkModel, fit_link
from bayesloss.learning.links.fitted_link import DRAWS, FittedLink
from bayesloss.learning.links.link_priors import LinkPriors
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import fit_fixed_link
from bayesloss.warnings import warn_caller


@dataclass(frozen=True)
class Recipe:
    """A PaperLink, with what its parameters stand for in a fit."""

    priors: LinkPriors
    likelihood: Bernoulli
    noise: Float[Tensor, "S any"] = field(repr=False)  # normal numbers that become draws
    chance: bool  # whether the noise is random

    @classmethod
    def of(cls, link: PaperLink) -> "Recipe":
        """That of a link, with random numbers drawn if it asks for them.

        Raises
        ------
        ValueError
            If the loss has a bounded link, or a parameter is out of its range.
        """
        link._validate_params()
        priors = LinkPriors(
            kind=link.prior,
            n_given=link.n_basis,
            a=link.a,
            c=link.c,
            variance=link.variance,
            gamma=link.gamma,
        )
        width = priors.n_parameters
        if link.n_samples is None:
            noise = even_normals(DRAWS, width)
        else:
            seed = int(check_random_state(link.random_state).randint(2**31))
            generator = torch.Generator().manual_seed(seed)
            shape = (link.n_samples, width)
            noise = torch.randn(shape, dtype=torch.float64, generator=generator)
        return cls(
            priors=priors,
            likelihood=Bernoulli(link.loss),
            noise=noise,
            chance=link.n_samples is not None,
        )

    def model(self, scores: Tensor, weight: Tensor, *, constant_ends: bool) -> LinkModel:
        """The priors of one problem's link, given the fixed link's scores without the offset."""
        prior = self.priors.first(scores, weight)
        family = [prior]
        if self.priors.chosen:
            family = self.priors.family(prior)
        return LinkModel(
            likelihood=self.likelihood,
            prior=prior,
            family=family,
            noise=self.noise,
            ordered=not self.chance,
            constant_ends=constant_ends,
        )


def fit_paper_links(
    problems: Problems, C: float, recipe: Recipe, *, tol: float, max_iter: int, progress: bool
) -> LinkgisticFit:
    """Weights and links of all problems, one after the other."""
    data = problems.at(C)
    fit_each = partial(_fit_each, recipe=recipe, tol=tol, max_iter=max_iter, progress=progress)
    found = fit_each(data, constant_ends=False)
    constant_ends = bool(found.far.any())
    if constant_ends:  # far rows may have moved the mean of the inputs away from all others
        data = data.centred_on(~found.far.to(data.weight.device))
        found = fit_each(data, constant_ends=True)
        n_far = int(found.far.sum())
        if n_far:
            warn_caller(
                f"{n_far} of {len(found.far)} rows have scores far out from the rest, and the "
                "link is held constant there: look at these rows, or transform columns that have "
                "long tails"
            )
    links = [
        FittedLink.of(
            fit.posterior,
            recipe.likelihood.loss,
            fit.scores.cpu(),
            data.weight.cpu(),
            draws=fit.draws,
            chance=recipe.chance,
            constant_ends=constant_ends,
        )
        for fit in found.fits
    ]
    warn_if_separable(data, torch.stack([fit.scores for fit in found.fits]), tol)
    unsettled = [] if found.settled else [FIXED_LINK]
    for k, fit in enumerate(found.fits):
        unsettled += [f"{what} of problem {k}" for what in fit.unsettled]
    names = found.fits[0].history
    return LinkgisticFit(
        joint=False,
        C=C,
        beta=torch.stack([fit.beta for fit in found.fits]),
        centre=data.centre,
        links=links,
        history={name: side_by_side([fit.history[name] for fit in found.fits]) for name in names},
        unsettled=tuple(unsettled),
    )


@dataclass(frozen=True)
class _Pass:
    """Fits of all problems in the coordinates that the data have."""

    fits: list[LinkFit]
    far: Bool[Tensor, " n"]  # which rows are scored beyond a period, unless a or c is given
    settled: bool  # whether the fit with the fixed link converged


def _fit_each(
    data: LinearScores,
    recipe: Recipe,
    *,
    constant_ends: bool,
    tol: float,
    max_iter: int,
    progress: bool,
) -> _Pass:
    fixed, data = fit_fixed_link(data, recipe.likelihood.loss, tol)
    weight = data.weight.cpu()
    far = torch.zeros(len(weight), dtype=torch.bool)
    fits = []
    for k in range(len(data.labels)):
        scores = (fixed.scores[k] - fixed.offset[k]).cpu()
        model = recipe.model(scores, weight, constant_ends=constant_ends)
        if recipe.priors.robust:
            far |= scores.abs() > model.prior.kernel.edge
        problem = data.only([k])
        fit = fit_link(problem, model, fixed.only(k), tol=tol, max_iter=max_iter, progress=progress)
        fits.append(fit)
    return _Pass(fits=fits, far=far, settled=fixed.settled(tol))
