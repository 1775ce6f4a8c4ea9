"""One thread of torch for the tests of `bayesloss.learning`, and a device where there is none."""

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from bayesloss.learning.weights.linear_scores import LinearScores

_INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")


def _changed(change, value):
    """What an operation is given or gives, with its tensors changed; PyTorch's trees are slow."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)([_changed(change, each) for each in value])
    return value


class _There(torch.Tensor):
    """A tensor on the second device: what it holds is seen by its operations alone."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=SecondDevice.device
        )

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"expected tensors of the second device within it, got {func} without")


class _Lists(TorchFunctionMode):
    """Lists of numbers on their way to and from the device, which PyTorch moves by itself."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.tolist and isinstance(args[0], _There):
            return args[0].held.tolist()
        if function is torch.Tensor.new_tensor and isinstance(args[0], _There):
            return torch.tensor(args[1], dtype=args[0].dtype).to(SecondDevice.device)
        indexes = function in (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
        if indexes and isinstance(args[0], _There) and isinstance(args[1], list):
            args = (args[0], torch.tensor(args[1]).to(SecondDevice.device), *args[2:])
        return function(*args, **(kwargs or {}))


class SecondDevice(TorchDispatchMode):
    """A device beside the processor, where there is no other; it computes as the processor does.

    Its tensors do not mix with the processor's, but for numbers and for row numbers, as on a GPU.

    Attributes
    ----------
    used : int
        How many operations it has done.
    """

    device = torch.device("meta")  # the one kind that every build of PyTorch has a place for

    def __init__(self):
        super().__init__()
        self.used, self._lists = 0, _Lists()

    def __enter__(self):
        self._lists.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._lists.__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = function.overloadpacket.__name__
        if not types and kwargs.get("device") is None:  # of the processor
            return function(*args, **kwargs)
        given = []
        first = bool(args) and isinstance(args[0], _There)

        def held(each):
            given.append(each)
            return each.held if isinstance(each, _There) else each

        args = _changed(held, args)
        kwargs = {each: _changed(held, value) for each, value in kwargs.items()}
        inside = there = any(isinstance(each, _There) for each in given)
        mixed = any(each.ndim and not isinstance(each, _There) for each in given)
        if any(each.is_meta and not isinstance(each, _There) for each in given):
            raise RuntimeError(f"expected tensors that hold something, got one without: {function}")
        if kwargs.get("device") is not None:
            there = kwargs["device"] == self.device
            kwargs["device"] = torch.device("cpu")
        elif name == "copy_":
            there = first
        indexing = name in _INDEXING and first
        if inside and mixed and not indexing and name not in ("_to_copy", "copy_"):
            raise RuntimeError(f"expected all tensors on one device, got two: {function}")
        self.used += inside
        out = function(*args, **kwargs)
        scalar = name == "_local_scalar_dense"
        return _changed(_There, out) if there and not scalar else out


@pytest.fixture
def second_device():
    return SecondDevice


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Where other work runs, the second thread of a small QR waits and costs ten times its gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def problem():
    def made(n=200, d=5, k=3, C=0.7, seed=0, scale=1.0):
        """Inputs far from the origin, on very different scales; labels that depend on them."""
        generator = np.random.default_rng(seed)
        spread = scale * np.geomspace(1, 50, d)
        z = generator.normal(size=(n, d)) * spread + 20 * spread
        truth = generator.normal(size=(k, d)) / spread
        odds = truth @ (z - z.mean(0)).T
        labels = (generator.random((k, n)) < 1 / (1 + np.exp(-odds))).astype(np.int64)
        weight = generator.integers(1, 4, n).astype(float)
        arrays = (torch.from_numpy(a) for a in (z, labels, weight))
        return LinearScores.of(*arrays, C)

    return made
