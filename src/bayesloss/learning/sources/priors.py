"""Priors over sources: the integrated squared Gaussian process, and the plain Gaussian process.

The generative model of the ISGP (W&N section 3, definition 2):

    nu_0 ~ N(mu, 1/gamma),   w ~ N(0, Lambda),   f = w^T phi,   nu(x) = nu_0 + int_0^x f(z)^2 dz.

Every prior is Gaussian in its D parameters Gamma, nu_0 last, and supplies the features, V, P and A
of nu as a quadratic form in them:

    nu(x) = features(x) @ u(Gamma),   u(Gamma) = P (V Gamma)^2 + A Gamma.

The rest follows. With d = V Gamma,

    du/dGamma = 2 P diag(d) V + A,    d^2 (s^T u)/dGamma^2 = 2 V^T diag(P^T s) V,

and for Gamma ~ N(m, S), with d = V m, K = V S V^T and J = du/dGamma at m,

    E u = P (d^2 + diag K) + A m,     Cov u = J S J^T + 2 P (K o K) P^T,         o: entry by entry.

[MP92] is Mathai and Provost (1992), *Quadratic Forms in Random Variables*.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Generic, Literal, Self, TypeVar

import torch
from torch import Tensor

from bayesloss.learning.sources.basis import BLOCK, Basis
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.tensors import as_number, as_positive, as_scalar

B = TypeVar("B", bound=Basis, covariant=True)
PriorName = Literal["isgp", "gp"]

# A grid is made no finer than for so many data: the log likelihood of one is then off by 1e-7 of
# what it changes on the kernel's scale.
_MOST_DATA = 1e8


class SourcePrior(ABC, Generic[B]):
    """A Gaussian prior on Gamma, as (w, nu_0), and the function nu that Gamma stands for.

    Gamma has D numbers: M + 1, or M + 2 with the level of a :class:`CentredISGP`. ``location`` and
    ``precision``, each of shape (D,), are its prior mean and the diagonal
    of its prior precision. A subclass defines :meth:`quadratic_form`, :meth:`derivative` and, if
    they are not the kernel's integrals, :meth:`features`.

    Parameters
    ----------
    kernel : Basis
        Such as a :class:`TrigonometricKernel` or a :class:`NystromBasis`; others are a TypeError.
    mu : float or scalar Tensor, default=0
        Prior mean of the intercept nu_0, finite (or a ValueError).
    gamma : float or scalar Tensor, default=1
        Prior precision of nu_0, positive and finite (or a ValueError).

    Examples
    --------
    >>> from bayesloss import GP, ISGP, SourcePrior, TrigonometricKernel
    >>> kernel = TrigonometricKernel(a=1.2, c=0.25)
    >>> isinstance(ISGP(kernel), SourcePrior), isinstance(GP(kernel), SourcePrior)
    (True, True)
    """

    n_twins: int = 1  # values of w, in general position, that give the same nu

    def __init__(self, kernel: B, *, mu: float | Tensor = 0.0, gamma: float | Tensor = 1.0) -> None:
        if not isinstance(kernel, Basis):
            raise TypeError(f"expected a Basis, such as a TrigonometricKernel, got {kernel!r}")
        if not math.isfinite(as_number(mu)):
            raise ValueError(f"expected a finite mu, got mu={as_number(mu)}")
        self.kernel = kernel
        self.mu = as_scalar(mu)
        self.gamma = as_positive(gamma, "gamma")
        self.location = torch.cat([self.mu.new_zeros(kernel.n_basis), self.mu[None]])
        self.precision = torch.cat([1 / kernel.eigenvalues, self.gamma[None]])  # definition 2

    def __repr__(self) -> str:
        mu = as_number(self.mu)
        gamma = as_number(self.gamma)
        return f"{type(self).__name__}({self.kernel!r}, mu={mu:.4g}, gamma={gamma:.4g})"

    def moved(self, kernel: Any, *, mu: float | Tensor, gamma: float | Tensor) -> Self:
        """The same prior but for its kernel and its intercept's."""
        return type(self)(kernel, mu=mu, gamma=gamma)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n independent Gamma from the prior, of shape (n, D)."""
        noise = torch.randn((n, len(self.location)), dtype=torch.float64, generator=generator)
        return self.location + noise.to(self.mu.device) / self.precision.sqrt()  # definition 2

    def source(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The values nu(x), x of shape (n,): Gamma (D,) to (n,), or (S, D) to (S, n)."""
        u = self.coefficients(Gamma)
        return torch.cat([u @ block.T for block in self.feature_blocks(x)], dim=-1)

    def features(self, x: Tensor) -> Tensor:
        """The functions of x that nu combines, (n,) to (n, F): the kernel's h(x), and 1."""
        return torch.cat([self.kernel.integrals(x), x.new_ones((len(x), 1))], dim=1)

    @abstractmethod
    def quadratic_form(self) -> tuple[Tensor, Tensor, Tensor]:
        """V (T, D), P (F, T), which may be sparse, and A (F, D); asked for often, so cache them."""

    def coefficients(self, Gamma: Tensor) -> Tensor:
        """The coefficients u of the features: (..., D) to (..., F)."""
        V, P, A = self.quadratic_form()
        columns = Gamma.reshape(-1, Gamma.shape[-1]).T
        return (P @ (V @ columns) ** 2 + A @ columns).T.reshape(*Gamma.shape[:-1], len(P))

    def jacobian(self, Gamma: Tensor) -> Tensor:
        """The derivative of the coefficients with respect to Gamma, of shape (F, D)."""
        V, P, A = self.quadratic_form()
        return P @ (2 * (V @ Gamma)[:, None] * V) + A

    def curvature(self, s: Tensor) -> Tensor:
        """The second derivative of ``s @ coefficients(Gamma)``, of shape (D, D): constant."""
        V, P, _ = self.quadratic_form()
        return V.T @ (2 * (P.T @ s)[:, None] * V)

    def mean_coefficients(self, location: Tensor, root: Tensor) -> Tensor:
        """The mean of the coefficients, of shape (F,), when Gamma ~ N(location, root root^T)."""
        V, P, A = self.quadratic_form()
        # Lemma 7 as corrected: E[d^2] is the squared mean and the variance, proof of lemma 7.
        return P @ ((V @ location) ** 2 + ((V @ root) ** 2).sum(dim=1)) + A @ location

    def covariance(self, location: Tensor, root: Tensor) -> Tensor:
        """The covariance of the coefficients for the same Gamma, of shape (F, F)."""
        V, P, _ = self.quadratic_form()
        slopes = self.jacobian(location) @ root
        deviations = V @ root
        K = deviations @ deviations.T
        return slopes @ slopes.T + 2 * (P @ (P @ K**2).T)  # [MP92, section 3.2b]

    @abstractmethod
    def derivative(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The values nu'(x), with shapes as in :meth:`source`."""

    def mean(self, x: Tensor) -> Tensor:
        """The prior mean of nu(x), of shape (n,); an ISGP's is mu + k(0, 0) x, theorem 5."""
        root = self.precision.rsqrt().diag()
        return self.features(x) @ self.mean_coefficients(self.location, root)  # eq. (10)

    def start(self, x: Tensor) -> Tensor:
        """A Gamma near the prior mean of nu over the range of x, where a search may begin."""
        return self.location

    def feature_blocks(self, x: Tensor) -> Iterator[Tensor]:
        """The features in blocks of rows, which bounds the memory."""
        n_features, size = self.quadratic_form()[2].shape
        rows = max(1, BLOCK // max(size, n_features // 2))
        return (self.features(points) for points in x.split(rows))


class ISGP(SourcePrior[B]):
    """The integrated squared Gaussian process: every path is non-decreasing.

    W&N section 3, definition 2 and eq. (8). Outside [-1/c, 1/c] f^2 repeats with the trigonometric
    kernel; with a Nyström basis nu levels out. Parameters as for :class:`SourcePrior`.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import ISGP, TrigonometricKernel
    >>> prior = ISGP(TrigonometricKernel(a=1.2, c=0.25))
    >>> x = torch.linspace(-2, 2, 50, dtype=torch.float64)
    >>> paths = prior.source(x, prior.sample(10, torch.Generator().manual_seed(0)))
    >>> bool((paths.diff(dim=1) >= 0).all())
    True
    >>> prior.mean(x[-2:]).round(decimals=2).tolist()  # nu(x) = x on average
    [1.92, 2.0]
    """

    n_twins: int = 2  # w and -w

    def source(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The values nu(x) by the kernel's fast form, in O(nM) without the features."""
        return Gamma[..., -1:] + self.kernel.integrated_square(x, Gamma[..., :-1])  # eq. (8)

    def quadratic_form(self) -> tuple[Tensor, Tensor, Tensor]:
        return _with_intercept(*self.kernel.squares())

    def derivative(self, x: Tensor, Gamma: Tensor) -> Tensor:
        return self.root(x, Gamma) ** 2  # eq. (13)

    def root(self, x: Tensor, Gamma: Tensor) -> Tensor:
        """The values f(x), with shapes as in :meth:`source`."""
        return Gamma[..., :-1] @ self.kernel.basis(x).T  # f of definition 2

    def start(self, x: Tensor) -> Tensor:
        """A Gamma whose f is near its prior standard deviation, as w = 0 is always stationary."""
        low = float(x.min())
        high = float(x.max())
        size = 4 * self.kernel.n_basis  # four points a function: the least squares are determined
        grid = torch.linspace(low, high, size, dtype=torch.float64, device=x.device)
        scaled = self.kernel.basis(grid) * self.kernel.eigenvalues.sqrt()
        level = self.kernel.variance_at(grid).sqrt()
        ridge = torch.full_like(scaled[0], 1e-2).diag()  # on part of a period they are degenerate
        w = torch.linalg.solve(scaled.T @ scaled + ridge, scaled.T @ level)
        return torch.cat([w * self.kernel.eigenvalues.sqrt(), self.mu[None]])


class CentredISGP(SourcePrior[TrigonometricKernel]):
    """The ISGP with a mean: monotone sources around a straight line of slope 1.

    f = w_0 + w^T phi with w_0 ~ N(m, tau^2), w ~ N(0, s^2 Lambda), m^2 + tau^2 + s^2 = 1 and
    Gamma = (w, w_0, nu_0). The prior mean stays mu + x (theorem 5); s^2 = k(0, 0) says how far
    paths stray from a line.
    """

    def __init__(
        self,
        kernel: TrigonometricKernel,
        *,
        tau: float = 0.5,
        mu: float | Tensor = 0.0,
        gamma: float | Tensor = 1.0,
    ) -> None:
        super().__init__(kernel, mu=mu, gamma=gamma)
        self.tau = float(tau)
        rest = 1 - kernel.variance - self.tau**2
        if not (as_number(rest) > 0 and self.tau > 0):
            variance = as_number(kernel.variance)
            raise ValueError(
                f"expected tau > 0, variance + tau^2 < 1, got {tau} and {variance:.4g}"
            )
        level = rest.sqrt()[None]
        precision_of_level = self.mu.new_tensor([self.tau**-2])
        self.location = torch.cat([self.location[:-1], level, self.location[-1:]])
        self.precision = torch.cat([self.precision[:-1], precision_of_level, self.precision[-1:]])

    def moved(self, kernel: Any, *, mu: float | Tensor, gamma: float | Tensor) -> Self:
        return type(self)(kernel, tau=self.tau, mu=mu, gamma=gamma)

    def quadratic_form(self) -> tuple[Tensor, Tensor, Tensor]:
        return _with_intercept(*self.kernel.squares(), level=True)

    def derivative(self, x: Tensor, Gamma: Tensor) -> Tensor:
        return (Gamma[..., :-2] @ self.kernel.basis(x).T + Gamma[..., -2:-1]) ** 2


class GP(SourcePrior[B]):
    """A Gaussian process with the same kernel and intercept: nu(x) = nu_0 + w^T phi(x).

    W&N section 5 compares it with the ISGP. Its paths need not increase, and are constant beyond
    the kernel's ``edge``. Parameters as for :class:`SourcePrior`.

    Examples
    --------
    >>> import torch
    >>> from bayesloss import GP, TrigonometricKernel
    >>> GP(TrigonometricKernel(a=1.2, c=0.25), mu=3.0).mean(torch.ones(1)).tolist()
    [3.0]
    """

    def features(self, x: Tensor) -> Tensor:
        return torch.cat([self.kernel.basis(self._held(x)), x.new_ones((len(x), 1))], dim=1)

    def quadratic_form(self) -> tuple[Tensor, Tensor, Tensor]:
        return _linear(len(self.location), self.location.device)

    def derivative(self, x: Tensor, Gamma: Tensor) -> Tensor:
        held = self._held(x)
        return (Gamma[..., :-1] @ self.kernel.slopes(held).T) * (held == x)

    def _held(self, x: Tensor) -> Tensor:
        return x.clamp(-self.kernel.edge, self.kernel.edge)


class StraightEnds(SourcePrior[Basis]):
    """The source of another prior on [-edge, edge], continued by straight lines.

    Beyond the data a trigonometric f^2 repeats, and nu would climb a staircase that the data say
    nothing about. Here every path goes on with its mean slope over a stretch d,

        nu(x) = nu(e) + (x - e) (nu(e) - nu(e - d)) / d    for x > e,

    and likewise for x < -e. So do the features h of the source, and moments stay exact.
    """

    def __init__(self, prior: SourcePrior, edge: float, stretch: float) -> None:
        super().__init__(prior.kernel, mu=prior.mu, gamma=prior.gamma)
        self.prior = prior
        self.edge = edge
        self.stretch = stretch
        self.location = prior.location
        self.precision = prior.precision
        self.n_twins = prior.n_twins

    def quadratic_form(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.prior.quadratic_form()

    def features(self, x: Tensor) -> Tensor:
        return self._continued(self.prior.features, x)

    def source(self, x: Tensor, Gamma: Tensor) -> Tensor:
        rows = Gamma.reshape(-1, Gamma.shape[-1])
        values = self._continued(lambda points: self.prior.source(points, rows).T, x)
        return values.T.reshape(*Gamma.shape[:-1], len(x))

    def derivative(self, x: Tensor, Gamma: Tensor) -> Tensor:
        inside = x.clamp(-self.edge, self.edge)
        within = self.prior.derivative(inside, Gamma)
        slopes = self.coefficients(Gamma) @ self._slopes(self.prior.features, x).T
        # Of a path that rises a slope is below zero by rounding errors alone.
        beyond = slopes.clamp_min(0)[..., (x > 0).long()]
        return torch.where(inside == x, within, beyond)

    def start(self, x: Tensor) -> Tensor:
        return self.prior.start(x.clamp(-self.edge, self.edge))

    def _continued(self, values: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Functions of x, (n,) to (n, any), continued by straight lines."""
        inside = x.clamp(-self.edge, self.edge)
        slopes = self._slopes(values, x)[(x > 0).long()]
        return values(inside) + (x - inside)[:, None] * slopes

    def _slopes(self, values: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The mean slopes over the stretches at the left and the right edge, (2, any)."""
        e = self.edge
        d = self.stretch
        low, after_low, before_high, high = values(x.new_tensor([-e, d - e, e - d, e]))
        return torch.stack([after_low - low, high - before_high]) / d


@lru_cache(maxsize=8)  # by the identity of V and P, which a basis keeps
@torch.inference_mode(False)  # or else what is kept there could not be differentiated elsewhere
def _with_intercept(V: Tensor, P: Tensor, level: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """V, P and A of (w, nu_0), or of (w, w_0, nu_0) with a level w_0, from V and P of w."""
    if level:
        V = torch.nn.functional.pad(V, (0, 1), value=1.0)
    V = torch.nn.functional.pad(V, (0, 1))
    P = torch.cat([P, P.new_zeros((1, len(V)))])
    A = V.new_zeros((len(P), V.shape[1]))
    A[-1, -1] = 1  # nu_0 is the coefficient of 1
    return V, P, A


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _linear(size: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """V and P without rows and columns, and A = 1, of a source that is linear in Gamma."""
    A = torch.eye(size, dtype=torch.float64, device=device)
    V = A[:0]
    P = A[:, :0]
    return V, P, A


def trigonometric(prior: SourcePrior, need: str) -> TrigonometricKernel:
    """The prior's kernel where its a and c are needed; a TypeError tells what for."""
    if not isinstance(prior.kernel, TrigonometricKernel):
        raise TypeError(f"expected a prior with a TrigonometricKernel, {need}; got {prior!r}")
    return prior.kernel


def grid_size(prior: SourcePrior, width: float, n: float) -> int:
    """How many nodes scores of this width need for n data, for the grid's error not to matter.

    Spacing h moves the mode by about sqrt(n) (h/l)^2 / 12 posterior standard deviations, as derived
    in book/learning/em_cost, *Data on a grid*; a thousandth is allowed: (h/l)^2 = 0.012 / sqrt(n).
    On the length scale l = log(a) / (pi c) a draw changes: at the wave number k pi c the eigenvalue
    is b exp(-l k pi c).
    """
    kernel = trigonometric(prior, "whose a and c say how fine the grid of scores must be")
    length_scale = math.log(float(kernel.a)) / (math.pi * kernel.c)
    cells = math.ceil(width / length_scale * min(n, _MOST_DATA) ** 0.25 / math.sqrt(0.012))
    return max(64, cells + 1)  # with fewer a step costs as much, by its M^3 products
