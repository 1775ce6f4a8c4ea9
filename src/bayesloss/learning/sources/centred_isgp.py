r"""The ISGP with a mean: a prior over monotone sources that is centred on a straight line.

W&N's f has mean zero, so that nu(x) = x on average but along no path: f^2 is chi-square. Where a
straight line is the first guess, as with log odds that a sigmoid was fitted to, f is given a level:

    f = w_0 + w^T phi,   w_0 ~ N(m, tau^2),   w ~ N(0, s^2 Lambda),   nu(x) = nu_0 + int_0^x f^2.

With k(0, 0) = 1 and m^2 + tau^2 + s^2 = 1 the prior mean is nu(x) = mu + x as before (theorem 5),
and s^2 says how far a path strays from a line. Since the basis (14) is harmonics,

    int f^2 = w_0^2 x + 2 w_0 int w^T phi + int (w^T phi)^2

combines the same 2M + 1 functions h(x): nothing else of the ISGP changes.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

from bayesloss.arrays import as_number
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel

__all__ = ["CentredISGP"]


class CentredISGP(SourcePrior):
    """Monotone sources around a straight line of slope 1.

    Parameters
    ----------
    kernel : TrigonometricKernel
        Of the part of f that varies, scaled to its variance s^2.
    tau : float, default=0.5
        Prior standard deviation of the level w_0 of f; s^2 + tau^2 < 1.
    mu, gamma : float
        Prior mean and precision of nu_0.

    Attributes
    ----------
    location, precision : Tensor of shape (M + 2,)
        Of Gamma = (w, w_0, nu_0).

    Raises
    ------
    ValueError
        If s^2 + tau^2 is not below 1.
    """

    def __init__(
        self, kernel: TrigonometricKernel, *, tau: float = 0.5, mu: float = 0.0, gamma: float = 1.0
    ) -> None:
        super().__init__(kernel, mu=mu, gamma=gamma)
        self.tau = float(tau)
        self._waves = _waves(kernel.n_basis)
        rest = 1 - as_number(kernel.variance) - self.tau**2
        if not (rest > 0 and self.tau > 0):
            raise ValueError(
                "expected tau > 0 and kernel.variance + tau^2 < 1, got "
                f"{as_number(kernel.variance):.4g} and tau={tau}"
            )
        level = self.mu.new_tensor([math.sqrt(rest)])
        spread = self.mu.new_tensor([self.tau**-2])
        self.location = torch.cat([self.location[:-1], level, self.location[-1:]])
        self.precision = torch.cat([self.precision[:-1], spread, self.precision[-1:]])

    def features(self, x: Tensor) -> Tensor:
        """The functions h(x) of the kernel, and 1: of shape (n, 2M + 2)."""
        return torch.cat([self.kernel.integrals(x), x.new_ones((len(x), 1))], dim=1)

    def coefficients(self, Gamma: Tensor) -> Tensor:
        """The Fourier coefficients of f^2, and nu_0."""
        w, level, nu_0 = Gamma[..., :-2], Gamma[..., -2:-1], Gamma[..., -1:]
        square = self.kernel.square_coefficients(w[..., :, None] * w[..., None, :])
        return torch.cat([square + self._linear(level, level, w), nu_0], dim=-1)

    def jacobian(self, Gamma: Tensor) -> Tensor:
        """Of shape (2M + 2, M + 2)."""
        columns = 2 * (_forms(self.kernel.n_basis) @ Gamma[:-1])
        return torch.block_diag(columns, Gamma.new_ones((1, 1)))

    def curvature(self, s: Tensor) -> Tensor:
        """Constant in Gamma, zero for nu_0."""
        bend = 2 * torch.tensordot(s[:-1], _forms(self.kernel.n_basis), 1)
        return torch.block_diag(bend, s.new_zeros((1, 1)))

    def squares(self) -> tuple[Tensor, Tensor]:
        """Those of the kernel, with the level w_0 added to f."""
        V, P = self.kernel.squares()
        pad = torch.nn.functional.pad
        return pad(pad(V, (0, 1), value=1.0), (0, 1)), pad(P, (0, 0, 0, 1))

    def mean_coefficients(self, location: Tensor, root: Tensor) -> Tensor:
        """E[f^2] is quadratic in the moments of (w, w_0)."""
        w, level, nu_0 = location[:-2], location[-2:-1], location[-1:]
        moment = root[:-1] @ root[:-1].T
        square = self.kernel.square_coefficients(moment[:-1, :-1] + torch.outer(w, w))
        cross = self._linear(level, level, w)
        noise = self._linear(level.new_ones(1), moment[-1:, -1], moment[:-1, -1])
        return torch.cat([square + cross + noise, nu_0])

    def fluctuations(self, location: Tensor, root: Tensor, rows: Tensor) -> Tensor:
        """The part linear in Gamma, and the quadratic one, as in the ISGP."""
        linear = rows @ self.jacobian(location) @ root
        forms = torch.tensordot(rows[:, :-1], _forms(self.kernel.n_basis), 1)
        quadratic = root[:-1].T @ (forms @ root[:-1])
        return torch.cat([linear, math.sqrt(2) * quadratic.flatten(1)], dim=1)

    def derivative(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The values f(x)^2."""
        return (Gamma[..., :-2] @ self.kernel.basis(x).T + Gamma[..., -2:-1]) ** 2

    def mean(self, x: Tensor) -> Tensor:
        """The line mu + x."""
        return self.mu + x

    def start(self, x: Tensor) -> Tensor:
        """The prior mean of Gamma: f constant."""
        return self.location

    def _linear(self, level: Tensor, square: Tensor, w: Tensor) -> Tensor:
        out = w.new_zeros((*w.shape[:-1], 2 * self.kernel.n_basis + 1))
        out[..., :1] = level * square
        out[..., self._waves] = 2 * (level * w)
        return out


def _waves(n_basis: int) -> Tensor:
    """Where h has the integrals of the basis functions: S_k for cosines, D_k for sines."""
    half = torch.arange(1, n_basis // 2 + 1)
    return torch.cat([half, n_basis + half])


@lru_cache(maxsize=4)
@torch.inference_mode(False)  # or else what is cached there could not be differentiated elsewhere
def _forms(n_basis: int) -> Tensor:
    """Matrices B_f with (w, w_0)^T B_f (w, w_0) = coefficient f of f^2, of shape (F, M + 1, M + 1).

    They are dense, but small, and a product with them is one call.
    """
    kernel = TrigonometricKernel(a=2.0, c=1.0, n_basis=n_basis)  # all have the same
    units = torch.eye(2 * n_basis + 1, dtype=torch.float64)
    inner, edge = kernel.combine(units), units[:, _waves(n_basis)]
    top = torch.cat([inner, edge[:, :, None]], dim=2)
    bottom = torch.cat([edge, units[:, :1]], dim=1)
    return torch.cat([top, bottom[:, None, :]], dim=1)
