"""Do the flat places hurt a fit? Posteriors with and without a constant in the basis.

Labels come from a known source, at inputs that are uniform on [-3, 3]. Two priors of the same
k(0, 0) = 1 look at them: the waves of basis (14), and the waves with half of the variance beside a
constant with the other half, so that f need not change its sign.
"""

import math
import os

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesloss.learning.basis import Basis
from bayesloss.learning.isgp import ISGP
from bayesloss.learning.laplace import LogJoint, Posterior, approximate, find_mode
from bayesloss.learning.likelihoods import Bernoulli
from bayesloss.learning.trigonometric_kernel import TrigonometricKernel
from bayesloss_book.stores.results import run_cells

__all__ = [
    "PRIORS",
    "SOURCES",
    "WithConstant",
    "fit",
    "grid",
    "labels",
    "measure",
    "run",
    "source_draws",
]

PRIORS = ("waves", "constant")
SOURCES = {
    "line": lambda x: x,
    "kink": lambda x: torch.where(x < 0, 0.3 * x, 2.5 * x) - 0.5,
}
_REACH = 3.0


class WithConstant(Basis):
    """Basis (14) and a constant function behind it, with a prior variance of its own.

    Parameters
    ----------
    waves : TrigonometricKernel
    constant : float
        The prior variance of the constant's weight.
    """

    def __init__(self, waves: TrigonometricKernel, constant: float) -> None:
        self.waves, self.n_basis = waves, waves.n_basis + 1
        self.eigenvalues = torch.cat([waves.eigenvalues, waves.eigenvalues.new_tensor([constant])])

    def basis(self, x: Tensor) -> Tensor:
        """The waves and 1: (n,) to (n, M + 1)."""
        return torch.cat([self.waves.basis(x), torch.ones_like(x)[:, None]], dim=1)

    def psi(self, x: Tensor) -> Tensor:
        """The integrals of all products: (n,) to (n, M + 1, M + 1)."""
        speed = math.pi * self.waves.c * torch.arange(1, self.n_basis // 2 + 1, dtype=x.dtype)
        angle = speed * x[:, None]
        once = torch.cat([angle.sin() / speed, (1 - angle.cos()) / speed], dim=1)
        upper = torch.cat([self.waves.psi(x), once[:, :, None]], dim=2)
        lower = torch.cat([once, x[:, None]], dim=1)[:, None, :]
        return torch.cat([upper, lower], dim=1)


def grid() -> Tensor:
    """The inputs at which posteriors are compared: 121 in [-3, 3]."""
    return torch.linspace(-_REACH, _REACH, 121, dtype=torch.float64)


def labels(source: str, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs, and labels 0 or 1 with the log odds that the source says."""
    generator = torch.Generator().manual_seed(seed)
    x, uniform = torch.rand((2, n), dtype=torch.float64, generator=generator)
    x = _REACH * (2 * x - 1)
    return x, (uniform < torch.sigmoid(SOURCES[source](x))).to(x.dtype)


def fit(
    prior: str, x: Tensor, y: Tensor, *, filled: float, a: float, n_basis: int = 32
) -> Posterior:
    """Laplace's posterior; the data are shared between the nodes of a grid.

    Parameters
    ----------
    prior : {"waves", "constant"}
    x, y : Tensor of shape (n,)
    filled : float
        The part of the period that [-3, 3] fills.
    a : float
        The smoothness of the waves.
    n_basis : int
        The number M of waves.
    """
    if prior not in PRIORS:
        raise ValueError(f"expected a prior of {PRIORS}, got {prior!r}")
    waves = TrigonometricKernel(a=a, c=filled / _REACH, n_basis=n_basis)
    kernel = waves if prior == "waves" else WithConstant(waves.scaled(0.5), 0.5)
    source, likelihood = ISGP(kernel, gamma=0.01), Bernoulli()
    nodes = torch.linspace(-_REACH, _REACH, 301, dtype=x.dtype)
    data = likelihood.spread(source.features, x, y, torch.ones_like(x), nodes)
    joint = LogJoint(source, likelihood, data)
    return approximate(joint, find_mode(joint, source.start(nodes)), with_bound=False)


def source_draws(posterior: Posterior, n: int = 400) -> NDArray[np.float64]:
    """Draws of nu on the grid, one a row."""
    draws = posterior.sample(n, torch.Generator().manual_seed(0))
    return posterior.prior.source(grid(), draws).numpy()


def measure(
    *, source: str, n: int, filled: float, a: float, seed: int, n_basis: int
) -> dict[str, float]:
    """What both priors lose on one data set.

    Returns
    -------
    dict
        For each prior: ``excess``, the log loss of the averaged probability beyond the truth's, in
        nats a datum; and ``covered``, the part of the grid where the 95 % band has the source.
    """
    x, y = labels(source, n, seed)
    true = SOURCES[source](grid()).numpy()
    found: dict[str, float] = {}
    for prior in PRIORS:
        nu = source_draws(fit(prior, x, y, filled=filled, a=a, n_basis=n_basis))
        said, p = (1 / (1 + np.exp(-nu))).mean(axis=0), 1 / (1 + np.exp(-true))
        excess = p * np.log(p / said) + (1 - p) * np.log((1 - p) / (1 - said))
        low, high = np.quantile(nu, [0.025, 0.975], axis=0)
        found[f"{prior}_excess"] = float(excess.mean())
        found[f"{prior}_covered"] = float(((low <= true) & (true <= high)).mean())
    return found


def run(folder: str | os.PathLike[str]) -> None:
    """Two sources, two sizes, three periods and two smoothnesses, twenty data sets of each."""
    cells = [
        {"source": source, "n": n, "filled": filled, "a": a, "seed": seed}
        for source in SOURCES
        for n in (100, 1000)
        for filled in (0.25, 0.5, 1.0)
        for a in (1.2, 2.0)
        for seed in range(20)
    ]
    run_cells(measure, cells, folder, "flat_places", parameters={"n_basis": 32}, n_jobs=1)
