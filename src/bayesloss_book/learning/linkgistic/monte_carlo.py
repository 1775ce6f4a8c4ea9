"""How many draws does W&N's (13) need? The error of their average, beside the exact mean."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from torch import Tensor

from bayesloss.learning.evidence.source_law import SourceLaw
from bayesloss.learning.inference.laplace import Posterior, even_normals, ordered_root
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.references.source_laws import law_at

SIZES = (4, 16, 64, 256, 1024, 4096)
MEASURES = ("Q", "a label", "p")


def of_one_normal(law: SourceLaw) -> SourceLaw:
    """The law of mu + g z + lambda (z^2 - 1), z normal, with the same three moments."""
    g = law.slopes
    lam = law.eigenvalues
    sd = law.variance.sqrt()
    skewness = (6 * lam * g**2 + 8 * lam**3).sum(dim=1) / sd**3
    r = math.sqrt(2) * torch.sin(torch.asin((skewness / math.sqrt(8)).clamp(-1, 1)) / 3)
    one = g.new_ones((1, 1))
    return SourceLaw(
        mean=law.mean,
        variance=law.variance,
        directions=one,
        axes=one.expand(len(g), 1, 1),
        slopes=(sd * (1 - 2 * r**2).sqrt())[:, None],
        eigenvalues=(sd * r)[:, None],
    )


def errors(
    posterior: Posterior,
    x: Float[Tensor, " n"],
    y: Float[Tensor, " n"],
    *,
    n_repeats: int,
    seed: int,
    sizes: Sequence[int] = SIZES,
) -> pd.DataFrame:
    """What averages over draws are off by at scores x of cases y, by the number S of draws.

    ``Q``, (13), in nats a case; ``a label``, the root mean square of E log sigma(nu(x)); ``p``, the
    largest error. ``even`` draws are the library's; the row 0 is :func:`of_one_normal`.
    """
    law = law_at(posterior, x)
    generator = torch.Generator().manual_seed(seed)
    found = law.expected_log_sigmoid()
    one = of_one_normal(law).expected_log_sigmoid()
    root = ordered_root(posterior, float(x.min()), float(x.max()))

    def three(fit: Tensor, mean: Tensor, miss: Tensor) -> Float[np.ndarray, "3"]:
        off = fit - found.value
        zero = off - (mean - law.mean)  # log sigma(-nu) = log sigma(nu) - nu
        of_Q = torch.where(y > 0, off, zero).mean()
        wrong = (miss - found.by_mean).abs().max()
        return torch.stack([of_Q, off.square().mean().sqrt(), wrong]).numpy()

    def by_draws(Gamma: Tensor) -> Float[np.ndarray, "3"]:
        nu = posterior.prior.source(x, Gamma)
        fit = torch.nn.functional.logsigmoid(nu).mean(dim=0)
        return three(fit, nu.mean(dim=0), torch.sigmoid(-nu).mean(dim=0))

    rows = {(0, "even"): three(one.value, law.mean, one.by_mean)}
    for size in sizes:
        even = posterior.mode + even_normals(size, len(posterior.mode)) @ root.T
        random = [by_draws(posterior.sample(size, generator)) for _ in range(n_repeats)]
        rows[size, "random"] = np.sqrt(np.square(random).mean(axis=0))
        rows[size, "even"] = by_draws(even)
    return pd.DataFrame(rows, index=pd.Index(MEASURES)).T.unstack().rename_axis(index="draws")


def spread(posterior: Posterior, x: Float[Tensor, " n"], y: Float[Tensor, " n"]) -> Tensor:
    """The standard deviation over cases of E log Bernoulli(y | sigma(nu(x))), in nats."""
    law = law_at(posterior, x)
    fit = law.expected_log_sigmoid().value
    return torch.where(y > 0, fit, fit - law.mean).std()


def draw_errors(table: pd.DataFrame) -> Figure:
    """Top, the error of (13) beside zero; below, that of a label, on logarithmic axes."""
    figure, (top, axis) = subplots(2, 1, figsize=(5.6, 5.4), sharex=True)
    random = COLOURS["GP"]
    even = COLOURS["ISGP"]
    table, rest = table.drop(index=0), table.loc[0, ("a label", "even")]
    off = 1000 * table["Q", "even"]
    spread = 1000 * table["Q", "random"]
    top.fill_between(table.index, -spread, spread, color=random, alpha=0.3, linewidth=0)
    top.axhline(0, color="0.3", linewidth=0.8)
    top.plot(off.index, off, "o-", color=even)
    of_label = 1000 * table["a label"]
    axis.loglog(of_label["random"], "s--", color=random, label="random draws, as W&N's")
    axis.loglog(of_label["even"], "o-", color=even, label="even points, as the library")
    axis.axhline(1000 * rest, color="0.3", linestyle=":", label="no draws: one normal variable")
    top.set(ylabel="error of $Q$ per label,\nthousandths of a nat")
    axis.set(xlabel="number of draws $S$", ylabel="error of one label,\nthousandths of a nat")
    figure.legend(loc="outside upper center", ncols=1)
    return figure
