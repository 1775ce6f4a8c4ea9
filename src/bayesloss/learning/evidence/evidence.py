"""Choose the hyper-parameters by the evidence (W&N section 4.1 and appendix D).

The mode moves with the hyper-parameters Theta, so the gradient of an approximation A(Theta, Gamma)
of the log evidence, taken at the mode, has two parts:

    dA/dTheta = partial_Theta A + (dGamma/dTheta)^T partial_Gamma A,
    dGamma/dTheta = H^-1 d^2 log p(D, Gamma) / dGamma dTheta^T.

The second line follows from grad_Gamma log p(D, Gamma) = 0; appendix D prints it with a minus sign.
Derivatives are automatic (Skaug and Fournier 2006), at O(M^4) an evaluation on condensed data.

Laplace's approximation, the paper's, is unbounded: det H goes to zero where a mode merges with its
twin at -w, or with a saddle point. The evidence lower bound of the *same* Gaussian, the default
objective, never exceeds the truth, equals Laplace's where the posterior is Gaussian, and favours
hyper-parameters at which the Gaussian can be trusted. Whoever has a Gaussian of a higher bound
passes the function that finds it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Literal, NamedTuple, TypeVar, cast, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.inference.laplace import Posterior, approximate
from bayesloss.learning.inference.likelihoods import Likelihood, Observations
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import Mode, find_mode
from bayesloss.learning.sources.priors import SourcePrior, trigonometric
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.optimise import minimise
from bayesloss.tensors import as_number
from bayesloss.threads import one_thread
from bayesloss.warnings import warn_unconverged

Objective = Literal["bound", "laplace"]
# From a mode to the Gaussian of the highest bound on the evidence, and what went wrong, or "".
Nearest = Callable[[LogJoint, Mode], tuple[Posterior, str]]
L = TypeVar("L", bound=Likelihood)
Trigonometric = SourcePrior[TrigonometricKernel]

# Values of a in equal steps of log log a: log(a) / (pi c) is the scale on which nu varies. They are
# compared as they stand, so that the last may lie beyond the range of a search, below.
SMOOTHNESS = (1.1, 1.16, 1.28, 1.48, 1.87, 2.7, 4.8, 12.0, 50.0)

_POSITIVE = (1e-10, 1e10)  # far beyond what data in any sensible units ask for
_RANGES = {
    "a": (1.01, 31.0),  # from harmonics nearly alike to 3 % of the first's variance for the rest
    "b": _POSITIVE,
    "gamma": _POSITIVE,
    "mu": (-math.inf, math.inf),
}
# Nats by which the objective may still rise when a hyper-parameter grows e-fold; for a likelihood's
# own, whose logarithm n data determine to (2 / n)^1/2, when it moves by that.
_FLAT = 1e-2
_RESOLVED = 1e-6  # part of the evidence that its slope cannot tell from rounding errors


@dataclass(frozen=True)
class EvidenceMaximum(Generic[L]):
    """The result of :func:`maximise_evidence`.

    Attributes
    ----------
    posterior, likelihood : Posterior, Likelihood
        At the best hyper-parameters.
    converged, at_bound : bool, tuple of str
        Whether the best search met its tolerance and ended at a proper mode, and the
        hyper-parameters that ended at the edge of their range.
    values, n_evaluations : list of float, int
        The objective in nats that each search reached, -inf where it failed, and its evaluations
        over all searches.
    """

    posterior: Posterior
    likelihood: L
    converged: bool
    values: list[float]
    n_evaluations: int
    at_bound: tuple[str, ...]


def _transformed(values: Sequence[float]) -> Float[Tensor, " p"]:
    """Theta: log(a - 1), log k(0, 0) (b by (15)), log gamma, mu, the likelihood's own logs."""
    a, variance, gamma, mu, *of_likelihood = values
    theta = [math.log(a - 1), math.log(variance), math.log(gamma), mu]
    theta += [math.log(value) for value in of_likelihood]
    return torch.tensor(theta, dtype=torch.float64)


