r"""Priors over sources: the integrated squared Gaussian process, and the plain Gaussian process.

The generative model of the ISGP (W&N section 3, definition 2):

    nu_0 ~ N(mu, 1/gamma),   w ~ N(0, Lambda),   f = w^T phi,   nu(x) = nu_0 + int_0^x f(z)^2 dz.

Both priors are Gaussian in the parameters Gamma = (w, nu_0), a vector with nu_0 last, and in both
nu(x) is linear in features of x that Gamma does not enter:

    nu(x) = features(x) @ coefficients(Gamma).

For the GP the coefficients are Gamma itself; for the ISGP they are quadratic in w. Inference asks a
prior for no more than these two and the derivatives of the second.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from bayesloss.arrays import as_number, as_scalar
from bayesloss.learning.sources.basis import Basis
from bayesloss.learning.sources.trigonometric import TrigonometricKernel

__all__ = ["GP", "ISGP", "SourcePrior", "trigonometric"]

B = TypeVar("B", bound=Basis, covariant=True)


class SourcePrior(ABC, Generic[B]):
    """A Gaussian prior on Gamma = (w, nu_0) and the function nu that Gamma stands for.

    Parameters
    ----------
    kernel : Basis
        Such as a :class:`TrigonometricKernel` or a :class:`NystromBasis`.
    mu : float or scalar Tensor, default=0
        Prior mean of the intercept nu_0, in the units of nu.
    gamma : float or scalar Tensor, default=1
        Prior precision of nu_0, positive.

    Attributes
    ----------
    location : Tensor of shape (M + 1,)
        The prior mean of Gamma.
    precision : Tensor of shape (M + 1,)
        The diagonal of its prior precision.

    Raises
    ------
    TypeError
        If the kernel is no Basis.
    ValueError
        If mu is not finite or gamma not positive and finite.

    Examples
    --------
    >>> from bayesloss import GP, ISGP, SourcePrior, TrigonometricKernel
    >>> kernel = TrigonometricKernel(a=1.2, c=0.25)
    >>> all(isinstance(kind(kernel), SourcePrior) for kind in (ISGP, GP))
    True
    """

    n_twins: ClassVar[int] = 1  # values of w, in general position, that give the same nu

    def __init__(
        self,
        kernel: B,
        *,
        mu: float | Tensor = 0.0,
        gamma: float | Tensor = 1.0,
    ) -> None:
        if not isinstance(kernel, Basis):
            raise TypeError(
                "expected a Basis, which has n_basis, eigenvalues, basis(x) and psi(x), such as "
                f"TrigonometricKernel and NystromBasis, got {kernel!r}"
            )
        if not math.isfinite(as_number(mu)):
            raise ValueError(f"expected a finite mu, got mu={as_number(mu)}")
        if not 0 < as_number(gamma) < math.inf:
            raise ValueError(f"expected a finite gamma > 0, got gamma={as_number(gamma)}")
        self.kernel = kernel
        self.mu = as_scalar(mu)
        self.gamma = as_scalar(gamma)
        zeros = self.mu.new_zeros(kernel.n_basis)
        self.location = torch.cat([zeros, self.mu[None]])
        self.precision = torch.cat([1 / kernel.eigenvalues, self.gamma[None]])  # definition 2

    def __repr__(self) -> str:
        """Show the hyper-parameters."""
        mu, gamma = as_number(self.mu), as_number(self.gamma)
        return f"{type(self).__name__}({self.kernel!r}, mu={mu:.4g}, gamma={gamma:.4g})"

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n independent Gamma from the prior, of shape (n, M + 1)."""
        noise = torch.randn((n, len(self.location)), dtype=torch.float64, generator=generator)
        return self.location + noise.to(self.mu.device) / self.precision.sqrt()  # definition 2

    def source(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The values nu(x).

        Parameters
        ----------
        x : Tensor of shape (n,)
        Gamma : Tensor of shape (M + 1,) or (S, M + 1)

        Returns
        -------
        Tensor of shape (n,) or (S, n)
        """
        u = self.coefficients(Gamma)
        return torch.cat([u @ features.T for features in self.feature_blocks(x)], dim=-1)

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """The functions of x that nu combines, of shape (n, F)."""

    @abstractmethod
    def coefficients(self, Gamma: Tensor) -> Tensor:
        """Their coefficients as a function of Gamma: (..., M + 1) to (..., F)."""

    @abstractmethod
    def jacobian(self, Gamma: Tensor) -> Tensor:
        """The derivative of the coefficients with respect to Gamma, of shape (F, M + 1)."""

    @abstractmethod
    def curvature(self, s: Tensor) -> Tensor:
        """The second derivative of ``s @ coefficients(Gamma)``, of shape (M + 1, M + 1)."""

    @abstractmethod
    def squares(self) -> tuple[Tensor, Tensor]:
        """A matrix V, of shape (T, M + 1), and P, of shape (F, T), that say how Gamma enters.

        ``coefficients(Gamma) = P @ (V @ Gamma)**2 + jacobian(0) @ Gamma``.
        """

    @abstractmethod
    def mean_coefficients(self, location: Tensor, root: Tensor) -> Tensor:
        """The mean of the coefficients, of shape (F,), when Gamma ~ N(location, root root^T)."""

    @abstractmethod
    def fluctuations(self, location: Tensor, root: Tensor, rows: Tensor) -> Tensor:
        """A matrix Z with Z Z^T the covariance of ``rows @ coefficients``, for the same Gamma.

        Parameters
        ----------
        location : Tensor of shape (M + 1,)
        root : Tensor of shape (M + 1, M + 1)
        rows : Tensor of shape (R, F)

        Returns
        -------
        Tensor of shape (R, any)
        """

    @abstractmethod
    def derivative(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The values nu'(x), with shapes as in :meth:`source`."""

    @abstractmethod
    def mean(self, x: Tensor) -> Tensor:
        """The prior mean of nu(x), of shape (n,)."""

    @abstractmethod
    def start(self, x: Tensor) -> Tensor:
        """A Gamma near the prior mean of nu over the range of x, where a search may begin."""

    def feature_blocks(self, x: Tensor) -> Iterator[Tensor]:
        """The features in blocks of rows: memory does not grow with n."""
        columns = max(len(self.precision), len(self.coefficients(self.location)) // 2)
        rows = max(1, 2**20 // columns)
        return (self.features(part) for part in x.split(rows))


class ISGP(SourcePrior[B]):
    """The integrated squared Gaussian process: every path is non-decreasing.

    W&N section 3, definition 2 and eq. (8). Outside [-1/c, 1/c] the formula stands as it is: with
    the trigonometric kernel f^2 repeats, and nu climbs on, a period at a time; with a Nyström basis
    f fades away from the points, and nu levels out. Parameters as for :class:`SourcePrior`.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import ISGP, TrigonometricKernel
    >>> prior = ISGP(TrigonometricKernel(a=1.2, c=0.25), gamma=1.0)
    >>> x = torch.linspace(-2, 2, 50, dtype=torch.float64)
    >>> paths = prior.source(x, prior.sample(10, torch.Generator().manual_seed(0)))
    >>> paths.shape, bool((paths.diff(dim=1) >= 0).all())
    (torch.Size([10, 50]), True)
    >>> prior.mean(x[-2:]).round(decimals=2).tolist()  # nu(x) = x on average
    [1.92, 2.0]
    """

    n_twins: ClassVar[int] = 2  # w and -w

    def source(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The values nu(x) by the kernel's fast form, in O(nM) without the features."""
        return Gamma[..., -1:] + self.kernel.integrated_square(x, Gamma[..., :-1])  # eq. (8)

    def features(self, x: Tensor) -> Tensor:
        """The functions h(x) of the kernel, and 1: of shape (n, F); trigonometric F = 2M + 2."""
        return torch.cat([self.kernel.integrals(x), x.new_ones((len(x), 1))], dim=1)

    def coefficients(self, Gamma: Tensor) -> Tensor:
        """Those of the integral of f^2, such as its Fourier coefficients, and nu_0."""
        w, nu_0 = Gamma[..., :-1], Gamma[..., -1:]
        return torch.cat(
            [self.kernel.square_coefficients(w[..., :, None] * w[..., None, :]), nu_0], dim=-1
        )

    def jacobian(self, Gamma: Tensor) -> Tensor:
        """Linear in w, constant in nu_0."""
        return torch.block_diag(self.kernel.jacobian(Gamma[:-1]), Gamma.new_ones((1, 1)))

    def curvature(self, s: Tensor) -> Tensor:
        """Twice the combination of psi with weights s, and zero for nu_0."""
        return torch.block_diag(2 * self.kernel.combine(s[:-1]), s.new_zeros((1, 1)))

    def squares(self) -> tuple[Tensor, Tensor]:
        """Those of the kernel; nu_0 enters linearly."""
        V, P = self.kernel.squares()
        return torch.nn.functional.pad(V, (0, 1)), torch.nn.functional.pad(P, (0, 0, 0, 1))

    def mean_coefficients(self, location: Tensor, root: Tensor) -> Tensor:
        """Lemma 7 as corrected: E[w^T C w] = tr(C (Sigma_w + w w^T)) for combinations C of psi."""
        w, nu_0 = location[:-1], location[-1:]
        moment = root[:-1] @ root[:-1].T + torch.outer(w, w)  # E[w w^T], proof of lemma 7
        return torch.cat([self.kernel.square_coefficients(moment), nu_0])

    def fluctuations(self, location: Tensor, root: Tensor, rows: Tensor) -> Tensor:
        """The part linear in Gamma, which carries the covariance with nu_0, and the quadratic one.

        For q_j = w^T C_j w + t_j nu_0 [MP92, section 3.2b],
        Cov(q_j, q_k) = g_j^T Sigma g_k + 2 tr(C_j Sigma_w C_k Sigma_w), g_j = (2 C_j w, t_j).
        With Sigma_w = R R^T the trace is the inner product of R^T C_j R and R^T C_k R.
        """
        linear = rows @ self.jacobian(location) @ root
        quadratic = root[:-1].T @ (self.kernel.combine(rows[:, :-1]) @ root[:-1])
        # [MP92, section 3.2b]
        return torch.cat([linear, math.sqrt(2) * quadratic.flatten(1)], dim=1)

    def derivative(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The values f(x)^2, eq. (13)."""
        return self.root(x, Gamma) ** 2  # eq. (13)

    def root(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The values f(x), with shapes as in :meth:`source`."""
        return Gamma[..., :-1] @ self.kernel.basis(x).T  # f of definition 2

    def mean(self, x: Tensor) -> Tensor:
        """Theorem 5: mu + k(0, 0) x; for a kernel whose k(z, z) varies, mu and its integral."""
        return self.mu + self.kernel.integrated_variance(x)  # eq. (10)

    def start(self, x: Tensor) -> Tensor:
        """The Gamma whose f is nearly its prior standard deviation over the range of x.

        w = 0 would be no start: it is a stationary point of every log posterior, because nu is even
        in w. A ridge on the prior's scale keeps w where the prior lives: a basis may have no
        constant.
        """
        size = 4 * self.kernel.n_basis
        grid = torch.linspace(float(x.min()), float(x.max()), size, dtype=x.dtype, device=x.device)
        scaled = self.kernel.basis(grid) * self.kernel.eigenvalues.sqrt()
        level = self.kernel.variance_at(grid).sqrt()
        gram = scaled.T @ scaled + 1e-2 * torch.eye(
            self.kernel.n_basis, dtype=x.dtype, device=x.device
        )
        w = torch.linalg.solve(gram, scaled.T @ level)
        return torch.cat([w * self.kernel.eigenvalues.sqrt(), self.mu[None]])


class GP(SourcePrior[B]):
    """A Gaussian process with the same kernel and intercept: nu(x) = nu_0 + w^T phi(x).

    W&N section 5 compares it with the ISGP. Its paths need not increase. Beyond the kernel's
    ``edge``, outside [-1/c, 1/c] for the trigonometric one, it is held at its end value. Parameters
    as for :class:`SourcePrior`.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import GP, TrigonometricKernel
    >>> prior = GP(TrigonometricKernel(a=1.2, c=0.25), mu=3.0)
    >>> x = torch.linspace(-2, 2, 5, dtype=torch.float64)
    >>> prior.mean(x).tolist()
    [3.0, 3.0, 3.0, 3.0, 3.0]
    """

    def features(self, x: Tensor) -> Tensor:
        """The basis functions, and 1: of shape (n, M + 1)."""
        return torch.cat([self.kernel.basis(self._held(x)), x.new_ones((len(x), 1))], dim=1)

    def coefficients(self, Gamma: Tensor) -> Tensor:
        """Gamma itself."""
        return Gamma

    def jacobian(self, Gamma: Tensor) -> Tensor:
        """The identity."""
        return torch.eye(len(Gamma), dtype=Gamma.dtype, device=Gamma.device)

    def curvature(self, s: Tensor) -> Tensor:
        """Zero."""
        return s.new_zeros((len(s), len(s)))

    def squares(self) -> tuple[Tensor, Tensor]:
        """None: Gamma enters linearly."""
        return self.location.new_zeros((0, len(self.location))), self.location.new_zeros(
            (len(self.location), 0)
        )

    def mean_coefficients(self, location: Tensor, root: Tensor) -> Tensor:
        """The mean of Gamma."""
        return location

    def fluctuations(self, location: Tensor, root: Tensor, rows: Tensor) -> Tensor:
        """The rows times the root."""
        return rows @ root

    def derivative(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The derivative of w^T phi(x); zero where the GP is held."""
        held = self._held(x)
        return (Gamma[..., :-1] @ self.kernel.slopes(held).T) * (held == x)

    def mean(self, x: Tensor) -> Tensor:
        """The constant mu."""
        return self.mu.expand(x.shape)

    def start(self, x: Tensor) -> Tensor:
        """The prior mean: the log posterior of a GP under a log-concave likelihood has one mode."""
        return self.location

    def _held(self, x: Tensor) -> Tensor:
        return x.clamp(-self.kernel.edge, self.kernel.edge)


def trigonometric(prior: SourcePrior, need: str) -> TrigonometricKernel:
    """The prior's kernel, where its a and c are needed.

    Raises
    ------
    TypeError
        If it is another basis; the message says what is needed, and what for.
    """
    if not isinstance(prior.kernel, TrigonometricKernel):
        raise TypeError(f"expected a prior with a TrigonometricKernel, {need}; got {prior!r}")
    return prior.kernel
