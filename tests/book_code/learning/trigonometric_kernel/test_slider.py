"""The sliders: what the page carries, and that it asks nothing of a network."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup

from bayesloss import TrigonometricKernel
from bayesloss_book.learning.trigonometric_kernel.slider import prior_slider


def content():
    return prior_slider(2, 0)._repr_html_()


def test_draws_are_the_seed_s():
    div = BeautifulSoup(content(), "html.parser").div
    expected = np.random.default_rng(0).normal(size=(2, 2, 32))
    np.testing.assert_allclose(json.loads(div["data-draws"]), expected, atol=5.1e-4)


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the script outside a browser")
def test_script_draws_the_package_s_curves():
    """Run the script on a page of stubs, and read the paths that it sets."""
    text = content()
    script = re.search(r"<script>(.*)</script>", text, re.DOTALL)[1]
    elements = BeautifulSoup(text, "html.parser")
    draws = elements.div["data-draws"]
    values = {v["data-slider"]: float(v["value"]) for v in elements.find_all("input")}
    stub = f"""
      const values = {json.dumps(values)}, paths = {{}}, stubs = {{}};
      const box = {{
        dataset: {{draws: {json.dumps(draws)}}},
        addEventListener: () => 0,
        querySelector: (s) => stubs[s] ??= {{
          value: values[(s.match(/slider="(\\w+)"/) || [])[1]],
          setAttribute: (name, v) => {{ if (name == "d") paths[s] = v; }},
        }},
      }};
      const document = {{getElementById: () => box}};
      {script}
      console.log(JSON.stringify(paths));
    """
    done = subprocess.run(["node", "-e", stub], capture_output=True, text=True, check=True)
    paths = {
        tuple(re.findall(r'"(\w+)"', selector)): np.array(
            [float(y) for y in re.findall(r" (-?[\d.]+)", path)]
        )
        for selector, path in json.loads(done.stdout).items()
    }
    kernel = TrigonometricKernel(
        a=1 + 10 ** values["a"],
        b=10 ** values["b"],
        c=values["c"],
        n_basis=int(values["M"]),
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
    for key, curve in expected.items():
        # One decimal of 170 units; nu is by trapezoids.
        np.testing.assert_allclose(paths[key], curve, atol=0.5, err_msg=str(key))
