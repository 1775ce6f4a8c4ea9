"""The slider's script draws the package's curves, and asks nothing of a network."""

import json
import re

import numpy as np
import torch

from bayesloss import TrigonometricKernel
from bayesloss_book.learning.trigonometric_kernel.slider import prior_slider


def test_script_draws_the_package_s_curves(shown):
    tab = shown(prior_slider(2, 0)._repr_html_())
    inputs = tab.query_selector_all("input")
    values = {v.get_attribute("data-slider"): float(v.input_value()) for v in inputs}
    draws = tab.locator("[data-draws]").get_attribute("data-draws")
    kernel = TrigonometricKernel(
        a=1 + 10 ** values["a"], b=10 ** values["b"], c=values["c"], n_basis=int(values["M"])
    )
    x = torch.linspace(-1, 1, 241, dtype=torch.float64)
    noise = torch.tensor(json.loads(draws), dtype=torch.float64)
    w = noise[..., : kernel.n_basis // 2].flatten(1) * kernel.eigenvalues.sqrt()

    def height(values, reach):
        return 170 * (reach - values.clamp(-reach, reach)) / (2 * reach)

    zero = torch.zeros(1, dtype=torch.float64)
    expected = {("kernel", "0"): height(kernel(x, zero) / kernel.variance, 1.05)}
    for s in range(2):
        expected["f", str(s)] = height(kernel.basis(x) @ w[s], 4)
        expected["nu", str(s)] = height(kernel.integrated_square(x, w[s]), 2)
    for (kind, number), curve in expected.items():
        path = tab.locator(f'[data-panel="{kind}"] [data-curve="{number}"]').get_attribute("d")
        # One decimal of 170 units; nu is by trapezoids.
        heights = [float(y) for y in re.findall(r" (-?[\d.]+)", path)]
        np.testing.assert_allclose(heights, curve, atol=0.5, err_msg=kind)
