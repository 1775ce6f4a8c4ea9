import numpy as np
import pytest
from bs4 import BeautifulSoup

from bayesloss_book.learning.proper_losses.slider import CANVAS, forecast_slider


@pytest.fixture(scope="module")
def frames():
    tab = BeautifulSoup(forecast_slider()._repr_html_(), "html.parser")
    return {float(g["data-frame"]): g for g in tab.select("[data-frame]")}


def test_curves_are_the_losses_written_out(frames):
    u = np.linspace(0, 1, 101)[1:-1]
    pi = 0.3
    by_hand = [
        pi * (1 - u) + (1 - pi) * u,
        pi * (1 - u) ** 2 + (1 - pi) * u**2,
        -pi * np.log(u) - (1 - pi) * np.log(1 - u),
    ]
    for path, cost in zip(frames[pi]("path"), by_hand, strict=True):
        assert path["d"].removeprefix("M").split("L")[1:-1] == CANVAS.points(u, cost.clip(max=2))


def test_dots_and_words_say_the_best_number(frames):
    """The honest one, but where the distance is charged: then 0 or 1."""
    assert list(frames) == [k / 20 for k in range(1, 20)]
    for pi, g in frames.items():
        best = [float(pi > 0.5), pi, pi]
        named = zip(("distance", "square", "log"), best, strict=True)
        told = ", ".join(f"{name} {u:.2f}" for name, u in named)
        assert g["data-told"] == f"The best number: {told}."
        across = [f"{CANVAS.width * CANVAS.across.place(u):.1f}" for u in best]
        assert [dot["cx"] for dot in g("circle")] == across
