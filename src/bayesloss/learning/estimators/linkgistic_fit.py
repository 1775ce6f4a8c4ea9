r"""The fit of linkgistic regression: from checked data to problems, and from problems to links.

Two classes are one problem, more are one each, against the rest, with the same inputs. For held-out
scores equal rows are merged, so that they are held out together. EM then fits each problem by
itself (:mod:`bayesloss.learning.links.em`), or all in one model
(:mod:`bayesloss.learning.links.joint`).

If scores of a few rows lie beyond the kernel's period, the inputs are centred without these rows,
and all is fitted once more, with links that are constant beyond the period.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int8
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data
from torch import Tensor

from bayesloss.learning.data.dask_inputs import DaskInputs, is_dask, on_client
from bayesloss.learning.data.duplicates import merge_duplicates
from bayesloss.learning.data.estimator_base import check_weights, remember_columns
from bayesloss.learning.data.inputs import DenseInputs, Inputs, SparseInputs, canonical
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.posterior_draws import even_normals
from bayesloss.learning.links.em import FIXED_LINK, LinkFit, fit_links
from bayesloss.learning.links.fitted_link import FittedLink
from bayesloss.learning.links.joint import SOFTMAX, JointFit, fit_joint_links
from bayesloss.learning.links.link_model import LinkModel
from bayesloss.learning.links.link_priors import LinkPriors
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.learning.weights.leave_one_out import LeaveOneOut
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.warnings import warn_caller

_DRAWS = 64  # points that stand for a posterior, where there is no chance
SIZES = (1e-100, 1e100)  # of inputs: squares keep within floating point's range


@dataclass(frozen=True)
class Problems:
    """K problems that share their inputs, for any penalty."""

    inputs: Inputs
    labels: Int8[Tensor, "K n"]
    weight: Float[Tensor, " n"]
    groups: Int[Tensor, " n"] | None

    def at(self, C: float) -> LinearScores:
        """The problems with this penalty."""
        return LinearScores.of(self.inputs, self.labels, self.weight, C)


@dataclass(frozen=True)
class Settings:
    """The parameters of the estimator, resolved for its data."""

    priors: LinkPriors
    likelihood: Bernoulli
    held_out: bool  # whether links see held-out scores
    tol: float
    max_iter: int
    noise: Float[Tensor, "S any"]  # normal numbers that become draws
    seed: int
    chance: bool  # whether the noise is random
    progress: bool

    @classmethod
    def of(cls, model: Any) -> "Settings":
        """Those of an estimator, with random numbers drawn if it asks for them."""
        priors = LinkPriors(
            model.prior, model.n_basis, model.a, model.c, model.variance, model.gamma
        )
        n, width = model.n_samples, priors.n_parameters
        if n is None:
            noise, seed = even_normals(_DRAWS, width), 0
        else:
            seed = int(check_random_state(model.random_state).randint(2**31))
            generator = torch.Generator().manual_seed(seed)
            noise = torch.randn((n, width), dtype=torch.float64, generator=generator)
        return cls(
            priors,
            Bernoulli(model.loss),
            model.leave_one_out,
            model.tol,
            model.max_iter,
            noise,
            seed,
            chance=n is not None,
            progress=bool(model.verbose),
        )


@dataclass(frozen=True)
class FittedProblems:
    """Weights and links, and how EM found them."""

    beta: Float[Tensor, "K d"]
    centre: Float[Tensor, " d"]
    links: list[FittedLink]
    history: dict[str, list[Tensor]] = field(repr=False)
    converged: bool


def read_problems(
    model: Any, X: Any, y: Any, sample_weight: Any, groups: ArrayLike | None
) -> tuple[NDArray, Problems]:
    """The classes, and the checked data of an estimator as problems."""
    device = _device(model.device)
    inputs, y, sample_weight = _read_inputs(model, device, X, y, sample_weight, groups)
    check_classification_targets(y)
    weight, counted = check_weights(sample_weight, y)
    if not counted.any():
        raise ValueError("expected a sample weight above zero, got none")
    keys = [y, *_group_numbers(groups, len(inputs))]  # in which copies of a row have to agree
    if not counted.all():
        inputs, weight = inputs.rows(torch.from_numpy(counted)), weight[counted]
        keys = [key[counted] for key in keys]
    classes, codes = np.unique(keys[0], return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"{type(model).__name__} needs at least two classes, got one class only: {classes[0]}"
        )
    if model.class_weight is not None:
        weight = weight * compute_sample_weight(model.class_weight, keys[0])
    keys[0] = codes
    if model.leave_one_out:
        kept, weight = merge_duplicates(inputs.equal(), weight, *keys)
        if len(kept) < len(inputs) or weight.max() > 1:
            inputs, keys = inputs.rows(torch.from_numpy(kept)), [key[kept] for key in keys]
    positives = [1] if len(classes) == 2 else range(len(classes))
    labels = np.stack([keys[0] == k for k in positives]).view(np.int8)
    numbers = [torch.from_numpy(each).to(device) for each in (labels, weight, *keys[1:])]
    return classes, Problems(inputs, numbers[0], numbers[1], numbers[2] if keys[1:] else None)


def _read_inputs(
    model: Any, device: torch.device, X: Any, y: Any, sample_weight: Any, groups: Any
) -> tuple[Inputs, NDArray, Any]:
    """Checked inputs on the device, with labels and weights, which are collected from Dask."""
    inputs: Inputs
    if is_dask(X):
        inputs = DaskInputs.of(X)
        if groups is not None:
            raise ValueError(
                "expected no groups where X is a Dask collection, got some: fit to a sample of "
                "whole groups that is in memory, or set leave_one_out=False and give none"
            )
        remember_columns(model, X)
        y = column_or_1d(on_client(y, inputs, "y"))
        if len(y) != len(inputs):
            raise ValueError(f"expected {len(inputs)} labels, one a row of X, got {len(y)}")
        sample_weight = on_client(sample_weight, inputs, "sample_weight")
    else:
        rows, y = validate_data(model, X, y, dtype=np.float64, order="C", accept_sparse="csr")
        rows, y = canonical(rows), np.asarray(y)
        sparse = issparse(rows)
        inputs = SparseInputs(rows) if sparse else DenseInputs(torch.from_numpy(rows).to(device))
    if device.type != "cpu" and not isinstance(inputs, DenseInputs):
        raise ValueError(
            f"expected device='cpu' for inputs that are sparse or Dask's, got {model.device!r}: "
            "set it, or give an array"
        )
    largest = inputs.largest()
    if largest and not SIZES[0] <= largest <= SIZES[1]:
        raise ValueError(
            f"expected inputs whose largest is within {SIZES[0]} and {SIZES[1]}, or 0, got "
            f"{largest:.3g}: scale them"
        )
    return inputs, y, sample_weight


def _device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (AssertionError, RuntimeError) as error:  # what PyTorch raises, by kind of device
        raise ValueError(
            f"expected a device that this PyTorch can use, got device={name!r}: {error}"
        ) from error


def _group_numbers(groups: ArrayLike | None, n: int) -> list[NDArray[np.int64]]:
    """The groups, if any, as numbers 0, 1, ..., of shape (n,)."""
    if groups is None:
        return []
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(f"expected groups of shape ({n},), got {labels.shape}")
    numbers = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    if numbers.max() == 0:
        raise ValueError("expected at least two groups, got one: nothing is left without it")
    return [numbers]


def fit_problems(problems: Problems, C: float, joint: bool, settings: Settings) -> FittedProblems:
    """Fit weights and links, by themselves or in one model, and warn if something went wrong."""
    fit_once = _fit_jointly if joint else _fit_each
    data, groups = problems.at(C), problems.groups
    fit, far = fit_once(data, groups, settings, constant_ends=False)
    constant_ends = bool(far.any())
    if constant_ends:  # far rows may have moved the mean of the inputs away from all others
        data = data.centred_on(~far.to(data.weight.device))
        fit, far = fit_once(data, groups, settings, constant_ends=True)
        if n_far := int(far.sum()):
            warn_caller(
                f"{n_far} of {len(far)} rows have scores far out from the rest, and the "
                "link is held constant there: look at these rows, or transform columns that "
                "have long tails"
            )
    link_of = partial(
        FittedLink.of,
        loss=settings.likelihood.loss,
        weight=data.weight.cpu(),
        constant_ends=constant_ends,
    )
    scores = fit.scores.cpu()
    if isinstance(fit, JointFit):
        links = [
            link_of(q, x=x, chance=False) for q, x in zip(_marginals(fit), scores, strict=True)
        ]
        history = {"log_evidence": [torch.tensor([value]) for value in fit.history]}
    else:
        links = [
            link_of(q, x=x, draws=draws, chance=settings.chance)
            for q, draws, x in zip(fit.posteriors, fit.draws, scores, strict=True)
        ]
        history = fit.history
    _warn(fit, data, settings)
    return FittedProblems(fit.beta, data.centre, links, history, not fit.unsettled)


def _fit_jointly(
    data: LinearScores, groups: Tensor | None, settings: Settings, constant_ends: bool
) -> tuple[JointFit, Bool[Tensor, " n"]]:
    """The fit of one model, and which rows have scores beyond the period, unless c is given."""
    fit = fit_joint_links(
        data,
        settings.priors.joint_family,
        tol=settings.tol,
        max_iter=settings.max_iter,
        groups=groups,
        held_out=settings.held_out,
    )
    if settings.priors.c is not None:
        return fit, torch.zeros(len(data.weight), dtype=torch.bool)
    return fit, (fit.scores.cpu().abs() > fit.prior.kernel.edge).any(dim=0)


def _fit_each(
    data: LinearScores, groups: Tensor | None, settings: Settings, constant_ends: bool
) -> tuple[LinkFit, Bool[Tensor, " n"]]:
    """The fit of each problem, and which rows have scores beyond a period; none if a is given."""
    weight, priors = data.weight.cpu(), settings.priors
    far = torch.zeros(len(weight), dtype=torch.bool)

    def prior_of(scores: Tensor) -> SourcePrior[TrigonometricKernel]:
        prior = priors.first(scores, weight)
        if priors.robust:
            far.logical_or_(scores.abs() > prior.kernel.edge)
        return prior

    model = LinkModel(
        settings.likelihood,
        prior_of,
        settings.noise,
        ordered=not settings.chance,
        family=priors.family if priors.chosen else None,
        constant_ends=constant_ends,
    )
    fit = fit_links(
        data,
        model,
        tol=settings.tol,
        max_iter=settings.max_iter,
        leave_one_out=LeaveOneOut(data, settings.seed, groups) if settings.held_out else None,
        progress=settings.progress,
    )
    return fit, far


def _warn(fit: LinkFit | JointFit, data: LinearScores, settings: Settings) -> None:
    """Warn of a fit that has not converged, and of classes that can be separated."""
    if fit.unsettled:
        # Rounds have no part in the fit with the fixed link.
        without = fit.unsettled in ((FIXED_LINK,), (SOFTMAX,))
        rounds = "" if without else f"raise max_iter={settings.max_iter}, "
        warn_caller(
            f"not converged: {'; '.join(fit.unsettled)}. To mend it: {rounds}scale the inputs, "
            "or lower C",
            ConvergenceWarning,
        )
    if data.ridge:
        return
    below = [
        torch.where(labels == 0, x, -math.inf).max() < torch.where(labels == 1, x, math.inf).min()
        for x, labels in zip(fit.scores, data.labels, strict=True)
    ]
    apart = torch.stack(below).tolist()
    if any(apart):
        warn_caller(
            f"{sum(apart)} of {len(apart)} problems can be separated without an error: their "
            f"likelihood is largest at infinite weights, and what tol={settings.tol} stopped at is "
            "no maximum. A finite C has one",
            ConvergenceWarning,
        )


def _marginals(fit: JointFit) -> list[Posterior]:
    """The posterior of each source of a joint model."""
    return [
        Posterior(
            prior=fit.prior,
            likelihood=Bernoulli(),
            mode=mode,
            root=torch.linalg.qr(rows.T, mode="r").R.T,  # of the marginal covariance
            log_evidence=fit.log_evidence,
            evidence_bound=math.nan,
            least_curvature=fit.least_curvature,
            converged=not fit.unsettled,
            n_iter=len(fit.history),
        )
        for mode, rows in zip(fit.mode, fit.root.split(fit.mode.shape[1]), strict=True)
    ]
