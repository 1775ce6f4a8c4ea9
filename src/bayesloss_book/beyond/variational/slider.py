"""A slider for the number of draws: averages over them, beside the integral that needs none."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from bayesloss.learning.inference.laplace import Posterior
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.drawing.html import DASHED, Axis, Canvas, Frame, curve, stepped
from bayesloss_book.references.source_laws import law_at
from paperledger.html import HTMLTable


def draws_slider(
    posterior: Posterior, x: Float[Tensor, " n"], sizes: Sequence[int], seed: int, start: int
) -> HTMLTable:
    """E sigma(nu(x)) on a grid, by the first S draws from a Gaussian posterior and exactly."""
    exact = 1 - law_at(posterior, x).expected_log_sigmoid().by_mean
    generator = torch.Generator().manual_seed(seed)
    nu = posterior.prior.source(x, posterior.sample(max(sizes), generator))
    across = Axis("x", float(x[0]), float(x[-1]), [float(x[0]), 0, float(x[-1])])
    canvas = Canvas(600, 240, across, Axis("probability", 0, 1, [0, 0.5, 1]))
    frames = []
    for size in sizes:
        p = torch.sigmoid(nu[:size]).mean(dim=0)
        off = 100 * float((p - exact).abs().max())
        told = f"Largest error: {off:.2f} percentage points."
        line = curve(canvas.points(x, p), f'stroke="{COLOURS["GP"]}" stroke-width="2.5"')
        frames.append(Frame(f"{size:,}", line, told))
    return stepped(
        "draws-slider",
        "draws",
        frames,
        start,
        curve(canvas.points(x, exact), DASHED),
        canvas,
        "The predictive probability by an average over draws, and by one integral, dashed",
        [
            (f"3px solid {COLOURS['GP']}", "average over draws"),
            ("2px dashed currentColor", "exact"),
        ],
    )
