"""What nu at N points costs, for M basis functions: the fast form, psi in chunks, a Newton step."""

from functools import partial
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots

from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.sources.priors import ISGP
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss_book.drawing.figures import legend_above, style
from paperledger.stores.results import runs

METHODS = {
    "fast": "fast form, $O(NM)$",
    "psi": r"through $\psi$, $O(NM^2)$",
    "newton": "a Newton step, $O(NM^2 + M^3)$",
}
_CHUNK = 2**22  # entries of psi at a time: 32 MB


def measure(*, method: str, n: int, n_basis: int, repeat: int) -> dict[str, float]:
    """Compute nu at n points in one way; ``repeat`` only tells repetitions apart.

    ``mean``: of the values of nu; for ``method="newton"``, what Newton's model says that twice the
    step gains for a datum.
    """
    kernel = TrigonometricKernel(a=1.2, c=0.25, n_basis=n_basis)
    x = torch.linspace(-1, 1, n, dtype=torch.float64)
    w = torch.randn(n_basis, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    w = w * kernel.eigenvalues.sqrt()
    if method == "fast":
        return {"mean": float(kernel.integrated_square(x, w).mean())}
    if method == "psi":
        parts = x.split(max(1, _CHUNK // n_basis**2))
        nu = [torch.einsum("i,nij,j->n", w, kernel.psi(part), w) for part in parts]
        return {"mean": float(torch.cat(nu).mean())}
    prior = ISGP(kernel)
    data = Bernoulli().condense(prior.features, x, (x > 0).to(torch.float64))
    joint = LogJoint(prior, Bernoulli(), data)
    slope, hessian = joint.derivatives(torch.cat([w, w.new_zeros(1)]))
    return {"mean": float(slope @ torch.linalg.solve(hessian, slope)) / n}


def cells() -> list[dict[str, Any]]:
    """N from 10^3 to 10^6 at M = 64, and M from 8 to 128 at N = 10^4; psi stops at 10^5 points."""
    shapes = [(n, 64) for n in (1_000, 10_000, 100_000, 1_000_000)]
    shapes += [(10_000, n_basis) for n_basis in (8, 16, 32, 128)]
    limits = {"fast": 10**6, "psi": 10**5, "newton": 10**5}
    return [
        {"method": method, "n": n, "n_basis": n_basis, "repeat": repeat}
        for method in METHODS
        for n, n_basis in shapes
        if n <= limits[method]
        for repeat in range(5)
    ]


def medians(results: pd.DataFrame) -> pd.Series:
    """The median time of the repetitions, in seconds, by method, n and n_basis."""
    return results.groupby(["method", "n", "n_basis"], sort=False)["seconds"].median()


def draw_cost(results: pd.DataFrame) -> Figure:
    """Median times against N at M = 64, and against M at N = 10^4."""
    times = medians(results).reset_index()
    figure, (left, right) = subplots(1, 2, figsize=(8.0, 3.4))
    styles = {"psi": (":", "s", "GP"), "newton": ("--", "^", "PAVA"), "fast": ("-", "o", "ISGP")}
    for method, (dashes, marker, colour) in styles.items():
        rows = times[times["method"] == method]
        for axis, column, shown in (
            (left, "n", rows[rows["n_basis"] == 64]),
            (right, "n_basis", rows[rows["n"] == 10_000].sort_values("n_basis")),
        ):
            look = style(colour, marker, dashes, label=METHODS[method])
            axis.plot(shown[column], shown["seconds"], **look)
            axis.set(xscale="log", yscale="log", ylabel="seconds")
    left.set(title="M = 64", xlabel="number of points N")
    right.set(title="N = 10,000", xlabel="number of basis functions M")
    right.set_xscale("log", base=2)
    legend_above(figure, left, ncols=3)
    return figure


# One after another on one thread, so that the times can be compared.
run = partial(runs(measure, cells, "source_cost"), n_jobs=1)