def theta_of(joint: LogJoint) -> Float[Tensor, " p"]:
    """The hyper-parameters of prior and likelihood, on the scales of the search."""
    prior = joint.prior
    likelihood = joint.likelihood
    values = [prior.kernel.a, prior.kernel.variance, prior.gamma, prior.mu]
    values += [getattr(likelihood, name) for name in likelihood.hyper_parameters]
    return _transformed([as_number(value) for value in values])


def joint_at(joint: LogJoint, theta: Float[Tensor, " p"]) -> LogJoint:
    """The same joint density at other hyper-parameters; c and M stay."""
    kernel = joint.prior.kernel.scaled(theta[1].exp(), a=1 + theta[0].exp())
    prior = joint.prior.moved(kernel, mu=theta[3], gamma=theta[2].exp())
    of_likelihood = theta[len(_RANGES) :].exp()
    values = zip(joint.likelihood.hyper_parameters, of_likelihood, strict=True)
    likelihood = joint.likelihood.replace(**dict(values))
    return LogJoint(prior, likelihood, joint.data)


def at_smoothness(prior: Trigonometric, a: float) -> Trigonometric:
    """The same prior, and k(0, 0), at another a."""
    kernel = trigonometric(prior, "whose smoothness a the evidence chooses")
    return prior.moved(kernel.scaled(kernel.variance, a=a), mu=prior.mu, gamma=prior.gamma)


class EvidenceGradient(NamedTuple):
    """The objective at one Theta."""

    value: float  # in nats; -inf without a mode
    gradient: Float[Tensor, " p"]  # the total derivative; 0 without a mode
    mode: Mode


def evidence_gradient(
    theta: Tensor,
    joint_of: Callable[[Tensor], LogJoint],
    start: Tensor,
    objective: Objective | Nearest,
) -> EvidenceGradient:
    """The objective and its total derivative, at the mode that a search from ``start`` finds."""
    theta = theta.detach().requires_grad_()
    joint = joint_of(theta)
    with torch.no_grad():
        mode = find_mode(joint, start)
    if not mode.converged:
        return EvidenceGradient(-math.inf, torch.zeros_like(theta), mode)
    if callable(objective):
        q, _ = objective(joint, mode)
        # q makes the bound stationary: the partial derivative is the whole one.
        with torch.no_grad():
            mean, variance = joint.moments(q.mode, q.root, joint.slopes(q.mode))
        fit = joint.expected_log_likelihood(mean, variance)  # that of labels has no slope in theta
        (slope,) = torch.autograd.grad(fit - joint.divergence(q.mode, q.root), theta)
        return EvidenceGradient(q.log_evidence, slope, mode)
    Gamma = mode.Gamma.detach().requires_grad_()
    value = joint.log_evidence(Gamma) if objective == "laplace" else joint.evidence_bound(Gamma)
    partial_theta, partial_Gamma = torch.autograd.grad(value, (theta, Gamma), retain_graph=True)
    # (dGamma/dtheta)^T v = d/dtheta [grad_Gamma log p(D, Gamma) . H^-1 v], with H^-1 v fixed.
    root = joint.root(mode.curvature).detach()
    direction = root @ (root.T @ partial_Gamma)  # H^-1, eq. (11)
    (score,) = torch.autograd.grad(joint(Gamma), Gamma, create_graph=True)
    (drift,) = torch.autograd.grad(score @ direction, theta)
    total = partial_theta + drift  # appendix D
    return EvidenceGradient(float(value.detach()), total, mode)


