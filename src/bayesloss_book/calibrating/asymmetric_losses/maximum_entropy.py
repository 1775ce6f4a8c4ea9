"""Maximum entropy discrimination, LHG (29), for probit classification with a Gaussian q.

The constraint for y = y_i says that the slack is not negative, the one for y = -y_i that it is at
least l(y_i, -y_i) + 1 - 2 p_q(y_i | x_i). So (29) is KL(q || p) plus C times a sum of hinges, and
needs no constraints.
"""

import warnings

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.probit.whitened_gp import GaussianWeights


def slacks(p_right: Tensor, y: Tensor, costs: CostMatrix) -> Tensor:
    """The least slacks (..., n) that LHG (29) allows, from the probabilities of the labels seen."""
    return _violation(p_right, y, costs).clamp(min=0.0)


def med_objective(
    mean: Tensor, root: Tensor, features: Tensor, y: Tensor, costs: CostMatrix, C: float
) -> Tensor:
    """LHG (29) without its constraints, for q = N(mean, root root^T), of shape (m,)."""
    return _divergence(mean, root) + C * slacks(_p_right(mean, root, features, y), y, costs).sum(-1)


def med_probit(
    features: Tensor,
    y: Tensor,
    costs: CostMatrix,
    *,
    C: float,
    smoothing: float = 0.01,
    max_iter: int = 500,
) -> GaussianWeights:
    """Minimise LHG (29) over Gaussians, for data sets (m, n, r) at once, by L-BFGS.

    C is the price of a unit of slack, of which the paper gives none. The hinge is rounded off on
    the scale of ``smoothing``. The negative objective stands for a log evidence.
    """
    m, _, r = features.shape
    mean = torch.zeros((m, r), dtype=torch.float64, requires_grad=True)
    packed = torch.zeros((m, r, r), dtype=torch.float64, requires_grad=True)

    def objective() -> Tensor:
        root = _root(packed)
        violation = _violation(_p_right(mean, root, features, y), y, costs)
        rounded = smoothing * torch.nn.functional.softplus(violation / smoothing)
        return _divergence(mean, root) + C * rounded.sum(-1)

    search = torch.optim.LBFGS(
        [mean, packed],
        max_iter=max_iter,
        tolerance_grad=1e-7,
        tolerance_change=0.0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        search.zero_grad()
        total = objective().sum()
        total.backward()
        return total

    search.step(closure)
    closure()
    assert mean.grad is not None
    assert packed.grad is not None
    converged = torch.maximum(mean.grad.abs().amax(-1), packed.grad.abs().amax((-2, -1))) < 1e-3
    if not bool(converged.all()):
        warnings.warn(
            f"{int((~converged).sum())} of {m} data sets did not converge in {max_iter} iterations",
            ConvergenceWarning,
            stacklevel=2,
        )
    with torch.no_grad():
        root = _root(packed)
        value = med_objective(mean, root, features, y, costs, C)
        n_iterations = search.state[mean]["n_iter"]
        return GaussianWeights(
            mean.detach(), root @ root.mT, -value, converged.detach(), n_iterations
        )


def _root(packed: Tensor) -> Tensor:
    return packed.tril(-1) + torch.diag_embed(packed.diagonal(dim1=-2, dim2=-1).exp())


def _divergence(mean: Tensor, root: Tensor) -> Tensor:
    """KL(q || p) for the standard normal prior."""
    log_det = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return 0.5 * ((mean**2).sum(-1) + (root**2).sum((-2, -1)) - log_det - mean.shape[-1])


def _p_right(mean: Tensor, root: Tensor, features: Tensor, y: Tensor) -> Tensor:
    """LHG (25) at the training inputs, where sigma_x is 1."""
    centre = (features @ mean[..., None]).squeeze(-1)
    return torch.special.ndtr(y * centre / (1 + ((features @ root) ** 2).sum(-1)).sqrt())


def _violation(p_right: Tensor, y: Tensor, costs: CostMatrix) -> Tensor:
    false_positive, false_negative = y.new_tensor([costs.c_plus, costs.c_minus])
    return torch.where(y > 0, false_negative, false_positive) + 1 - 2 * p_right
