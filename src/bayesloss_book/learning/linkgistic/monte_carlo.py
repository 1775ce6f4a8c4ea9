"""How many draws does W&N's (13) need? The error of their average, beside the exact mean."""

import math

import pandas as pd
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from torch import Tensor

from bayesloss.learning.inference.laplace import Posterior, even_normals, ordered_root
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.sources.source_law import SourceLaw, functionals
from bayesloss_book.figures import COLOURS

SIZES = (1, 4, 16, 64, 256, 1024, 4096)


def expected_log_sigmoid(posterior: Posterior, x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """E_q log sigma(nu(x)) by the law of nu(x)."""
    prior, root, V = posterior.prior, posterior.root, posterior.prior.quadratic_form()[0]
    joint = LogJoint.of(prior, posterior.likelihood, x, torch.ones_like(x))
    turned = root.T @ functionals(V, joint.squares, prior.precision)
    g = joint.slopes(posterior.mode) @ root
    law = SourceLaw.of(posterior.moments(x), g, joint.squares, V @ root, turned)
    return law.expected_log_sigmoid().value


def errors(
    posterior: Posterior, x: Float[Tensor, " n"], *, n_repeats: int, seed: int
) -> pd.DataFrame:
    """Root mean square errors over x, by the number of draws: ``random`` and ``even`` ones.

    In nats a label. Random draws are repeated; even ones are the library's, the same each time.
    """
    exact, generator = expected_log_sigmoid(posterior, x), torch.Generator().manual_seed(seed)
    root = ordered_root(posterior, float(x.min()), float(x.max()))

    def error(Gamma: Tensor) -> float:
        mean = torch.nn.functional.logsigmoid(posterior.prior.source(x, Gamma)).mean(dim=0)
        return float((mean - exact).square().mean())

    rows = {}
    for size in SIZES:
        even = posterior.mode + even_normals(size, len(posterior.mode)) @ root.T
        random = [error(posterior.sample(size, generator)) for _ in range(n_repeats)]
        rows[size] = {
            "random": math.sqrt(sum(random) / n_repeats),
            "even": math.sqrt(error(even)),
        }
    return pd.DataFrame(rows).T.rename_axis("draws")


def draw_errors(table: pd.DataFrame) -> Figure:
    """Both errors against the number of draws, on logarithmic axes."""
    figure, axis = subplots(figsize=(5.6, 3.6))
    names = {"random": "random draws, as in (13)", "even": "evenly spread ones, as the library"}
    styles = ((COLOURS["GP"], "s", "--"), (COLOURS["ISGP"], "o", "-"))
    for (name, label), (colour, marker, line) in zip(names.items(), styles, strict=True):
        axis.loglog(
            table.index, table[name], color=colour, marker=marker, linestyle=line, label=label
        )
    axis.set(xlabel="number of draws $S$", ylabel="error, nats a label")
    axis.legend()
    return figure
