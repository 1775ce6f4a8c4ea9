"""The squared-exponential kernel, on which both papers stand."""

import torch
from torch import Tensor

from bayesloss.tensors import as_number, as_positive


class SquaredExponential:
    r"""The kernel :math:`k(x, z) = b \exp(-\frac{a}{2} \lVert x - z\rVert^2)`, W&N appendix F.

    Parameters
    ----------
    a : float or scalar Tensor
        Inverse square of the length scale, positive (or a ValueError): large for *rough* functions,
        unlike the a of :class:`TrigonometricKernel`.
    b : float or scalar Tensor, default=1
        Prior variance, positive (or a ValueError).

    Examples
    --------
    >>> import torch
    >>> from bayesloss import SquaredExponential
    >>> kernel = SquaredExponential(a=4.0)  # a length scale of 1/2
    >>> kernel(torch.tensor([0.0, 0.5]), torch.tensor([0.0])).round(decimals=2).tolist()
    [[1.0], [0.61]]
    """

    def __init__(self, *, a: float | Tensor, b: float | Tensor = 1.0) -> None:
        self.a = as_positive(a, "a")
        self.b = as_positive(b, "b")

    def __repr__(self) -> str:
        return f"SquaredExponential(a={as_number(self.a):.4g}, b={as_number(self.b):.4g})"

    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        """All k(x_i, z_j), of shape (n, m), for x and z of shape (n,), (m,) or (n, D), (m, D)."""
        if x.ndim not in (1, 2) or x.ndim != z.ndim or x.shape[1:] != z.shape[1:]:
            raise ValueError(
                "expected x and z of shape (n,) and (m,), or (n, D) and (m, D), got "
                f"{tuple(x.shape)} and {tuple(z.shape)}"
            )
        x = x.to(torch.float64)
        z = z.to(torch.float64)
        if x.ndim == 1:
            square = (x[:, None] - z) ** 2
        else:  # not by x^2 + z^2 - 2 x z, which loses digits where x and z are near
            square = torch.cdist(x, z, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        return self.b * torch.exp(-0.5 * self.a * square)
