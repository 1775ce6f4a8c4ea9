"""The trigonometric kernel (W&N section 4.3 and appendix E) and the integrals that it makes cheap.

The basis is cosines and sines up to harmonic :math:`M/2`, eq. (14):

    phi(x) = (cos(pi c x), ..., cos(pi c x M/2), sin(pi c x), ..., sin(pi c x M/2)),
    lambda = (b/a, ..., b/a^(M/2), b/a, ..., b/a^(M/2)).

The integral of the square of :math:`f = w^T phi`, a trigonometric polynomial of twice the degree,
combines with the Fourier coefficients of f^2 the :math:`2M + 1` functions

    h(x) = (x, S_1, ..., S_M, D_1, ..., D_M),  S_k = sin(k pi c x) / (k pi c),
                                               D_k = (1 - cos(k pi c x)) / (k pi c).

P is the discrete Fourier transform of f^2 at :math:`2M + 2` points of a period, where f is V w: no
n x M x M array is needed.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

from bayesloss.learning.sources.basis import BLOCK, Basis
from bayesloss.tensors import as_number, as_points, as_positive


class TrigonometricKernel(Basis):
    """A translation-invariant kernel whose Mercer expansion is a finite Fourier series.

    W&N section 4.3. ``eigenvalues`` are the diagonal of Lambda, eq. (14), ``variance`` is k(0, 0),
    eq. (15), and ``edge``, 1 / c, the end of the period. Values out of range raise a ValueError.

    Parameters
    ----------
    a : float or scalar Tensor
        Decay of the eigenvalues, ``a > 1``: the larger, the smoother.
    c : float
        The inverse of half the period: functions repeat every ``2 / c``, in the units of x.
    n_basis : int, default=64
        Number M of basis functions, even.
    b : float or scalar Tensor, optional
        Scale of the eigenvalues, positive. By default k(0, 0) is 1.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import TrigonometricKernel
    >>> kernel = TrigonometricKernel(a=2.0, c=0.25, n_basis=4)
    >>> x = torch.tensor([0.0, 4.0, 8.0], dtype=torch.float64)  # a period is 2 / c = 8
    >>> kernel(x, x[:1]).round(decimals=2).tolist()
    [1.0, -0.33, 1.0]
    """

    def __init__(
        self, *, a: float | Tensor, c: float, n_basis: int = 64, b: float | Tensor | None = None
    ) -> None:
        if int(n_basis) != n_basis or n_basis < 2 or n_basis % 2:
            raise ValueError(f"expected n_basis even and at least 2, got n_basis={n_basis}")
        self.a = as_positive(a, "a", above=1.0)
        self.c = float(as_positive(c, "c"))
        self.edge = 1 / self.c
        self.n_basis = int(n_basis)
        harmonics = self.n_basis // 2
        unit_variance = (1 - self.a**-harmonics) / (self.a - 1)
        if b is None:
            self.b = 1 / unit_variance
        else:
            self.b = as_positive(b, "b")
        self.variance = self.b * unit_variance  # eq. (15)
        powers = torch.arange(1, harmonics + 1, dtype=torch.float64, device=self.a.device)
        self.eigenvalues = (self.b / self.a**powers).repeat(2)  # the diagonal of Lambda, eq. (14)

    def scaled(
        self, variance: float | Tensor, a: float | Tensor | None = None
    ) -> "TrigonometricKernel":
        """The kernel whose k(0, 0) is ``variance``, of this or the same a, and of the same c, M."""
        kernel = self
        if a is not None:
            kernel = TrigonometricKernel(a=a, c=self.c, n_basis=self.n_basis)
        b = kernel.b / kernel.variance * variance
        return TrigonometricKernel(a=kernel.a, c=self.c, n_basis=self.n_basis, b=b)

    def __repr__(self) -> str:
        return (
            f"TrigonometricKernel(a={as_number(self.a):.4g}, b={as_number(self.b):.4g}, "
            f"c={self.c:.4g}, n_basis={self.n_basis})"
        )

    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        """The kernel k(x, z), with x and z broadcast: the sum b Re (ratio + ... + ratio^(M/2)).

        Appendix E prints it as one fraction, with errors: see book/reference/errata.
        """
        angle = math.pi * self.c * (x.to(torch.float64) - z.to(torch.float64))
        ratio = torch.polar(1 / self.a.expand(angle.shape), angle)
        return self.b * (ratio * (1 - ratio ** (self.n_basis // 2)) / (1 - ratio)).real

    def basis(self, x: Tensor) -> Tensor:
        waves = _powers(math.pi * self.c * as_points(x), self.n_basis // 2)
        return torch.cat([waves.real, waves.imag], dim=1)  # eq. (14)

    def integrals(self, x: Tensor) -> Tensor:
        x = as_points(x)
        frequency = self._frequencies(x.device)
        half = _powers(0.5 * math.pi * self.c * x, self.n_basis)
        # In half angles neither function loses digits near x = 0.
        sines = 2 * half.real * half.imag / frequency
        cosines = 2 * half.imag**2 / frequency
        return torch.cat([x[:, None], sines, cosines], dim=1)

    def squares(self) -> tuple[Tensor, Tensor]:
        return _fourier_transform(self.n_basis, self.eigenvalues.device)

    def integrated_square(self, x: Tensor, w: Tensor) -> Tensor:
        p = self.square_coefficients(w.reshape(-1, self.n_basis))
        level, cosines, sines = p.split([1, self.n_basis, self.n_basis], dim=1)  # of f^2
        frequency = self._frequencies(w.device)
        series = torch.complex(-sines, -cosines) / frequency
        # With z = exp(i pi c x) and frequency omega = k pi c, the integral of p cos + q sin from 0
        # to x is Re (-q - i p) / omega (z^k - 1), and the rest sums these. As z^k - 1 cancels near
        # x = 0, z - 1 is taken out, exact in half angles: z^k - 1 = (z - 1)(1 + ... + z^(k-1)).
        quotient = series.flip(1).cumsum(1).flip(1)
        # `_polynomial` holds 8 (M S)^1/2 + 4 (M / S)^1/2 numbers a point. These are about as many,
        # or more; of few curves or functions they may be half as many, which does no harm.
        numbers = 16 * (self.n_basis // 8 + len(series))
        rows = max(1, BLOCK // numbers)
        values = []
        for block in as_points(x).split(rows):
            half = 0.5 * math.pi * self.c * block
            z_less_one = 2j * half.sin() * torch.polar(torch.ones_like(half), half)
            rest = z_less_one * _polynomial(quotient, 2 * half)
            values.append(level * block + rest.real)
        return torch.cat(values, dim=1).reshape(*w.shape[:-1], len(x))

    def psi(self, x: Tensor) -> Tensor:
        """The matrix psi(x) of eq. (9) from the squares: w^T psi w = h^T P (V w)^2 for every w.

        Appendix E integrates each product of two basis functions by itself. These are the same
        numbers, once a misprint is corrected: see *the mixed integral* in book/reference/errata.
        """
        V, P = self.squares()
        return V.T @ ((self.integrals(x) @ P)[:, :, None] * V)

    def _frequencies(self, device: torch.device) -> Tensor:
        harmonics = torch.arange(1, self.n_basis + 1, dtype=torch.float64, device=device)
        return math.pi * self.c * harmonics


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # or else what is kept there could not be differentiated elsewhere
def _fourier_transform(n_basis: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The basis at 2M + 2 points of a period, and a Fourier transform exact for f^2's degree, M."""
    size = 2 * n_basis + 2
    angle = torch.arange(size, dtype=torch.float64, device=device) * (2 * math.pi / size)
    waves = _powers(angle, n_basis)
    harmonics = waves[:, : n_basis // 2]  # of the basis; those of f^2 go to n_basis
    V = torch.cat([harmonics.real, harmonics.imag], dim=1)
    mean = torch.ones((1, size), dtype=torch.float64, device=device)
    P = torch.cat([mean, 2 * waves.real.T, 2 * waves.imag.T]) / size
    return V, P


def _powers(angle: Tensor, degree: int) -> Tensor:
    """The powers exp(i k angle), k = 1..degree, by doubling: one sine and cosine a point."""
    waves = torch.polar(torch.ones_like(angle), angle)[:, None]
    while waves.shape[1] < degree:
        waves = torch.cat([waves, waves * waves[:, -1:]], dim=1)
    return waves[:, :degree]


def _polynomial(coefficients: Tensor, angle: Tensor) -> Tensor:
    """Polynomials, (S, K), at exp(i angle), (S, n), in pieces (Paterson and Stockmeyer 1973)."""
    n_series, degree = coefficients.shape
    inner = min(degree, max(1, math.isqrt(degree * n_series)))  # there may be no series
    outer = -(-degree // inner)
    pieces = coefficients.new_zeros((n_series, outer * inner))
    pieces[:, :degree] = coefficients
    ones = coefficients.new_ones((len(angle), 1))
    low = torch.cat([ones, _powers(angle, inner - 1)], dim=1)
    high = torch.cat([ones, _powers(inner * angle, outer - 1)], dim=1)
    values = pieces.reshape(-1, inner) @ low.T
    return (values.reshape(n_series, outer, len(angle)) * high.T).sum(dim=1)
