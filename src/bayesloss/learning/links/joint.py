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
fold, go a few steps of L-BFGS towards the maximum of

    mean_n log p(y_n given t x_n, nu) - sum_k beta_k . beta_k / (2 C n),  x = beta (z - mean z),

with the sources at their mode. To go all the way would be in vain, as sources move meanwhile.
Weights begin as multinomial regressions, nu_k(x_k) = x_k + level. Through t the data have a say in
the penalty: of straight lines the next weights are a multinomial regression's with t^2 C in place
of C. Rounds end when Laplace's evidence of the held-out labels rises no more, and the best counts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from bayesloss.learning.data.range_map import robust_reach
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import Mode, find_mode
from bayesloss.learning.links.tables import HermiteTable, table_nodes
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.learning.weights.linear_scores import LinearScores, gram
from bayesloss.learning.weights.weight_search import (
    LogProbability,
    WeightFit,
    adapted_fit,
    maximise_weights,
)

__all__ = [
    "SOFTMAX",
    "FoldedFits",
    "JointFit",
    "SoftmaxJoint",
    "common_scale",
    "fit_joint_links",
    "fit_softmax",
    "folds_of",
]

SOFTMAX = "the multinomial regression"

_FOLDS = 5
_PATIENCE = 3  # rounds in turn without a rise: one may be worse, since sources see held-out scores
# Part of tol to which multinomial regressions are fitted: those without a fold begin at that of all
# data, and what is left undone on their way is held out no more.
_FINER = 0.1
_STEPS = 1000  # L-BFGS iterations of a multinomial regression,
_FEW_STEPS = 4  # and of weights between two fits of sources
_SPARE = 2**23  # numbers that fits without folds may take together whatever the inputs' size
_VECTORS = 20  # of weights, in the memory of a search
_BEHIND = 10.0  # nats by which a prior has no chance in later rounds
_NEAR = 1e-6  # nats that a mode may be short of: no evidence feels them
_ROWS = 2048  # data in a block of the Hessian, and of the softmax: a cache holds what it makes

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
        Rounds end when the evidence has not risen by tol nats a datum for some of them.
    max_iter : int, default=30
        How often weights move towards learned sources at most; with 0 they remain a multinomial
        regression's.
    groups : Tensor of int64 of shape (n,), optional
        Data of one number are held out together.
    held_out : bool, default=True
        Whether sources are fitted to held-out scores. Fitted to the training scores they would
        reward weights for overfitting, and there is one round.

    Returns
    -------
    JointFit
    """
    fold = None
    if held_out:
        fold = folds_of(data.labels.argmax(0).cpu(), groups).to(data.weight.device)
    fits = FoldedFits(data, fold, tol)
    unsettled, level = [] if fits.settled else [SOFTMAX], fits.level
    race = _Race()
    best: JointFit | None = None
    history: list[float] = []
    poor = 0
    while True:
        seen = fits.held_out()
        # Sources are constant where a few scores lie far out; lines would follow these alone.
        end = 2 * max(robust_reach(row, data.weight.cpu()) for row in seen.cpu())
        near = seen.clamp(-end, end)
        if not history:
            scale = common_scale(near + level[:, None], torch.zeros_like(level), data)
            level = scale * level  # in nats from here on, as those of the sources
        else:
            scale = common_scale(near, level, data)
        found = _fit_sources(
            data, scale * fits.beta, scale * fits.scores, scale * seen, level, family, race
        )
        history.append(found.log_evidence)
        rise = math.inf if best is None else found.log_evidence - best.log_evidence
        if best is None or rise > 0:
            best = found
        poor = poor + 1 if rise < tol * data.total else 0
        if not held_out or len(history) > max_iter or poor == _PATIENCE:
            break
        fits.move(_tabulated(found, scale))
    if held_out and max_iter and poor < _PATIENCE:
        unsettled.append("EM")
    return replace(best, history=tuple(history), unsettled=(*unsettled, *best.unsettled))


@dataclass(frozen=True)
class _Race:
    """Priors by their places in the family: the modes found last, and those that have lost."""

    modes: dict[int, Tensor] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)


def _fit_sources(
    data: LinearScores,
    beta: Tensor,
    scores: Tensor,
    seen: Tensor,
    level: Tensor,
    family: Callable[[float], Sequence[SourcePrior]],
    race: "_Race",
) -> JointFit:
    """The sources of held-out scores, with levels that are expected, on their common scale."""
    weight, labels, seen = data.weight.cpu(), data.labels.cpu(), seen.cpu()
    priors = family(max(robust_reach(row, weight) for row in torch.cat([seen, scores.cpu()])))
    edge = priors[0].kernel.edge
    features = [priors[0].features(row.clamp(-edge, edge)) for row in seen]
    found: dict[int, tuple[float, SoftmaxJoint, Mode]] = {}
    Gamma = None
    for i in reversed(range(len(priors))):
        if i in race.lost:
            continue
        joint = SoftmaxJoint.of(priors[i], level.cpu(), features, labels, weight)
        start = joint.prior.location if Gamma is None else Gamma
        start = race.modes.get(i, start)
        mode = find_mode(joint, start, exact=_NEAR)
        if mode.least_curvature > 0:
            Gamma = race.modes[i] = mode.Gamma
            found[i] = float(joint.log_evidence(Gamma, mode.curvature)), joint, mode
    if not found:
        raise ValueError(f"expected a mode under one of {len(priors)} priors, got none")
    first = max(found, key=lambda i: found[i][0])
    race.lost.update(i for i in found if found[i][0] < found[first][0] - _BEHIND)
    evidence, joint, mode = found[first]
    root = joint.root(mode.Gamma, mode.curvature)
    return JointFit(
        beta=beta,
        scores=scores,
        prior=joint.each,
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
    data: LinearScores, tol: float, start: WeightFit | None = None
) -> tuple[WeightFit, LinearScores]:
    """A multinomial logistic regression, and the data in the coordinates that served it best.

    Parameters
    ----------
    data : LinearScores
    tol : float
    start : WeightFit, optional
        Where the search begins.
    """
    return adapted_fit(
        data.joined(),
        lambda data: _softmax(data.labels),
        lambda scores: _curvatures(scores, torch.ones_like(scores)),
        tol=tol,
        max_iter=_STEPS,
        start=start,
    )


def _curvatures(nu: Tensor, steps: Tensor) -> Tensor:
    """Of minus the log probability, in the score of each class and in what they have in common.

    But for what the sources' bends add, it is S (diag p - p p^T) S with S = diag(steps), of which
    this is the diagonal, and the value along (1, ..., 1) / sqrt(K): that of p is the variance of
    the steps under p, and vanishes with one step for all.
    """
    p = torch.softmax(nu, dim=0)
    common = (p * (steps - (p * steps).sum(0)).square()).sum(0, keepdim=True) / len(p)
    return torch.cat([p * (1 - p) * steps.square(), common])


def _softmax(
    labels: Tensor, sources: Sources | None = None, counted: Tensor | None = None
) -> LogProbability:
    """The log probability of the labels (K, n), for scores of one or several fits.

    Parameters
    ----------
    labels : Tensor of int64 of shape (K, n)
    sources : callable, optional
    counted : Tensor of shape (P, n), optional
        How many times what is said of a datum counts in each fit.
    """

    def log_probability(scores: Tensor) -> tuple[Tensor, Tensor]:
        values, slopes = torch.empty_like(scores), torch.empty_like(scores)
        width = _ROWS if scores.device.type == "cpu" else labels.shape[1]
        fits = (each.split(len(labels)) for each in (scores, values, slopes))
        for i, each in enumerate(zip(*fits, strict=True)):
            numbers = torch.ones_like(each[0][:1]) if counted is None else counted[i : i + 1]
            rows = (tensor.split(width, dim=1) for tensor in (labels, numbers, *each))
            for y, number, x, value, slope in zip(*rows, strict=True):
                nu, steps = (x, 1.0) if sources is None else sources(x)
                log_p = nu - nu.logsumexp(0)
                torch.sub(y, log_p.exp(), out=slope).mul_(number).mul_(steps)
                torch.mul(log_p, y, out=value).mul_(number)
        return values, slopes

    return log_probability


class FoldedFits:
    """Weights for all data, and without each fold, round after round.

    Passes over the inputs are common to the fits without folds, which go on together. They begin
    as far from where they were as the fit to all went.

    Parameters
    ----------
    data : LinearScores
    fold : Tensor of int64 of shape (n,), or None
        Without folds there is the fit to all alone.
    tol : float
        Of what comes of the scores; multinomial regressions are fitted to a tenth of it.

    Attributes
    ----------
    level : Tensor of shape (K,)
        Offsets of the multinomial regression of all data, which no scores here contain.
    settled : bool
        Whether the multinomial regressions did.
    """

    def __init__(self, data: LinearScores, fold: Tensor | None, tol: float) -> None:
        self._plain, self._fold, self._tol = data.joined(), fold, _FINER * tol
        folds = range(0 if fold is None else int(fold.max()) + 1)
        self._parts = [torch.where(fold == each, 0.0, data.weight) for each in folds]
        self._parts.insert(0, data.weight)
        K, (n, d) = len(data.labels), data.inputs.shape
        at_once = max(1, max(_SPARE, data.inputs.stored // 8) // (K * (n + _VECTORS * d)))
        self._batches = torch.arange(1, len(self._parts)).split(at_once) if folds else ()
        first, self._data = fit_softmax(data, self._tol)
        every = len(self._parts)
        self._beta, self._offset = first.beta.repeat(every, 1, 1), first.offset.repeat(every, 1)
        self._scores = first.scores.repeat(every, 1, 1)
        without = [self._fit(some).settled(self._tol) for some in self._batches]
        self.settled = first.settled(self._tol) and all(without)
        # The offsets of the fit to all are the levels of the sources; the rest is part of scores.
        self.level = first.offset
        self._offset -= self.level
        self._scores -= self.level[:, None]
        self._rounds = 0

    @property
    def beta(self) -> Tensor:
        """The weights for all data, (K, d)."""
        return self._beta[0]

    @property
    def scores(self) -> Tensor:
        """The scores with these, (K, n)."""
        return self._scores[0]

    def held_out(self) -> Tensor:
        """The scores without the fold of each datum, (K, n)."""
        if self._fold is None:
            return self.scores
        return self._scores.gather(0, (1 + self._fold).expand_as(self._scores[:1]))[0]

    def move(self, sources: Sources) -> None:
        """Go a few steps towards the weights that sources ask for, and without each fold so far."""
        self._rounds += 1
        if self._plain.adaptable and self._rounds & (self._rounds - 1) == 0:
            # in rounds 1, 2, 4, ...: what sources say of curvatures changes less and less
            self._data = self._plain  # before, not beside, there are other coordinates
            self._data = self._plain.adapted(_curvatures(*sources(self.scores)))
        state = self._beta, self._offset, self._scores
        before = [each[0].clone() for each in state]
        self._fit(torch.tensor([0]), sources)
        for each, former in zip(state, before, strict=True):
            each[1:] += each[0] - former
        for some in self._batches:
            self._fit(some, sources)

    def _fit(self, some: Tensor, sources: Sources | None = None) -> WeightFit:
        """Fits by their numbers, with common passes over the inputs, few to learned sources."""
        data, parts = self._data, torch.stack([self._parts[i] for i in some])
        less = data.total / parts.sum(1)
        fit = maximise_weights(
            data,
            _softmax(data.labels, sources, parts / data.weight * less[:, None]),
            self._beta[some].flatten(0, 1),
            self._offset[some].flatten(),
            free_offset=sources is None,
            tol=self._tol,
            max_iter=_FEW_STEPS if sources else _STEPS,
            scores=self._scores[some].flatten(0, 1),
            # The penalty counts on a mean over fewer data.
            strength=less.repeat_interleave(len(data.labels)),
        )
        shape = (len(some), -1)
        self._beta[some] = fit.beta.unflatten(0, shape)
        self._offset[some] = fit.offset.unflatten(0, shape)
        self._scores[some] = fit.scores.unflatten(0, shape)
        return fit


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
        jacobians = [self.each.jacobian(G) for G in parts]
        pulls = [Phi.T @ r for Phi, r in zip(self.features, residual, strict=True)]
        bends = [self.each.curvature(pull) for pull in pulls]
        H = torch.diag(self.prior.precision) - torch.block_diag(*bends)
        for begin in range(0, len(self.weight), _ROWS):
            rows = slice(begin, begin + _ROWS)
            slopes, own = [], []
            for Phi, J, chance in zip(self.features, jacobians, p[:, rows], strict=True):
                root = (self.weight[rows] * chance).sqrt()
                own.append(root[:, None] * (Phi[rows] @ J))
                slopes.append(chance.sqrt()[:, None] * own[-1])
            H += torch.block_diag(*map(gram, own)) - gram(torch.cat(slopes, dim=1))
        pull = torch.cat([J.T @ s for J, s in zip(jacobians, pulls, strict=True)])
        return pull - self.prior.precision * (Gamma - self.prior.location), H
