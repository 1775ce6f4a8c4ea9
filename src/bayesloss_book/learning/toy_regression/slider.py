"""A slider that lets data arrive one after the other: it asks nothing of a network."""

from collections.abc import Sequence

import numpy as np

from bayesloss.learning.evidence.evidence import EvidenceMaximum
from bayesloss.learning.inference.laplace import laplace
from bayesloss.learning.inference.likelihoods import Gaussian
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.drawing.html import DASHED, Axis, Canvas, Frame, curve, ribbon, stepped
from bayesloss_book.problems.toys import Problem, grid
from paperledger.html import HTMLTable


def posterior_slider(
    found: EvidenceMaximum[Gaussian], data: Problem, sizes: Sequence[int]
) -> HTMLTable:
    """The posterior of nu given the first n data, hyper-parameters as found from all of them."""
    x = grid(n=81)
    curves = {}
    for n in sizes:
        posterior = laplace(found.posterior.prior, found.likelihood, data.x[:n], data.y[:n])
        mean, variance = posterior.moments(x)
        curves[n] = (mean.numpy(), 2 * variance.sqrt().numpy())
    truth = data.source(x).numpy()
    reach = 1.3 * float(np.abs(np.concatenate([truth, data.y.numpy()])).max())
    across = Axis("x", float(x[0]), float(x[-1]), [float(x[0]), 0, float(x[-1])])
    canvas = Canvas(600, 300, across, Axis("ν", -reach, reach, [-int(reach), 0, int(reach)]))

    def points(height: np.ndarray) -> list[str]:
        # Bands of few data leave the picture; a margin keeps their edges out of sight.
        return canvas.points(x, np.clip(height, -1.1 * reach, 1.1 * reach))

    colour = COLOURS["ISGP"]
    dots = [
        '<circle cx="{}" cy="{}" r="3" fill="currentColor" opacity="0.7"/>'.format(*point.split())
        for point in canvas.points(data.x, data.y)
    ]
    frames = [
        Frame(
            f"{n}",
            ribbon(points(mean - band), points(mean + band), colour)
            + curve(points(mean), f'stroke="{colour}" stroke-width="2"')
            + "".join(dots[:n]),
            f"The band is {2 * float(band.mean()):.1f} wide on average.",
        )
        for n, (mean, band) in curves.items()
    ]
    return stepped(
        "posterior-slider",
        "number of data",
        frames,
        len(sizes) - 1,
        curve(points(truth), DASHED),
        canvas,
        "The posterior mean and band of nu, the data so far, and the truth, dashed",
        [
            (f"2px solid {colour}", "posterior mean, band of two standard deviations"),
            ("2px dashed currentColor", "truth"),
        ],
    )
