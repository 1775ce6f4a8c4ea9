r"""Linearized loss-EM for Gaussian process classification, and loss-calibrated EP.

LHG section 4.2, Table 3 and equation (27). The E-step approximates the posterior, weighted with the
utility of the last decisions, by Laplace's method or by EP; the M-step decides anew under that
Gaussian.

That Gaussian has been weighted with the utility, and the risk would be weighted with it again: with
exact integrals Table 3 climbs the mean of :math:`U_M^2`. What LHG ask for, the least
:math:`d_L(p_D \Vert q) = R_{p_D}(h_q) - R_{p_D}(h_{p_D})`, is the largest mean of :math:`U_M`, and
so the largest evidence of labels and utility. EP has an approximation Z(h) of it. At EP's fixed
point its sites are stationary, so

.. math:: \frac{\mathrm d \log Z(h)}{\mathrm d h} = \frac{\partial}{\partial h} \log
   \int q^{\setminus U}(\theta)\, U_M(\theta, h)\, \mathrm d\theta :

the decisions to take are those of least risk under the *cavity* :math:`q^{\setminus U}` of the
utility's site, the Gaussian of prior and labels' sites.
"""

import math
from dataclasses import dataclass

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.probit.expectation_propagation import (
    combine_sites,
    expectation_propagation,
)
from bayesloss.calibrating.probit.laplace import laplace_probit
from bayesloss.calibrating.probit.tilted_ep import tilted_ep
from bayesloss.calibrating.probit.whitened_gp import (
    GaussianWeights,
    check_data,
    check_max_iter,
    check_real,
    decide,
)
from bayesloss.warnings import warn_caller

__all__ = ["LogUtility", "LossEMResult", "check_max_loss", "loss_em_probit", "loss_ep_probit"]


