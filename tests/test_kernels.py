import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bayesloss.kernels import SquaredExponential


def test_values():
    kernel = SquaredExponential(a=2.0, b=3.0)
    x = torch.tensor([0.0, 1.0])
    z = torch.tensor([0.5, 1.0, -2.0])
    expected = [[3 * math.exp(-((p - q) ** 2)) for q in z.tolist()] for p in x.tolist()]
    got = kernel(x, z)
    assert got.dtype == torch.float64
    np.testing.assert_allclose(got, expected, rtol=1e-14)


def test_several_dimensions():
    kernel = SquaredExponential(a=0.5, b=2.0)
    x, z = torch.randn((2, 4, 3), generator=torch.Generator().manual_seed(0))
    one = SquaredExponential(a=0.5)
    expected = 2 * torch.stack([one(x[:, i], z[:, i]) for i in range(3)]).prod(dim=0)
    # Single precision loses nothing that it has, on either side.
    for left, right in ((x, z), (x.double(), z), (x, z.double())):
        np.testing.assert_allclose(kernel(left, right), expected, rtol=1e-13)


def test_no_array_of_n_by_m_by_dimension():
    kernel = SquaredExponential(a=0.1)
    x, z = torch.randn((2, 50, 20), generator=torch.Generator().manual_seed(0)).double()
    assert torch.vmap(kernel.__call__)(x[None], z[None])[0].equal(kernel(x, z))

    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            largest = max(largest, out.numel() if isinstance(out, torch.Tensor) else 0)
            return out

    x = torch.zeros((1000, 100), dtype=torch.float64)
    with Watch():
        kernel(x, x)
    assert largest < 5_000_000  # all differences would be 100 million


@pytest.mark.parametrize("columns", [1, 2])
def test_inputs_far_from_zero_are_as_far_apart(columns):
    """Moved by 2^24, whose square leaves no digits for differences below 1; 30 rows are many."""
    x = torch.randint(1024, (30, columns), generator=torch.Generator().manual_seed(0)) / 1024.0
    x = x.double().squeeze(1)  # in units of 2^-10, so that moving it rounds nothing
    kernel = SquaredExponential(a=2.0)
    torch.testing.assert_close(kernel(x + 2**24, x + 2**24), kernel(x, x), rtol=1e-14, atol=0)


def test_gradients_flow():
    x = torch.linspace(-1, 1, 4, dtype=torch.float64)
    theta = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (1.5, 0.7)]
    assert torch.autograd.gradcheck(lambda a, b: SquaredExponential(a=a, b=b)(x, x), theta)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["a", "b"])
def test_bad_hyper_parameters(name, bad):
    with pytest.raises(ValueError, match=f"expected a finite {name} > 0, got {name}="):
        SquaredExponential(**({"a": 1.0, "b": 1.0} | {name: bad}))


@pytest.mark.parametrize("shapes", [((), ()), ((2,), (2, 1)), ((2, 2), (2, 3)), ((1, 1, 1),) * 2])
def test_bad_shapes(shapes):
    with pytest.raises(ValueError, match="expected x and z of shape"):
        SquaredExponential(a=1.0)(*(torch.zeros(shape) for shape in shapes))


def test_repr():
    assert repr(SquaredExponential(a=1.5, b=2)) == "SquaredExponential(a=1.5, b=2)"
