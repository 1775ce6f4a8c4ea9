"""Long chains that settle: the No-U-Turn sampler with jumps between modes, on 24 toy problems.

After each draw of NumPyro's NUTS points are proposed by the mixture r of the variational Gaussians
at all modes, and their twins at -w, and accepted by Metropolis and Hastings' rule: with probability
min(1, p(Gamma') r(Gamma) / (p(Gamma) r(Gamma'))). r is also importance sampling's proposal. Chains
begin where annealing ends, so that a mode which the searches missed can still be met.
"""

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Gaussian
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss_book import Array
from bayesloss_book.problems import source_problems as toys
from bayesloss_book.references.gaussian_bounds import best_gaussian
from bayesloss_book.references.samplers import annealed_importance_sampling
from paperledger.stores.results import runs

SETTLED = 1.01  # the largest split R-hat
_NEW = 1e-3  # nats by which the bounds of two modes differ at least
_LIGHT = 12.0  # nats below the best bound: such a mode plays no part


@dataclass(frozen=True)
class Jumper:
    """A mixture of Gaussians and their twins."""

    means: Tensor  # (K, M + 1)
    roots: Tensor  # (K, M + 1, M + 1)
    log_weights: Tensor  # (K,), normalised; of each pair of twins together

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws of shape (n, M + 1), each on either side of w = 0."""
        chosen = torch.multinomial(self.log_weights.exp(), n, True, generator=generator)
        noise = torch.randn((n, self.means.shape[1]), dtype=torch.float64, generator=generator)
        Gamma = self.means[chosen] + torch.einsum("nij,nj->ni", self.roots[chosen], noise)
        sign = 2.0 * torch.randint(2, (n, 1), generator=generator) - 1
        return torch.cat([sign * Gamma[:, :-1], Gamma[:, -1:]], dim=1)

    def log_density(self, Gamma: Tensor) -> Tensor:
        """The log density at points of shape (n, M + 1)."""
        mirrored = torch.cat([-Gamma[:, :-1], Gamma[:, -1:]], dim=1)
        parts = []
        for mean, root, log_weight in zip(self.means, self.roots, self.log_weights, strict=True):
            constant = log_weight - math.log(2) - torch.linalg.slogdet(root).logabsdet
            for points in (Gamma, mirrored):
                z = torch.linalg.solve(root, (points - mean).T)
                parts.append(constant - 0.5 * (z**2).sum(dim=0))
        size = Gamma.shape[1]
        return torch.logsumexp(torch.stack(parts), dim=0) - 0.5 * size * math.log(2 * math.pi)


def gaussians(
    joint: LogJoint, x: Tensor, y: Tensor, starts: Tensor, method: str
) -> list[Posterior]:
    """The variational Gaussians that Newton's searches from the starts lead to, the best first."""
    found: dict[float, Tensor] = {}
    for start in starts:
        mode = find_mode(joint, start)
        if mode.converged:
            found.setdefault(round(float(joint(mode.Gamma)), 3), mode.Gamma)
    given = method, joint.prior, joint.likelihood, x, y
    fits = [best_gaussian(*given, Gamma) for Gamma in found.values()]
    fits.sort(key=lambda fit: -fit.log_evidence)
    new = np.diff([fit.log_evidence for fit in fits], prepend=np.inf) < -_NEW
    least = fits[0].log_evidence - _LIGHT
    pairs = zip(fits, new, strict=True)
    return [fit for fit, is_new in pairs if is_new and fit.log_evidence > least]


def jumper(found: list[Posterior]) -> Jumper:
    """Their mixture, weighted by their bounds."""
    weights = torch.tensor([fit.log_evidence for fit in found], dtype=torch.float64)
    return Jumper(
        torch.stack([fit.mode for fit in found]),
        torch.stack([fit.root for fit in found]),
        torch.log_softmax(weights, dim=0),
    )


def importance_evidence(
    joint: LogJoint, mixture: Jumper, n: int, seed: int
) -> tuple[float, float, float]:
    """The log evidence by importance sampling, its standard error, and the effective share."""
    Gamma = mixture.sample(n, torch.Generator().manual_seed(seed))
    precision = joint.prior.precision
    log_prior = 0.5 * (
        torch.log(precision / (2 * math.pi)) - precision * (Gamma - joint.prior.location) ** 2
    ).sum(dim=1)
    ratios = toys.batched_log_likelihood(joint)(Gamma) + log_prior - mixture.log_density(Gamma)
    relative = (ratios - ratios.max()).exp()
    value = float(torch.logsumexp(ratios, 0)) - math.log(n)
    error = float(relative.std() / relative.mean()) / math.sqrt(n)
    return value, error, float(relative.sum() ** 2 / (relative**2).sum()) / n


