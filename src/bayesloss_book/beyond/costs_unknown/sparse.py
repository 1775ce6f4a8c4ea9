r"""Sparse means of a Gaussian process for yes and no, fitted by a distribution of costs.

The full posterior announces p_x, and a level with k functions announces q_x. What deciding by q
costs where p is right, added up over the costs, is the divergence of their weight w,

    D_w(p_x || q_x) = bill(logit q_x; p_x) - bill(logit p_x; p_x),

and that of Kullback and Leibler for the log loss. Functions and coefficients are those of its least
mean over test inputs without labels: LHG section 4.1, with D_w in the place of d_L. "labels" are
fitted to the labels in place of p_x, with the prior: the least KL, LHG (34), or the same by D_w.

All was fixed before the first run: sets, sizes, k, and the kernel, whose length and amplitude are
the medians of the library's prior.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from bayesloss import GPClassifier, SquaredExponential
from bayesloss.learning.inference.likelihoods import Observations
from bayesloss.optimise import differentiated, minimise
from bayesloss_book.beyond.costs_unknown import fits
from bayesloss_book.data import score_sets as scores
from bayesloss_book.models.gp_regression import GPRegression
from bayesloss_book.models.sparse_means import spread_support
from paperledger.stores.results import crossed, runs

SIZES = (50, 200, 1_000)
N_DRAWS = 4
# What k functions are fitted to, and their number.
FAMILIES = {"three": ("posterior", 3), "ten": ("posterior", 10), "labels": ("labels", 10)}
NAMES = {name: f"{k} functions, by the {target}" for name, (target, k) in FAMILIES.items()}
_N_POINTS = 500  # test inputs that are known without labels
_N_STEPS = 50  # of each search, short by intent as `move_support`'s
_AMPLITUDE = 3.0
# Of the prior's penalty: the posterior has paid it already.
_SHARES = {"posterior": 0.01, "labels": 1.0}


def log_odds(theta: Tensor, x: Tensor, kernel: SquaredExponential) -> Tensor:
    """A level and functions at x (n, D), of theta: the level, then a row (u, s) a function.

    The u are coefficients of functions that are orthonormal under the kernel.
    """
    rows = theta[1:].reshape(-1, 1 + x.shape[1])
    inputs = rows[:, 1:]
    ridge = 1e-6 * kernel.b * torch.eye(len(rows), dtype=torch.float64)
    root = torch.linalg.cholesky(kernel(inputs, inputs) + ridge)
    functions = torch.linalg.solve_triangular(root, kernel(inputs, x), upper=False)
    return theta[0] + rows[:, 0] @ functions


def means(
    x: Tensor, y: Tensor, points: Tensor, family: str
) -> tuple[dict[str, Tensor], SquaredExponential]:
    """By the name of its loss, what `log_odds` takes; and the kernel.

    All have as many steps, the first by the log loss. The matching loss goes on by both: it has no
    slope where all is far from the thresholds.
    """
    target, k = FAMILIES[family]
    length = x.shape[1] ** 0.5
    kernel = SquaredExponential(a=length**-2, b=_AMPLITUDE**2)
    if target == "posterior":
        full = GPClassifier(inference="laplace", length_scale=length, amplitude=_AMPLITUDE)
        p = full.fit(x.numpy(), y.numpy()).predict_proba(points.numpy())[:, 1]
        x = points
        y = torch.from_numpy(p)
    places = spread_support(GPRegression(kernel, x, y, noise_variance=1.0), points, k)

    data = Observations(x, y, torch.ones_like(y))

    def go_on(start: Tensor, loss: str) -> Tensor:
        def penalised(theta: Tensor) -> Tensor:
            u = theta[1 :: 1 + x.shape[1]]
            fit = fits.LOSSES[loss].log_density(log_odds(theta, x, kernel), data)
            return 0.5 * _SHARES[target] * u @ u - fit

        found = minimise(differentiated(penalised), start, options={"maxiter": _N_STEPS})
        return torch.from_numpy(found.x)

    first = go_on(pad(pad(points[places], (1, 0)).flatten(), (1, 0)), "log")
    by_both = go_on(first, "mixed")
    ends = {"log": go_on(go_on(first, "log"), "log"), "cost": go_on(by_both, "cost")}
    return ends | {"mixed": go_on(by_both, "mixed")}, kernel


def measure(*, data: str, family: str, n: int, n_draws: int) -> dict[str, float]:
    """What `fits.measure` returns."""
    bills = []
    for x, y, inputs, truth in fits.draws(data, "", "inputs", n, n_draws):
        known = inputs[:_N_POINTS, 1:]
        others = inputs[_N_POINTS:, 1:]
        found, kernel = means(x[:, 1:], y, known, family)
        z = [log_odds(theta, others, kernel) for theta in found.values()]
        bills.append([1e3 * float(fits.bill(each, truth[_N_POINTS:]).mean()) for each in z])
    return fits.gains(bills)


def cells() -> list[dict[str, Any]]:
    """The tables of logistic regression at the sizes at which the rarer class is expected."""
    everything = crossed(data=fits.REAL, family=FAMILIES, n=SIZES)
    return [cell for cell in everything if scores.enough(cell["data"], cell["n"])]


run = runs(measure, cells, "costs_sparse", n_draws=N_DRAWS)