@one_thread()
@torch.inference_mode(False)  # the search differentiates, wherever it is called
@torch.enable_grad()
def maximise_evidence(
    prior: SourcePrior[TrigonometricKernel],
    likelihood: L,
    x: Tensor,
    y: Tensor | Observations,
    *,
    sample_weight: Tensor | None = None,
    smoothness: Sequence[float] = (8.0, 2.0),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    objective: Objective | Nearest = "bound",
    max_iter: int = 200,
) -> EvidenceMaximum[L]:
    """Maximise the approximate evidence over a, b, gamma, mu and the likelihood's hyper-parameters.

    A Gaussian likelihood has alpha, labels have none; c and M stay fixed. A search that does not
    meet its tolerance ends with a ConvergenceWarning.

    Parameters
    ----------
    prior, likelihood : SourcePrior, Likelihood
        Where the searches begin, but for a.
    x, y, sample_weight
        As for :func:`~bayesloss.learning.inference.laplace.laplace`; or y is
        ``likelihood.condense``'s result with this prior's features, and only the range of x counts.
    smoothness : sequence of float, default=(8, 2)
        The values of a at which searches start. Smooth priors have few modes: begin there.
    bounds : mapping of str to (float, float), optional
        Ranges for any of "a", "b", "gamma", "mu" and, say, "alpha". That of "b" is one for the
        variance k(0, 0), which is searched in its place.
    objective : {"bound", "laplace"} or callable, default="bound"
        The lower bound of Laplace's Gaussian, Laplace's evidence, which is the paper's with the
        constants that its print lacks (book/reference/errata, *constants*), or a function
        that finds the Gaussian of the highest bound from a mode, such as
        :func:`~bayesloss.learning.evidence.variational.nearest`.
    max_iter : int, default=200
        The most quasi-Newton iterations of each search.

    Raises
    ------
    TypeError
        If the basis is no TrigonometricKernel, which alone has an a to choose.
    ValueError
        If the data are not finite, a bound or the objective is unknown, or no search found a mode.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import ISGP, Gaussian, TrigonometricKernel, maximise_evidence
    >>> x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    >>> prior = ISGP(TrigonometricKernel(a=1.2, c=0.25, n_basis=16))
    >>> best = maximise_evidence(prior, Gaussian(), x, x**3 + 0.1 * torch.sin(50 * x))
    >>> round(float(best.likelihood.alpha) ** -0.5, 1)  # the noise's standard deviation
    0.1
    """
    _check_objective(objective)
    if not smoothness:
        raise ValueError(f"expected at least one value in smoothness, got {smoothness!r}")
    ranges = _ranges(bounds or {}, likelihood)
    lowest = _transformed([low for low, _ in ranges.values()])
    highest = _transformed([high for _, high in ranges.values()])
    if isinstance(y, Tensor):
        y = LogJoint.of(prior, likelihood, x, y, sample_weight).data
    else:  # gradients may not use what was made in inference mode, but copies of it
        y = Observations(y.features.clone(), y.targets.clone(), y.weights.clone())
    zeros = torch.zeros_like(y.targets)
    if objective == "bound" and likelihood.expected_log_density(zeros, zeros, y) is None:
        raise ValueError(f'expected objective="laplace": no bound is known for {likelihood!r}')
    begins = [LogJoint(at_smoothness(prior, a), likelihood, y) for a in smoothness]
    limits = (lowest, highest)
    searches = [
        _Search(begin=begin, objective=objective, limits=limits, Gamma=begin.prior.start(x))
        for begin in begins
    ]
    for search in searches:
        search.run(max_iter)
    best = max(searches, key=lambda search: search.value)
    if best.mode is None:
        raise ValueError(
            f"none of {len(searches)} searches found a mode of the posterior: the data may have no "
            "trend in the direction asked for, or lie outside the kernel's domain"
        )
    # Rounding errors grow with the number of data, and so does what the evidence can resolve.
    converged = best.slope < _FLAT + _RESOLVED * abs(best.value)
    if not converged:
        warn_unconverged(
            f"the evidence was not maximised: its slope is still {best.slope:.2g} nats a unit "
            f"after {best.n_evaluations} evaluations ({best.message}); raise max_iter={max_iter}"
        )
    posterior, trouble = best.gaussian(best.mode)
    if trouble:
        warn_unconverged(f"{trouble}; begin at another smoothness")
    at_edge = torch.isclose(best.theta, lowest) | torch.isclose(best.theta, highest)
    return EvidenceMaximum(
        posterior=posterior,
        likelihood=cast(L, posterior.likelihood),
        converged=converged and posterior.converged,
        values=[search.value for search in searches],
        n_evaluations=sum(search.n_evaluations for search in searches),
        at_bound=tuple(name for name, edge in zip(ranges, at_edge, strict=True) if edge),
    )


