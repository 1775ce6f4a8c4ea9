"""What the short cuts of linkgistic regression cost in accuracy, and save in operations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from bayesloss.learning.inference.laplace import approximate
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss.learning.links.tables import HermiteTable, expected_log_probabilities
from bayesloss.learning.sources.priors import ISGP, SourcePrior, grid_size
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import maximise_weights
from bayesloss.proper_losses import LogLoss
from bayesloss_book.learning.linkgistic.rounds import Round, Task, linear_data
from paperledger.stores.results import Folder, load_results


def plain_expectation(prior: SourcePrior, Gamma: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The Monte Carlo estimate of Q, W&N section 4.2, a datum: every draw through psi."""
    w = Gamma[:, :-1]
    nu_0 = Gamma[:, -1:]
    nu = nu_0 + torch.einsum("si,nij,sj->sn", w, prior.kernel.psi(x), w)
    return torch.nn.functional.logsigmoid(torch.where(y == 1, nu, -nu)).mean()


def tabulated_expectation(
    prior: SourcePrior, Gamma: Tensor, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """The same from the tables: the value, and the slopes with respect to the scores, (n,)."""
    value, slope = expected_log_probabilities(prior, LogLoss(), Gamma)(x, y.to(torch.int64))
    return value.mean(), slope / len(x)


def table_errors(prior: SourcePrior, Gamma: Tensor, nodes: Sequence[int]) -> pd.DataFrame:
    """The largest error of E_q[log sigma(nu)] and its slope by Hermite interpolation."""
    edge = 1 / prior.kernel.c
    x = torch.linspace(-edge, edge, 9973, dtype=torch.float64)  # a prime: off the nodes

    def exact(points: Tensor) -> tuple[Tensor, Tensor]:
        value, first, _ = LogLoss().log_probabilities(prior.source(points, Gamma))
        slope = first * prior.derivative(points, Gamma)
        return value.mean(dim=1)[1], slope.mean(dim=1)[1]

    truth, true_slope = exact(x)
    rows = {}
    for number in nodes:
        points = torch.linspace(-edge, edge, 2 * number + 1, dtype=torch.float64)
        values, slopes = exact(points)
        value, slope = HermiteTable(points, values[None], slopes[None])(x)
        rows[number] = {
            "value": float((value - truth).abs().max()),
            "slope": float((slope - true_slope).abs().max()),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("nodes")


def grid_errors(found: Round, y: Tensor, sizes: Sequence[int | None]) -> pd.DataFrame:
    """What a grid of so many nodes does to the mode, in deviations, and to the log evidence."""
    prior = found.posterior.prior
    x = found.scores
    likelihood = Bernoulli()
    weight = torch.ones_like(x)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
    mode = find_mode(joint, found.posterior.mode)
    plain = approximate(joint, mode)
    hessian = joint.hessian(mode.Gamma)
    low = float(x.min())
    high = float(x.max())
    scale = float(torch.log(prior.kernel.a)) / (torch.pi * prior.kernel.c)
    rows = {}
    for asked in sizes:
        size = grid_size(prior, high - low, len(x)) if asked is None else asked
        nodes = torch.linspace(low, high, size, dtype=x.dtype)
        shares = likelihood.shares(x, y, weight, nodes)
        other = LogJoint(prior, likelihood, likelihood.on_grid(prior.features, nodes, shares))
        moved = find_mode(other, mode.Gamma)
        step = moved.Gamma - mode.Gamma
        rows[size] = {
            "spacing": (high - low) / (size - 1) / scale,
            "mode": float(step @ hessian @ step) ** 0.5,
            "log evidence": approximate(other, moved).log_evidence - plain.log_evidence,
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("nodes")


def grid_growth(learned: dict[int, tuple[Round, Tensor]]) -> pd.DataFrame:
    """The grid that the package takes for n data, and what it does, for several n."""
    rows = {}
    for n, (found, y) in learned.items():
        errors = grid_errors(found, y, [None])
        rows[n] = {"nodes": errors.index[0], **errors.iloc[0]}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("n")


def search_steps(problem: Task, *, C: float, tol: float, most: int = 2000) -> dict[str, int]:
    """L-BFGS iterations for the fixed link, in the package's coordinates and in the raw ones."""
    steps = {}
    for name in ("prepared", "raw"):
        data = linear_data(problem.X, problem.y, C)
        if name == "raw":
            own = data.coordinates
            plain = {"scale": torch.ones_like(own.scale), "vectors": None}
            plain["class_scale"] = torch.ones_like(own.class_scale)
            data = replace(data, coordinates=replace(own, **plain))
        steps[name] = _fixed_link(data, tol, most)
    return steps


def _fixed_link(data: LinearScores, tol: float, most: int) -> int:
    def log_probability(scores: Tensor) -> tuple[Tensor, Tensor]:
        signed = torch.where(data.labels == 1, scores, -scores)
        slope = torch.sigmoid(-signed) * torch.where(data.labels == 1, 1.0, -1.0)
        return torch.nn.functional.logsigmoid(signed), slope

    zeros = torch.zeros((1, len(data.centre)), dtype=torch.float64)
    return maximise_weights(
        data, log_probability, zeros, zeros[:, 0], free_offset=True, tol=tol, max_iter=most
    ).n_iter


def operations(n: int, n_basis: int, n_samples: int, n_inputs: int) -> dict[str, int]:
    """Operations of matrix products, counted: of the plain recipe, and of the package."""
    generator = torch.Generator().manual_seed(0)
    kernel = TrigonometricKernel(a=1.2, c=0.5, n_basis=n_basis)
    prior_draws = torch.randn((n_samples, n_basis), dtype=torch.float64, generator=generator)
    psi = kernel.psi(torch.linspace(-1, 1, n, dtype=torch.float64))
    Z = torch.randn((n, n_inputs), dtype=torch.float64, generator=generator)
    beta = torch.zeros((n_inputs, 1), dtype=torch.float64)
    w = prior_draws[:1].T

    def source(weights: Tensor) -> Tensor:
        """Each datum's psi times w, then w^T times that: (n, S)."""
        return ((psi @ weights) * weights).sum(dim=1)

    def q() -> Tensor:
        return torch.nn.functional.logsigmoid(source(prior_draws.T) + Z @ beta).mean()

    def gradient() -> None:
        q()
        slopes = (kernel.basis(Z[:, 0]) @ prior_draws.T) ** 2  # eq. (13)
        _ = Z.T @ slopes.mean(dim=1, keepdim=True)

    def assembled() -> None:
        pull = 2 * (psi @ w)[..., 0]
        _ = pull.T @ pull + (torch.ones(1, n, dtype=torch.float64) @ psi.flatten(1)).reshape(
            w.shape[0], -1
        )

    def differentiated() -> None:
        def objective(weights: Tensor) -> Tensor:
            return torch.nn.functional.logsigmoid(source(weights[:, None])).sum()

        torch.autograd.functional.hessian(objective, w[:, 0])

    nodes = grid_size(ISGP(kernel), 1 / kernel.c, n)  # scores that fill half of [-1/c, 1/c]

    def newton() -> None:
        features = torch.ones((nodes, 2 * n_basis + 2), dtype=torch.float64)
        slopes = features @ torch.ones((2 * n_basis + 2, n_basis + 1), dtype=torch.float64)
        _ = slopes.T @ slopes

    def tables() -> None:
        _ = Z.T @ (Z @ beta)  # between the two products: a look-up for each datum

    pieces: dict[str, Callable[[], object]] = {
        "Q": q,
        "gradient": gradient,
        "Hessian, assembled": assembled,
        "Hessian, differentiated": differentiated,
        "Newton step": newton,
        "gradient, tables": tables,
    }
    counts = {}
    for name, piece in pieces.items():
        with FlopCounterMode(display=False) as counter:
            piece()
        counts[name] = counter.get_total_flops()
    return counts


def cpu_months(
    *, n_samples: int, rounds: int, inner: int, fits: int, n: int, n_basis: int = 64
) -> float:
    """Months on one core for the plain recipe's M-steps: 2 S n M^2 operations a value of Q."""
    values = fits * rounds * inner
    return values * 2 * n_samples * n * n_basis**2 / 1e10 / (30.4 * 86400)


def stored_hours(folder: Folder, names: Sequence[str]) -> float | None:
    """CPU hours of all stored cells of these experiments; None where one is not stored."""
    if not all((Path(folder) / f"{name}.csv").is_file() for name in names):
        return None
    return sum(float(load_results(folder, name)["seconds"].sum()) for name in names) / 3600
