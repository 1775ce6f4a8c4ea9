"""A slider through the rounds of EM: the learned link, as a picture a round, without a network."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import expit

from bayesloss_book import Array
from bayesloss_book.drawing.figures import COLOURS
from bayesloss_book.drawing.html import DASHED, Axis, Canvas, Frame, curve, ribbon, stepped
from bayesloss_book.learning.linkgistic.rounds import Round
from paperledger.html import HTMLTable

_REACH = 2.5  # of the scores shown, in their standard deviations
_CANVAS = Canvas(
    600,
    300,
    Axis("standardised score", -_REACH, _REACH, [-2, -1, 0, 1, 2]),
    Axis("probability", 0, 1, [0, 0.5, 1]),
)
_DOTTED = f'stroke="{COLOURS["Linear"]}" stroke-dasharray="2 4" stroke-width="2"'


def link_slider(
    rounds: Sequence[Round],
    shown: Sequence[int],
    t: ArrayLike,
    odds: ArrayLike,
    *,
    fixed: tuple[float, float],
    losses: Sequence[float],
    angles: Sequence[float],
    others: tuple[float, float],
) -> HTMLTable:
    """The learned inverse link after some rounds, with its 95 % band, a fixed link, and the truth.

    Curves are over standardised scores ``t``, with the true log odds; ``fixed`` are logistic
    regression's log odds at zero and their rise; losses in nats and angles of the weights in
    degrees, one for each round shown; ``others``, the losses of logistic regression and the truth.
    """
    line = np.linspace(-_REACH, _REACH, 121)
    frames = [
        Frame(
            f"{k}",
            _drawn(rounds[k], line),
            f"Log loss on new data {loss:.3f} nats; logistic regression {others[0]:.3f}, truth "
            f"{others[1]:.3f}. The weights point {angle:.0f}° off the true ones.",
        )
        for k, loss, angle in zip(shown, losses, angles, strict=True)
    ]
    t = np.asarray(t, dtype=float)
    odds = np.asarray(odds, dtype=float)
    order = np.argsort(t)
    truth = expit(np.interp(line, t[order], odds[order]))
    logistic = curve(_CANVAS.points(line, expit(fixed[0] + fixed[1] * line)), _DOTTED)
    return stepped(
        "link-slider",
        "round of EM",
        frames,
        0,
        logistic + curve(_CANVAS.points(line, truth), DASHED),
        _CANVAS,
        "The learned inverse link with its band, the true one, dashed, and the sigmoid, dotted",
        [
            (f"2px solid {COLOURS['ISGP']}", "learned, with its 95 % band"),
            (f"2px dotted {COLOURS['Linear']}", "logistic regression"),
            ("2px dashed currentColor", "truth"),
        ],
    )


def band(found: Round, t: Array) -> Array:
    """The learned probability at standardised scores: 2.5 % quantile, mean and 97.5 % quantile."""
    x = torch.from_numpy(t) * found.scores.std()
    draws = found.posterior.sample(200, torch.Generator().manual_seed(0))
    u = expit(found.posterior.prior.source(x, draws).numpy())
    low, high = np.quantile(u, [0.025, 0.975], axis=0)
    return np.stack([low, u.mean(axis=0), high])


def _drawn(found: Round, t: Array) -> str:
    low, mean, high = (_CANVAS.points(t, each) for each in band(found, t))
    colour = COLOURS["ISGP"]
    return ribbon(low, high, colour) + curve(mean, f'stroke="{colour}" stroke-width="2"')
