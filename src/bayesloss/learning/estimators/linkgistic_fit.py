r"""The fit of linkgistic regression: from checked data to problems, and from problems to links.

Two classes are one problem; more are one each, against the rest, with the same inputs. For held-out
scores equal rows are merged, so that they are held out together. EM fits each problem by itself
(:mod:`bayesloss.learning.links.em`), or all in one model (:mod:`bayesloss.learning.links.joint`).
If a few rows have scores beyond the kernel's period, the inputs are centred without them, and all
is fitted again, with links that are constant beyond the period.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int8
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor

from bayesloss.arrays import read_labels
from bayesloss.learning.data.checks import check_weights, group_numbers, times_class_weights
from bayesloss.learning.data.dask_inputs import DaskInputs, on_client
from bayesloss.learning.data.estimator_base import remember_columns
from bayesloss.learning.data.inputs import (
    DenseInputs,
    Inputs,
    SparseInputs,
    canonical,
    merge_duplicates,
)
from bayesloss.learning.data.rows import Rows, is_dask
from bayesloss.learning.inference.laplace import Posterior, even_normals
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.links.em import FIXED_LINK, LinkFit, fit_links
from bayesloss.learning.links.fitted_link import DRAWS, FittedLink
from bayesloss.learning.links.joint import SOFTMAX, fit_joint_links
from bayesloss.learning.links.link_model import LinkModel
from bayesloss.learning.links.link_priors import LinkPriors
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.learning.weights.leave_one_out import LeaveOneOut
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.warnings import warn_caller, warn_unconverged

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

    def narrowed(self) -> tuple["Problems", Callable[[Tensor], Tensor]]:
        """In as many columns as there are rows, and the way back for weights (any, d).

        Where dense columns outnumber rows a rotation changes no score, and the rest of the columns
        is zero after it.
        """
        n, d = self.inputs.shape
        if not (isinstance(self.inputs, DenseInputs) and d > n):
            return self, lambda beta: beta
        Q, R = torch.linalg.qr(self.inputs.Z.T)
        return replace(self, inputs=DenseInputs(R.T)), lambda beta: beta @ Q.T

    def some(self, chosen: Tensor) -> "Problems":
        """The same problems of some of the rows, by number or mask."""
        groups = None if self.groups is None else self.groups[chosen]
        return Problems(
            self.inputs.rows(chosen), self.labels[:, chosen], self.weight[chosen], groups
        )


@dataclass(frozen=True)
class Settings:
    """An estimator, with what its parameters stand for in a fit."""

    model: Any
    priors: LinkPriors
    likelihood: Bernoulli
    noise: Float[Tensor, "S any"]  # normal numbers that become draws
    seed: int = 0
    chance: bool = False  # whether the noise is random

    @classmethod
    def of(cls, model: Any) -> "Settings":
        """Those of an estimator, with random numbers drawn if it asks for them."""
        scales = model.a, model.c, model.variance, model.gamma
        priors = LinkPriors(model.prior, model.n_basis, *scales)
        likelihood, width = Bernoulli(model.loss), priors.n_parameters
        if model.n_samples is None:
            return cls(model, priors, likelihood, even_normals(DRAWS, width))
        seed = int(check_random_state(model.random_state).randint(2**31))
        generator, shape = torch.Generator().manual_seed(seed), (model.n_samples, width)
        noise = torch.randn(shape, dtype=torch.float64, generator=generator)
        return cls(model, priors, likelihood, noise, seed, chance=True)


def read_problems(
    model: Any, X: Any, y: Any, sample_weight: Any, groups: ArrayLike | None
) -> tuple[NDArray, Problems]:
    """The classes, and the checked data of an estimator as problems."""
    rows = _read_rows(model, X, y, sample_weight, groups)
    classes, codes = np.unique(rows.y, return_inverse=True)
    if len(classes) < 2:
        who = type(model).__name__
        raise ValueError(f"{who} needs at least two classes, got one class only: {classes[0]}")
    if model.class_weight is not None:
        rows.weight = times_class_weights(rows.weight, model.class_weight, rows.y)
    rows.y = codes
    if model.leave_one_out or model.link == "calibrated":
        # Copies of a row have to agree in class and group.
        keys = [codes] if rows.groups is None else [codes, rows.groups]
        kept, weight = merge_duplicates(rows.x.equal(), rows.weight, *keys)
        if len(kept) < len(codes) or weight.max() > 1:
            rows = rows.some(kept)
        rows.weight = weight
    positives = [1] if len(classes) == 2 else range(len(classes))
    labels = np.stack([rows.y == k for k in positives]).view(np.int8)
    tensors = [
        None if each is None else torch.from_numpy(each).to(rows.x.device)
        for each in (labels, rows.weight, rows.groups)
    ]
    return classes, Problems(rows.x, *tensors)


def _read_rows(model: Any, X: Any, y: Any, sample_weight: Any, groups: ArrayLike | None) -> Rows:
    """The rows that count, checked: inputs on the device; labels, weights and groups as arrays."""
    try:
        device = torch.empty(0, device=model.device).device
    except (AssertionError, RuntimeError) as error:  # what PyTorch raises, by kind of device
        raise ValueError(
            f"expected a device that this PyTorch can use, got device={model.device!r}: {error}"
        ) from error
    inputs: Inputs
    if is_dask(X):
        inputs = DaskInputs.of(X)
        if groups is not None:
            raise ValueError(
                "expected no groups where X is a Dask collection, got some: fit to a sample of "
                "whole groups that is in memory, or set leave_one_out=False and give none"
            )
        remember_columns(model, X)
        y = read_labels(on_client(y, inputs, "y"))
        if len(y) != len(inputs):
            raise ValueError(f"expected {len(inputs)} labels, one a row of X, got {len(y)}")
        sample_weight = on_client(sample_weight, inputs, "sample_weight")
    else:
        labels = read_labels(y)
        Z, y = validate_data(model, X, labels, dtype=np.float64, order="C", accept_sparse="csr")
        Z, y = canonical(Z), np.asarray(y)
        inputs = SparseInputs(Z) if issparse(Z) else DenseInputs(torch.from_numpy(Z).to(device))
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
    weight = check_weights(sample_weight, y)
    rows = Rows(inputs, y, weight)
    if not weight.all():
        rows = rows.some(weight > 0)
    rows.groups = group_numbers(groups, weight > 0)
    return rows


def fit_problems(
    problems: Problems, C: float, joint: bool, settings: Settings
) -> tuple[LinkFit, Float[Tensor, " d"], list[FittedLink]]:
    """Weights and links, fitted one by one or in one model: the fit, the centre and the links."""
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
    loss, weight, draws = settings.likelihood.loss, data.weight.cpu(), fit.draws
    how = {"chance": settings.chance and not joint, "constant_ends": constant_ends}
    parts = zip(fit.posteriors, draws or [None] * len(fit.beta), fit.scores.cpu(), strict=True)
    links = [FittedLink.of(q, loss, x, weight, draws=each, **how) for q, each, x in parts]
    _warn(fit, data, settings.model)
    return fit, data.centre, links


def _fit_jointly(
    data: LinearScores, groups: Tensor | None, settings: Settings, constant_ends: bool
) -> tuple[LinkFit, Bool[Tensor, " n"]]:
    """The fit of one model without draws, and which rows lie beyond a period, unless c is given."""
    model, priors = settings.model, settings.priors
    how = {"tol": model.tol, "max_iter": model.max_iter, "held_out": model.leave_one_out}
    fit = fit_joint_links(data, priors.joint_family, groups=groups, **how)
    facts = fit.log_evidence, math.nan, fit.least_curvature, not fit.unsettled, len(fit.history)
    posteriors = []
    for mode, rows in zip(fit.mode, fit.root.split(fit.mode.shape[1]), strict=True):
        root = torch.linalg.qr(rows.T, mode="r").R.T  # of the marginal covariance
        posteriors.append(Posterior(fit.prior, settings.likelihood, mode, root, *facts))
    history = {"log_evidence": list(fit.mode.new_tensor(fit.history)[:, None])}
    far = (fit.scores.cpu().abs() > fit.prior.kernel.edge).any(dim=0) & (priors.c is None)
    found = LinkFit(fit.beta, fit.scores, fit.scores, posteriors, [], fit.unsettled, history)
    return found, far


def _fit_each(
    data: LinearScores, groups: Tensor | None, settings: Settings, constant_ends: bool
) -> tuple[LinkFit, Bool[Tensor, " n"]]:
    """The fit of each problem, and the rows scored beyond a period, unless a or c is given."""
    model, priors, weight = settings.model, settings.priors, data.weight.cpu()
    far = torch.zeros(len(weight), dtype=torch.bool)

    def prior_of(scores: Tensor) -> SourcePrior[TrigonometricKernel]:
        prior = priors.first(scores, weight)
        if priors.robust:
            far.logical_or_(scores.abs() > prior.kernel.edge)
        return prior

    family = priors.family if priors.chosen else None
    links = LinkModel(
        settings.likelihood, prior_of, settings.noise, not settings.chance, family, constant_ends
    )
    out = LeaveOneOut(data, settings.seed, groups) if model.leave_one_out else None
    how = {"tol": model.tol, "max_iter": model.max_iter, "progress": bool(model.verbose)}
    return fit_links(data, links, leave_one_out=out, **how), far


def _warn(fit: LinkFit, data: LinearScores, model: Any) -> None:
    if fit.unsettled:
        # Rounds have no part in the fit with the fixed link.
        without = fit.unsettled in ((FIXED_LINK,), (SOFTMAX,))
        rounds = "" if without else f"raise max_iter={model.max_iter}, "
        warn_unconverged(
            f"not converged: {'; '.join(fit.unsettled)}. To mend it: {rounds}scale the inputs, "
            "or lower C"
        )
    if data.ridge:
        return
    zeros = torch.where(data.labels == 0, fit.scores, -math.inf).amax(dim=1)
    apart = (zeros < torch.where(data.labels == 1, fit.scores, math.inf).amin(dim=1)).tolist()
    if any(apart):
        warn_unconverged(
            f"{sum(apart)} of {len(apart)} problems can be separated without an error: their "
            f"likelihood is largest at infinite weights, and what tol={model.tol} stopped at is "
            "no maximum. A finite C has one"
        )