@dataclass(frozen=True)
class LogUtility:
    r"""The logarithm of :math:`U_M = M - L(\theta, h)` for decisions h on target inputs.

    LHG (7) and (12), with the test distribution that puts the same mass on every target.

    Attributes
    ----------
    features : Tensor of shape (..., s, r)
    noise : Tensor of shape (..., s)
    decisions : Tensor of shape (..., s)
        +1 or -1.
    costs : CostMatrix
    max_loss : float
        M, at least the larger cost.
    """

    features: Tensor
    noise: Tensor
    decisions: Tensor
    costs: CostMatrix
    max_loss: float

    def select(self, rows: Tensor) -> "LogUtility":
        """The same for some of the data sets."""
        parts = (self.features[rows], self.noise[rows], self.decisions[rows])
        return LogUtility(*parts, self.costs, self.max_loss)

    def utility(self, z: Tensor) -> Tensor:
        """M - L at weights z of shape (..., r), of shape (...)."""
        return self.max_loss * self._relative(*self._cost_and_margin(z))

    def value(self, z: Tensor) -> Tensor:
        """The log utility, of shape (...)."""
        return self._relative(*self._cost_and_margin(z)).log() + math.log(self.max_loss)

    def derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The last term of LHG (27) in the weights z, and second derivatives.

        Returns
        -------
        gradient : Tensor of shape (..., r)
        minus_hessian : Tensor of shape (..., r, r)
            Indefinite in general: the log utility is not concave.
        safe : Tensor of shape (..., r, r)
            The same without what makes it indefinite.
        """
        _, gradient, outer, bend = self._slope(z)
        hessian, safe = (self._spread(weight) + outer for weight in (bend, bend.clamp(min=0.0)))
        return gradient, hessian, safe

    def log_expectation(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The log of the utility's expectation under Gaussian weights, and derivatives by the mean.

        Parameters
        ----------
        mean : Tensor of shape (..., r)
        covariance : Tensor of shape (..., r, r)

        Returns
        -------
        value : Tensor of shape (...)
        gradient : Tensor of shape (..., r)
        hessian : Tensor of shape (..., r, r)
        """
        variance = ((self.features @ covariance) * self.features).sum(-1)
        # A Gaussian only adds its variance to the noise: GPML (3.82).
        spread = (self.noise**2 + variance).sqrt()
        wide = LogUtility(self.features, spread, self.decisions, self.costs, self.max_loss)
        utility, gradient, outer, bend = wide._slope(mean)
        value = utility.log() + math.log(self.max_loss)
        return value, gradient, -(wide._spread(bend) + outer)

    def _slope(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The utility in units of M, its log's gradient, that times itself, and each bend."""
        cost, t = self._cost_and_margin(z)
        utility = self._relative(cost, t)
        density = torch.exp(-0.5 * t**2) * (cost / self.noise / (2 * math.pi) ** 0.5)
        density = density / (utility[..., None] * t.shape[-1])
        gradient = ((density * self.decisions)[..., None, :] @ self.features).squeeze(-2)
        outer = gradient[..., :, None] * gradient[..., None, :]
        return utility, gradient, outer, t * density / self.noise

    def _spread(self, weight: Tensor) -> Tensor:
        """The weighted sum of the targets' features times themselves."""
        return self.features.mT @ (self.features * weight[..., None])

    def _relative(self, cost: Tensor, t: Tensor) -> Tensor:
        # In units of M, which may be too large to be summed. (M - l Phi(-t)) / M is
        # (M - l) / M + (l / M) Phi(t): nothing cancels where M is the larger cost.
        return ((1 - cost) + cost * torch.special.ndtr(t)).mean(-1)

    def _cost_and_margin(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """What each decision may cost, in units of M, and the margin t of each target."""
        # Of two Python numbers torch.where would make single precision.
        costs = (self.costs.c_plus / self.max_loss, self.costs.c_minus / self.max_loss)
        c_plus, c_minus = self.noise.new_tensor(costs)
        cost = torch.where(self.decisions > 0, c_plus, c_minus)
        latent = (self.features @ z[..., None]).squeeze(-1)
        return cost, self.decisions * latent / self.noise


@dataclass(frozen=True)
class LossEMResult:
    """What loss-EM or loss-calibrated EP ends with.

    Attributes
    ----------
    q : GaussianWeights
        The Gaussian of the last E-step; of loss-calibrated EP, the cavity of the utility's site,
        with ``log_evidence`` of labels and utility.
    decisions : Tensor of shape (m, s)
        Of least risk under it, on the target inputs.
    n_rounds : Tensor of shape (m,)
        E-steps, the one that changed nothing included.
    converged : Tensor of bool, shape (m,)
        Whether the decisions repeated themselves; of loss-calibrated EP, whether the evidence rose
        no more.
    """

    q: GaussianWeights
    decisions: Tensor
    n_rounds: Tensor
    converged: Tensor


def check_max_loss(max_loss: float | None, costs: CostMatrix) -> float:
    """M, or the larger cost if none is given.

    Raises
    ------
    ValueError
        If M is below the larger cost: the utility could be negative, and has no logarithm then.
    """
    largest = max(costs.c_plus, costs.c_minus)
    if max_loss is None:
        return largest
    if not largest <= max_loss < torch.inf:
        raise ValueError(
            f"expected a finite max_loss of at least the larger cost {largest}, got {max_loss}"
        )
    return float(max_loss)


def loss_em_probit(
    features: Tensor,
    y: Tensor,
    target_features: Tensor,
    target_noise: Tensor,
    costs: CostMatrix,
    *,
    start: Tensor | None = None,
    inference: str = "laplace",
    max_loss: float | None = None,
    max_iter: int = 50,
) -> LossEMResult:
    """LHG Table 3, for many data sets at once; the numbers in the code are the table's lines.

    Parameters
    ----------
    features : Tensor of shape (m, n, r)
    y : Tensor of shape (m, n)
        +1 or -1.
    target_features : Tensor of shape (m, s, r)
    target_noise : Tensor of shape (m, s)
        What :meth:`WhitenedGP.project` gives for the inputs on which decisions will be taken.
    costs : CostMatrix
    start : Tensor of shape (m, s), optional
        The first decisions. Without them, those of the plain posterior's approximation.
    inference : {"laplace", "ep"}, default="laplace"
        What approximates the posterior that the utility weighs: Laplace's method, as in Table 3, or
        EP, as section 5 suggests (:func:`~bayesloss.calibrating.probit.tilted_ep.tilted_ep`).
    max_loss : float, optional
        M, at least the larger cost, which it is if not given: "set to the maximum loss" (section
        5). Equality is harmless, since no probit probability is exactly 1.
    max_iter : int, default=50
        The largest number of rounds.

    Returns
    -------
    LossEMResult

    Raises
    ------
    ValueError
        If M is below the larger cost, shapes do not fit together, a value is not finite, a label or
        a first decision is neither +1 nor -1, or ``max_iter`` is less than 1.

    Warns
    -----
    ConvergenceWarning
        If decisions still changed in the last round, or a mode was not found.
    """
    M = check_max_loss(max_loss, costs)
    features, y, target_features, target_noise = _checked(
        features, y, target_features, target_noise, max_iter
    )
    m = len(y)
    if start is not None:
        start = check_real(start, "start")
        if start.shape != target_noise.shape or not bool((start.abs() == 1).all()):
            raise ValueError(
                f"expected first decisions +1 or -1 of shape {tuple(target_noise.shape)}, got "
                f"other values or shape {tuple(start.shape)}"
            )
    if inference not in ("laplace", "ep"):
        raise ValueError(f"expected inference 'laplace' or 'ep', got {inference!r}")
    ep = inference == "ep"
    q = expectation_propagation(features, y) if ep else laplace_probit(features, y)
    threshold = costs.probit_threshold
    # 1: any decisions will do.
    decisions = decide(q, target_features, target_noise, threshold) if start is None else start
    decisions = decisions.clone()
    mean, covariance = q.mean.clone(), q.covariance.clone()
    log_evidence, found = q.log_evidence.clone(), q.converged.clone()
    n_rounds = torch.zeros(m, dtype=torch.int64, device=y.device)
    active = torch.arange(m, device=y.device)
    for _ in range(max_iter):  # 2
        targets, noise = target_features[active], target_noise[active]
        term = LogUtility(targets, noise, decisions[active], costs, M)
        # 3, 4: from the last mode. (27) is what has to vanish.
        if ep:
            q = tilted_ep(features[active], y[active], term)
        else:
            q = laplace_probit(features[active], y[active], term=term, start=mean[active])
        mean[active], covariance[active] = q.mean, q.covariance
        log_evidence[active], found[active] = q.log_evidence, q.converged
        n_rounds[active] += 1
        new = decide(q, targets, noise, threshold)  # 5, 6
        changed = (new != decisions[active]).any(-1)
        decisions[active] = new
        active = active[changed]  # 7
        if not len(active):
            break
    weights = GaussianWeights(mean, covariance, log_evidence, found, int(n_rounds.max()))
    return _result(weights, decisions, n_rounds, active, "decisions", "changed")


def loss_ep_probit(
    features: Tensor,
    y: Tensor,
    target_features: Tensor,
    target_noise: Tensor,
    costs: CostMatrix,
    *,
    max_loss: float | None = None,
    max_iter: int = 50,
) -> LossEMResult:
    """Decisions of the largest evidence of labels and utility, as EP approximates it.

    Starts at EP's decisions, and decides anew under the utility's cavity while that makes the
    evidence rise. Parameters, what is returned, errors and warnings are those of
    :func:`loss_em_probit`; for M to infinity this is EP. A data set has converged when its evidence
    rises no more.
    """
    M = check_max_loss(max_loss, costs)
    features, y, target_features, target_noise = _checked(
        features, y, target_features, target_noise, max_iter
    )
    m, _, r = features.shape
    unit = torch.eye(r, dtype=y.dtype, device=y.device).expand(m, r, r)
    standard = (unit, y.new_zeros((m, r)))
    q = expectation_propagation(features, y)
    precision, shift = q.label_sites()
    mean, covariance, found = q.mean, q.covariance, q.converged
    log_evidence = torch.full_like(q.log_evidence, -torch.inf)
    proposed = decide(q, target_features, target_noise, costs.probit_threshold)
    decisions = proposed.clone()
    n_rounds = torch.zeros(m, dtype=torch.int64, device=y.device)
    active = torch.arange(m, device=y.device)
    for _ in range(max_iter):
        targets, noise = target_features[active], target_noise[active]
        tilted = tilted_ep(
            features[active], y[active], LogUtility(targets, noise, proposed[active], costs, M)
        )
        n_rounds[active] += 1
        # A decision at the boundary may swing for ever: each side is the better one to the cavity
        # that it makes. Where the evidence does not rise, the decisions before were at its top.
        rose = tilted.log_evidence > log_evidence[active]
        active = active[rose]
        new_precision, new_shift = (site[rose] for site in tilted.label_sites())
        precision[active], shift[active] = new_precision, new_shift
        log_evidence[active], found[active] = tilted.log_evidence[rose], tilted.converged[rose]
        decisions[active] = proposed[active]
        prior = (standard[0][active], standard[1][active])
        # The utility's cavity.
        at, V, _ = combine_sites(features[active], new_precision, new_shift, prior)
        mean[active], covariance[active] = at, V
        part = GaussianWeights(at, V, log_evidence[active], found[active], 0)
        proposed[active] = decide(part, targets[rose], noise[rose], costs.probit_threshold)
        active = active[(proposed != decisions)[active].any(-1)]
        if not len(active):
            break
    sites = (precision, shift)
    q = GaussianWeights(mean, covariance, log_evidence, found, int(n_rounds.max()), sites)
    return _result(q, decisions, n_rounds, active, "evidence", "rose")


def _result(
    q: GaussianWeights, decisions: Tensor, n_rounds: Tensor, active: Tensor, what: str, still: str
) -> LossEMResult:
    """The end of a search, which says so if some data sets are still active."""
    converged = torch.ones(len(n_rounds), dtype=torch.bool, device=active.device)
    converged[active] = False
    if len(active):
        warn_caller(
            f"the {what} of {len(active)} of {len(n_rounds)} data sets still {still} after "
            f"{int(n_rounds.max())} rounds: use a larger max_iter, or a larger max_loss",
            ConvergenceWarning,
        )
    return LossEMResult(q, decisions, n_rounds, converged)


def _checked(
    features: Tensor, y: Tensor, target_features: Tensor, target_noise: Tensor, max_iter: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Data and targets as float64, or a ValueError that says what does not fit."""
    check_max_iter(max_iter)
    features, y = check_data(features, y)
    m, _, r = features.shape
    target_features = check_real(target_features, "target_features")
    target_noise = check_real(target_noise, "target_noise")
    if target_features.shape != (m, target_noise.shape[-1], r) or len(target_noise) != m:
        raise ValueError(
            f"expected target_features of shape ({m}, s, {r}) and target_noise of shape ({m}, s), "
            f"got {tuple(target_features.shape)} and {tuple(target_noise.shape)}"
        )
    return features, y, target_features, target_noise