def nuts(
    joint: LogJoint,
    mixture: Jumper,
    start: Tensor,
    *,
    n_draws: int,
    n_warm_up: int,
    n_jumps: int,
    target_acceptance: float,
    seed: int,
) -> tuple[Tensor, dict[str, float]]:
    """Chains of Gamma of shape (chains, draws, M + 1), and how they went."""
    os.environ.setdefault(
        "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    )
    import jax  # an extra: pip install -e '.[chains]'
    import jax.numpy as jnp
    from numpyro.infer import NUTS

    jax.config.update("jax_enable_x64", True)
    prior = joint.prior
    data = joint.data
    likelihood = joint.likelihood
    V, P, _ = prior.quadratic_form()
    centre = mixture.means[0]
    unit = mixture.roots[0]

    def to_jax(values: Tensor) -> Any:
        return jnp.asarray(values.numpy())

    f_0 = to_jax(V @ centre)
    f_root = to_jax(V @ unit)
    nu_0 = to_jax(centre[-1])
    nu_root = to_jax(unit[-1])
    scale = prior.precision.sqrt()
    z_0 = to_jax(scale * (centre - prior.location))
    z_root = to_jax(scale[:, None] * unit)
    G = to_jax(data.features @ P)
    level = to_jax(data.features[:, -1])
    targets = to_jax(data.targets)
    alpha = float(likelihood.alpha) if isinstance(likelihood, Gaussian) else None

    def potential(z: Any) -> Any:
        nu = G @ (f_0 + f_root @ z) ** 2 + (nu_0 + nu_root @ z) * level
        if alpha is None:
            fit = jnp.sum(jax.nn.log_sigmoid((2 * targets - 1) * nu))
        else:
            fit = -0.5 * alpha * jnp.sum((nu - targets) ** 2)
        return 0.5 * jnp.sum((z_0 + z_root @ z) ** 2) - fit

    # The mixture in the coordinates z: Gamma = centre + unit z.
    def within(points: Tensor) -> Tensor:
        return torch.linalg.solve(unit, (points - centre).T).T

    flip = torch.ones_like(centre)
    flip[:-1] = -1
    means = torch.cat([within(mixture.means), within(mixture.means * flip)])
    roots = torch.linalg.solve(unit, torch.cat([mixture.roots, flip[:, None] * mixture.roots]))
    log_weights = mixture.log_weights.repeat(2) - math.log(2)
    constants = to_jax(log_weights - torch.linalg.slogdet(roots).logabsdet)
    inverses = to_jax(torch.linalg.inv(roots))
    means = to_jax(means)
    roots = to_jax(roots)
    log_weights = to_jax(log_weights)

    def log_mixture(z: Any) -> Any:
        standard = jnp.einsum("kij,kj->ki", inverses, z - means)
        return jax.nn.logsumexp(constants - 0.5 * jnp.sum(standard**2, axis=1))

    kernel = NUTS(potential_fn=potential, target_accept_prob=target_acceptance)

    def jump(state: Any, key: Any) -> tuple[Any, Any]:
        which, noise, coin = jax.random.split(key, 3)
        k = jax.random.categorical(which, log_weights)
        new = means[k] + roots[k] @ jax.random.normal(noise, state.z.shape)
        energy, slope = jax.value_and_grad(potential)(new)
        ratio = state.potential_energy - energy + log_mixture(state.z) - log_mixture(new)
        taken = jnp.log(jax.random.uniform(coin)) < ratio
        state = state._replace(
            z=jnp.where(taken, new, state.z),
            z_grad=jnp.where(taken, slope, state.z_grad),
            potential_energy=jnp.where(taken, energy, state.potential_energy),
        )
        return state, taken

    def chain(z: Any, key: Any) -> Any:
        first, second = jax.random.split(key)
        state = kernel.init(first, n_warm_up, z, (), {})
        state = jax.lax.fori_loop(0, n_warm_up, lambda _, s: kernel.sample(s, (), {}), state)

        def draw(state: Any, key: Any) -> tuple[Any, Any]:
            state = kernel.sample(state, (), {})
            diverging = state.diverging
            steps = state.num_steps
            state, taken = jax.lax.scan(jump, state, jax.random.split(key, n_jumps))
            return state, (state.z, taken.mean(), diverging, steps)

        return jax.lax.scan(draw, state, jax.random.split(second, n_draws))[1]

    keys = jax.random.split(jax.random.PRNGKey(seed), len(start))
    run_chain = jax.jit(chain)
    # The sampler is set up by the first chain, outside of compiled code.
    kernel.init(keys[0], n_warm_up, to_jax(within(start)[0]), (), {})
    runs = [run_chain(z, key) for z, key in zip(to_jax(within(start)), keys, strict=True)]
    z, taken, diverging, steps = (
        np.stack([np.asarray(part) for part in parts]) for parts in zip(*runs, strict=True)
    )
    Gamma = centre + torch.from_numpy(z) @ unit.T
    return Gamma, {
        "jumps": float(taken.mean()),
        "divergences": int(diverging.sum()),
        "leapfrog_steps": float(steps.mean()),
    }


def measure(
    *, task: str, n: int, seed: int, n_basis: int, n_chains: int, n_draws: int, n_annealed: int
) -> dict[str, float]:
    """Sample one problem's exact posterior.

    ``r_hat``, ``ess``, ``mcse``: the worst over the 21 points of the grid. ``jumps``: the share
    that was accepted; ``divergences`` and ``leapfrog_steps`` of the No-U-Turn draws. ``n_modes``:
    Gaussians in the mixture. ``annealed``, ``annealed_error``, ``annealed_size`` and
    ``importance``, ``importance_error``, ``importance_share``: the log evidence in nats by annealed
    importance sampling and by importance sampling from the mixture. ``mixed``: a lower bound on it,
    the log of the sum of the Gaussians' bounds (their overlap apart). ``loss``: of 2000 new data,
    in nats a datum. ``mean_i``, ``sd_i``, ``low_i``, ``high_i``: mean, standard deviation, and 2.5
    % and 97.5 % quantiles of nu at the i-th point of the grid.
    """
    prior, likelihood = toys.prior_and_likelihood(task, n_basis)
    x, y = toys.data_set(task, n, seed)
    joint = LogJoint(prior, likelihood, likelihood.condense(prior.features, x, y))
    annealed = annealed_importance_sampling(
        toys.whitened_log_likelihood(joint), len(prior.location), n_chains=n_annealed, seed=seed
    )
    generator = torch.Generator().manual_seed(seed)
    ends = annealed.points[torch.multinomial(annealed.weights, 40, True, generator=generator)]
    ends = prior.location + prior.precision.rsqrt() * ends
    searches = torch.cat([prior.start(x)[None], prior.sample(40, generator), ends])
    found = gaussians(joint, x, y, searches, "normal")
    mixture = jumper(found)
    how = {"n_draws": n_draws, "n_warm_up": 300, "n_jumps": 4, "seed": seed}
    for target in (0.8, 0.98):  # smaller steps where the first ones diverge and chains get stuck
        Gamma, went = nuts(joint, mixture, ends[:n_chains], target_acceptance=target, **how)
        nu = toys.source_of_chains(prior, toys.grid(), Gamma)
        if toys.diagnose(nu)["r_hat"] <= SETTLED:
            break
    new_x, new_y = toys.data_set(task, 2000, 10_000 + seed)
    kept = Gamma.flatten(0, 1)[:: max(1, Gamma.shape[0] * Gamma.shape[1] // 2000)]
    importance, error, share = importance_evidence(joint, mixture, 20_000, seed)
    bounds = torch.tensor([fit.log_evidence for fit in found]).double()
    return {
        **toys.diagnose(nu),
        **went,
        "n_modes": len(found),
        "annealed": annealed.log_evidence,
        "annealed_error": annealed.error,
        "annealed_size": annealed.effective_size,
        "importance": importance,
        "importance_error": error,
        "importance_share": share,
        "mixed": float(torch.logsumexp(bounds, 0)),
        "loss": toys.log_loss(prior.source(new_x, kept), new_y, likelihood),
        **_summaries(nu),
    }


def _summaries(nu: Array) -> dict[str, float]:
    flat = nu.reshape(-1, nu.shape[2])
    low, high = np.quantile(flat, [0.025, 0.975], axis=0)
    columns = {"mean": flat.mean(axis=0), "sd": flat.std(axis=0), "low": low, "high": high}
    return {
        f"{name}_{i}": float(value)
        for name, values in columns.items()
        for i, value in enumerate(values)
    }


run = runs(measure, toys.cells, "long_chains", n_basis=64, n_chains=8, n_draws=1000, n_annealed=128)