@dataclass
class _Search:
    """One search and its best point, from whose mode the next is sought."""

    begin: LogJoint
    objective: Objective | Nearest
    limits: tuple[Float[Tensor, " p"], Float[Tensor, " p"]]  # of theta, below and above
    Gamma: Tensor  # from where the next mode is sought
    theta: Tensor = field(init=False)
    mode: Mode | None = None
    value: float = -math.inf
    slope: float = math.inf
    message: str = ""
    n_evaluations: int = 0

    def run(self, max_iter: int) -> None:
        """Maximise by L-BFGS-B, which is to end by the slope: ``ftol`` is near rounding."""
        options = {"maxiter": max_iter, "ftol": 1e-11, "gtol": _FLAT / 10}
        bounds = torch.stack(self.limits, dim=1)
        result = minimise(self._step, theta_of(self.begin), bounds=bounds, options=options)
        self.message = result.message

    def gaussian(self, mode: Mode) -> tuple[Posterior, str]:
        """The Gaussian at the best point, and any failure."""
        joint = joint_at(self.begin, self.theta)
        if callable(self.objective):
            return self.objective(joint, mode)
        return approximate(joint, mode), ""

    def _step(self, theta: Tensor) -> tuple[float, Tensor]:
        self.n_evaluations += 1
        joint_of = partial(joint_at, self.begin)
        value, gradient, mode = evidence_gradient(theta, joint_of, self.Gamma, self.objective)
        if self.value < value < math.inf:
            # The part of the gradient that does not push against an edge of the range.
            uphill = torch.clamp(theta + gradient, *self.limits) - theta
            n = float(self.begin.data.weights.sum())
            uphill[len(_RANGES) :] *= min(1.0, math.sqrt(2 / n))
            self.slope = float(uphill.abs().max())
            self.theta = theta
            self.value = value
            self.mode = mode
            self.Gamma = mode.Gamma
        return -value, -gradient


def _check_objective(objective: Objective | Nearest) -> None:
    if not callable(objective) and objective not in get_args(Objective):
        raise ValueError(
            f"expected an objective of {get_args(Objective)}, or a function such as nearest of "
            f"bayesloss.learning.evidence.variational, got {objective!r}"
        )


def _ranges(
    bounds: Mapping[str, tuple[float, float]], likelihood: Likelihood
) -> dict[str, tuple[float, float]]:
    taken = _RANGES.keys() & likelihood.hyper_parameters.keys()
    if taken:
        raise ValueError(
            f"expected hyper-parameters of {likelihood!r} with other names than {list(_RANGES)}, "
            f"got {sorted(taken)}"
        )
    ranges = _RANGES | dict(likelihood.hyper_parameters)
    unknown = bounds.keys() - ranges.keys()
    if unknown:
        raise ValueError(f"expected bounds for some of {list(ranges)}, got {sorted(unknown)}")
    for name, (least, most) in bounds.items():
        above = {"a": 1.0, "mu": -math.inf}.get(name, 0.0)
        if least > most or (name != "mu" and least <= above):
            raise ValueError(
                f"expected bounds of {name} with {above:g} < low <= high, got ({least:g}, {most:g})"
            )
    return ranges | dict(bounds)
