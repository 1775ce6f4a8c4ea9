import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup

from bayesloss import ISGP, Bernoulli, TrigonometricKernel, laplace
from bayesloss_book.beyond.variational.slider import draws_slider


def test_curves_are_drawn_to_scale_and_errors_shrink():
    """The exact curve against other draws, within their error; what is told against the picture."""
    x = torch.linspace(-1, 1, 31, dtype=torch.float64)
    prior = ISGP(TrigonometricKernel(a=2.0, c=0.25, n_basis=6))
    posterior = laplace(prior, Bernoulli(), x, (x > 0.1).double())
    text = draws_slider(posterior, x, (4, 4_000), 0, start=0)._repr_html_()
    *averages, exact = (
        1 - np.array([point.split() for point in path["d"][1:].split("L")], float)[:, 1] / 240
        for path in BeautifulSoup(text, "html.parser").svg("path", fill="none")
    )
    others = torch.sigmoid(
        prior.source(x, posterior.sample(20_000, torch.Generator().manual_seed(1)))
    ).numpy()
    error = others.std(axis=0) / np.sqrt(len(others))
    assert (np.abs(others.mean(axis=0) - exact) < 4.5 * error + 3e-4).all()  # and pixels
    frames = BeautifulSoup(text, "html.parser").select("[data-frame]")
    told = [float(frame["data-told"].split()[2]) for frame in frames]
    assert told[1] < told[0]
    for off, average in zip(told, averages, strict=True):
        assert off == pytest.approx(100 * np.abs(average - exact).max(), abs=0.06)
