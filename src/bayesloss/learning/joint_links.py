r"""Many classes in one model, each with a monotone learned source.

    p(k | z) = exp nu_k(x_k) / sum_j exp nu_j(x_j),   x_k = beta_k . (z - mean z),

which is multinomial logistic regression if every nu_k is a straight line of slope 1, W&N's model
(12) for two classes if one of two sources is constant, and temperature scaling if all nu_k are
lines of one other slope. The sources have independent priors, centred on nu(x) = x. Given scores,
the log joint density of all parameters Gamma = (Gamma_1, ..., Gamma_K) has, with r_nk = w_n
(y_nk - p_nk) and J_k the derivatives of nu_k(x_nk) in Gamma_k, of shape (n, D), nu_k'' the second,

    gradient_k = J_k^T r_k - precision (Gamma_k - location),
    H_kl = J_k^T diag(w p_k (delta_kl - p_l)) J_l + delta_kl (precision - r_k . nu_k''),

and Newton's method and Laplace's approximation go as for one source. The sources of a class depend
on each other a posteriori only through the common denominator.

Sources and weights take turns, as in W&N's EM. A round begins with the sources. They are fitted to
scores that the weights have not seen: weights fitted to all folds but one score the data of that
one. All scores are first brought to the scale t at which the held-out labels are most probable, so
that a straight line of slope 1 is temperature scaling, and the sources have to say only where
classes differ from it, and where they bend. Then the weights of all data, and those without each
fold, maximise

    mean_n log p(y_n given t x_n, nu) - sum_k beta_k . beta_k / (2 C n),  x = beta (z - mean z),

with the sources at their mode. They begin as multinomial regressions, nu_k(x_k) = x_k + level.
Through t the data have a say in the penalty: of straight lines the next weights are a multinomial
regression's with t^2 C in place of C. Rounds end when Laplace's evidence of the held-out labels
rises no more, and the best counts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor

from bayesloss.learning.isgp import SourcePrior
from bayesloss.learning.laplace import LogJoint, Mode, find_mode
from bayesloss.learning.linear_scores import LinearScores
from bayesloss.learning.link_tables import HermiteTable, table_nodes
from bayesloss.learning.range_map import robust_reach
from bayesloss.learning.trigonometric_kernel import TrigonometricKernel

__all__ = [
    "SOFTMAX",
    "JointFit",
    "SoftmaxJoint",
    "common_scale",
    "fit_joint_links",
    "fit_softmax",
    "folds_of",
]

SOFTMAX = "the multinomial regression"

_FOLDS = 5
_PATIENCE = 5  # rounds in turn without a rise: one may be worse, since sources see held-out scores
_STEPS = 1000  # L-BFGS iterations of a fit of weights

# Takes scores of shape (K, n) to the sources there, and to their slopes.
Sources = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class JointFit:
    """What was found for K classes.

    Attributes
    ----------
    beta : Tensor of shape (K, d)
    scores : Tensor of shape (K, n)
        Of the training data.
    prior : SourcePrior
        Of each source.
    mode : Tensor of shape (K, D)
    root : Tensor of shape (K * D, K * D)
        A square root of the posterior covariance of all parameters, one class after the other.
    log_evidence : float
        Laplace's, given the held-out scores, in nats.
    least_curvature : float
        The smallest eigenvalue of the Hessian in units of the prior precision.
    history : tuple of float
        The evidence of each round.
    unsettled : tuple of str
        What did not converge.
    """

    beta: Tensor
    scores: Tensor
    prior: SourcePrior[TrigonometricKernel]
    mode: Tensor
    root: Tensor = field(repr=False)
    log_evidence: float
    least_curvature: float
    history: tuple[float, ...]
    unsettled: tuple[str, ...]


def fit_joint_links(
    data: LinearScores,
    family: Callable[[float], Sequence[SourcePrior]],
    *,
    tol: float,
    max_iter: int = 30,
    groups: Tensor | None = None,
    held_out: bool = True,
) -> JointFit:
    """Fit weights, and all sources together to held-out scores, in turns.

    Parameters
    ----------
    data : LinearScores
        Each datum has label 1 for one class.
    family : callable
        Takes the largest score in absolute value, but for a few far out, to the priors among which
        Laplace's evidence chooses, stiffest last; all with the same features.
    tol : float
        A fit of weights ends when no derivative of its objective exceeds tol, and rounds when the
        evidence has not risen by tol nats a datum for some rounds.
    max_iter : int
        How often weights are fitted to learned sources at most; with 0 they remain a multinomial
        regression's.
    groups : Tensor of int64 of shape (n,), optional
        Data of one number are held out together.
    held_out : bool
        Whether sources are fitted to held-out scores. Fitted to the training scores they would
        reward weights for overfitting, and there is one round.

    Returns
    -------
    JointFit
    """
    parts, fold = [data.weight], None
    if held_out:
        fold = folds_of(data.labels.argmax(0).cpu(), groups).to(data.weight.device)
        numbers = range(int(fold.max()) + 1)
        parts += [torch.where(fold == each, 0.0, data.weight) for each in numbers]
    beta, level, settled = fit_softmax(data, data.weight, tol)
    fits = [(beta, level, settled)]
    fits += [fit_softmax(data, part, tol, beta, level) for part in parts[1:]]
    # The offsets of the fit to all are the levels of the sources; what is left is part of scores.
    fits = [(beta, offset - level, settled) for beta, offset, settled in fits]
    unsettled: set[str] = set() if all(fit[2] for fit in fits) else {SOFTMAX}
    best: JointFit | None = None
    history: list[float] = []
    poor = 0
    while True:
        scores = data.scores(*fits[0][:2])
        seen = scores.clone()
        for each, fit in enumerate(fits[1:]):
            seen[:, fold == each] = data.scores(*fit[:2])[:, fold == each]
        # Sources are constant where a few scores lie far out; lines would follow these alone.
        end = 2 * max(robust_reach(row, data.weight.cpu()) for row in seen.cpu())
        near = seen.clamp(-end, end)
        if not history:
            scale = common_scale(near + level[:, None], torch.zeros_like(level), data)
            level = scale * level  # in nats from here on, as those of the sources
        else:
            scale = common_scale(near, level, data)
        found = _fit_sources(data, scale * fits[0][0], scale * scores, scale * seen, level, family)
        history.append(found.log_evidence)
        rise = math.inf if best is None else found.log_evidence - best.log_evidence
        if best is None or rise > 0:
            best = found
        poor = poor + 1 if rise < tol * data.total else 0
        if not held_out or len(history) > max_iter or poor == _PATIENCE:
            break
        sources = _tabulated(found, scale)
        fits = [
            fit_softmax(data, part, tol, *fit[:2], sources)
            for part, fit in zip(parts, fits, strict=True)
        ]
        if not all(fit[2] for fit in fits):
            unsettled.add("the weights")
    if held_out and max_iter and poor < _PATIENCE:
        unsettled.add("EM")
    return replace(best, history=tuple(history), unsettled=(*sorted(unsettled), *best.unsettled))


def _fit_sources(
    data: LinearScores,
    beta: Tensor,
    scores: Tensor,
    seen: Tensor,
    level: Tensor,
    family: Callable[[float], Sequence[SourcePrior]],
) -> JointFit:
    """The sources of held-out scores, with levels that are expected, on their common scale."""
    weight, labels, seen = data.weight.cpu(), data.labels.cpu(), seen.cpu()
    priors = family(max(robust_reach(row, weight) for row in torch.cat([seen, scores.cpu()])))
    edge = priors[0].kernel.edge
    features = [priors[0].features(row.clamp(-edge, edge)) for row in seen]
    best: tuple[float, SourcePrior, Mode, Tensor] | None = None
    Gamma = None
    for prior in reversed(priors):
        joint = SoftmaxJoint.of(prior, level.cpu(), features, labels, weight)
        mode = find_mode(joint, joint.prior.location if Gamma is None else Gamma)
        if mode.least_curvature <= 0:
            continue
        Gamma = mode.Gamma
        evidence = float(joint.log_evidence(Gamma, mode.curvature))
        if best is None or evidence > best[0]:
            best = evidence, prior, mode, joint.root(Gamma, mode.curvature)
    if best is None:
        raise ValueError(f"expected a mode under one of {len(priors)} priors, got none")
    evidence, prior, mode, root = best
    return JointFit(
        beta=beta,
        scores=scores,
        prior=prior,
        mode=mode.Gamma.reshape(len(level), -1),
        root=root,
        log_evidence=evidence,
        least_curvature=mode.least_curvature,
        history=(),
        unsettled=() if mode.converged else ("the search for the sources",),
    )


def _tabulated(fit: JointFit, scale: float) -> Sources:
    """The sources at their mode, as functions of scores before they are brought to the scale."""
    nodes = table_nodes(fit.prior)
    # eq. (13)
    table = HermiteTable(
        nodes, fit.prior.source(nodes, fit.mode), fit.prior.derivative(nodes, fit.mode)
    )
    table = table.held(fit.prior.kernel.edge).to(fit.scores.device)
    row = torch.arange(len(fit.mode), device=fit.scores.device)[:, None]

    def sources(scores: Tensor) -> tuple[Tensor, Tensor]:
        values, slopes = table(scale * scores, row)
        return values, scale * slopes

    return sources


def fit_softmax(
    data: LinearScores,
    weight: Tensor,
    tol: float,
    beta: Tensor | None = None,
    offset: Tensor | None = None,
    sources: Sources | None = None,
) -> tuple[Tensor, Tensor, bool]:
    """Weights (K, d) and offsets (K,) of a multinomial logistic regression, and if it settled.

    With sources, the weights that are best for those; the offsets stay, since sources have levels.

    Parameters
    ----------
    data : LinearScores
        With coordinates in which a few steps suffice, and the strength of the penalty.
    weight : Tensor of shape (n,)
        How many times each datum counts here; zero for those that are left out.
    tol : float
    beta : Tensor of shape (K, d), optional
    offset : Tensor of shape (K,), optional
        Where the search begins.
    sources : callable, optional
    """
    K, d = len(data.labels), len(data.centre)
    begin = data.centre.new_zeros((K, d)) if beta is None else beta
    level = data.centre.new_zeros(K) if offset is None else offset
    y, total = data.labels.to(weight.dtype), float(weight.sum())
    ridge = data.ridge * data.total / total
    steep = math.inf

    def negative(vector: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal steep
        moved = torch.from_numpy(vector.copy()).to(y.device).reshape(K, d + 1)
        at = begin + data.weights(moved[:, :-1])
        shift = level + data.level.rsqrt() * moved[:, -1]
        nu, steps = data.scores(at, shift), None
        if sources is not None:
            nu, steps = sources(nu)
        log_p = nu - nu.logsumexp(0)
        slopes = (y - log_p.exp()) * (weight / total)
        rise = slopes.sum(1) if steps is None else torch.zeros_like(level)
        gradient = data.pull_back(slopes if steps is None else slopes * steps) - ridge * at
        steep = max(float(gradient.abs().max()), float(rise.abs().max()))
        value = float(((y * log_p).sum(0) * weight).sum() / total)
        value -= 0.5 * ridge * float((at**2).sum())
        along = torch.cat([data.slopes(gradient), (data.level.rsqrt() * rise)[:, None]], dim=1)
        return -value, -along.flatten().cpu().numpy()

    def stop(_: np.ndarray) -> None:
        if steep <= tol:
            raise StopIteration

    vector = np.zeros(K * (d + 1))
    negative(vector)
    if steep > tol:
        options = {"maxiter": _STEPS, "ftol": 0.0, "gtol": 0.0, "maxls": 30, "maxcor": 20}
        vector = minimize(
            negative, vector, jac=True, method="L-BFGS-B", callback=stop, options=options
        ).x
        negative(vector)
    moved = torch.from_numpy(vector).to(y.device).reshape(K, d + 1)
    shift = level + data.level.rsqrt() * moved[:, -1]
    return begin + data.weights(moved[:, :-1]), shift, steep <= tol


def folds_of(classes: Tensor, groups: Tensor | None = None) -> Tensor:
    """Numbers of the folds, of shape (n,), without chance: each fold has its share of all classes.

    Groups stay whole; the larger ones are dealt out first, each to the fold with the fewest data.
    """
    if groups is None:
        fold = torch.empty_like(classes)
        order = classes.argsort(stable=True)
        fold[order] = torch.arange(len(classes)) % _FOLDS
        return fold
    groups = groups.cpu()
    sizes = torch.bincount(groups)
    filled, of_group = [0] * min(_FOLDS, len(sizes)), torch.zeros_like(sizes)
    for g in sizes.argsort(descending=True, stable=True).tolist():
        least = filled.index(min(filled))
        of_group[g] = least
        filled[least] += int(sizes[g])
    return of_group[groups]


def common_scale(scores: Tensor, level: Tensor, data: LinearScores) -> float:
    """The factor of all scores, of shape (K, n), that makes the labels most probable.

    Temperature scaling, beside levels that stay, with log factor ~ N(0, 1) beforehand: labels that
    are all told apart would ask for an infinite one.
    """
    y = data.labels.to(data.weight.dtype)

    def negative(log_factor: float) -> float:
        log_p = torch.log_softmax(math.exp(log_factor) * scores + level[:, None], dim=0)
        return 0.5 * log_factor**2 - float(((y * log_p).sum(0) * data.weight).sum())

    return math.exp(minimize_scalar(negative, bounds=(-5.0, 5.0), method="bounded").x)


@dataclass(frozen=True)
class _Product:
    """What a search for a mode asks of a prior, for the parameters of K sources."""

    location: Tensor
    precision: Tensor
    n_twins: int = 1


@dataclass(frozen=True)
class SoftmaxJoint(LogJoint):
    """The log joint density of labels and the parameters of K sources.

    ``prior`` has location and precision of all, of shape (K * D,); ``each`` is that of one source.
    """

    prior: _Product  # type: ignore[assignment]
    likelihood: None  # type: ignore[assignment]
    data: None  # type: ignore[assignment]
    each: SourcePrior
    features: tuple[Tensor, ...]
    labels: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls,
        prior: SourcePrior,
        intercepts: Tensor,
        features: Sequence[Tensor],
        labels: Tensor,
        weight: Tensor,
    ) -> "SoftmaxJoint":
        """From the prior of a source, the means of nu_0, the features of scores, and the labels."""
        K = len(labels)
        location = prior.location.repeat(K, 1)
        location[:, -1] = intercepts
        together = _Product(location.flatten(), prior.precision.repeat(K))
        return cls(together, None, None, prior, tuple(features), labels.to(weight.dtype), weight)

    def _log_p(self, Gamma: Tensor) -> Tensor:
        parts = Gamma.reshape(len(self.features), -1)
        nu = torch.stack(
            [Phi @ self.each.coefficients(G) for Phi, G in zip(self.features, parts, strict=True)]
        )
        return nu - nu.logsumexp(0)

    def log_likelihood(self, Gamma: Tensor) -> Tensor:
        """The log probability of all labels, as a scalar."""
        return ((self.labels * self._log_p(Gamma)).sum(0) * self.weight).sum()

    def derivatives(self, Gamma: Tensor) -> tuple[Tensor, Tensor]:
        """The derivative in Gamma, of shape (K * D,), and minus the second, (K * D, K * D)."""
        p = self._log_p(Gamma).exp()
        residual = self.weight * (self.labels - p)
        parts = Gamma.reshape(len(self.features), -1)
        slopes = [Phi @ self.each.jacobian(G) for Phi, G in zip(self.features, parts, strict=True)]
        D, H = parts.shape[1], torch.diag(self.prior.precision)
        for k, J in enumerate(slopes):
            rows = slice(k * D, (k + 1) * D)
            bend = self.each.curvature(self.features[k].T @ residual[k])
            H[rows, rows] += J.T @ ((self.weight * p[k] * (1 - p[k]))[:, None] * J) - bend
            for j in range(k):
                block = -J.T @ ((self.weight * p[k] * p[j])[:, None] * slopes[j])
                columns = slice(j * D, (j + 1) * D)
                H[rows, columns] += block
                H[columns, rows] += block.T
        pulls = torch.cat([J.T @ r for J, r in zip(slopes, residual, strict=True)])
        return pulls - self.prior.precision * (Gamma - self.prior.location), H
