"""Monotone fits to simulated data, for several files of tests."""

from functools import cache

import numpy as np

from bayesloss import ISGPRegressor

# The search for the hyper-parameters stops where the evidence is flat to 1e-3 nats a unit. Rounding
# errors in the data may end it elsewhere on that flat top, where predictions differ in the fifth
# digit or so; everything else would show in the first.
SAME = {"rtol": 1e-3, "atol": 1e-4}


def simulate(n=60, noise=0.2, seed=0):
    """An S-shaped curve with noise: X of shape (n, 1), and y."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, n)
    return x[:, None], np.tanh(2 * x) + noise * generator.normal(size=n)


def fit(X, y, sample_weight=None, **settings):
    """Fit with few basis functions, and without the average unless it is asked for."""
    return ISGPRegressor(**{"n_basis": 8, "average_hyperparameters": False} | settings).fit(
        X, y, sample_weight
    )


@cache
def usual(sign=1, **settings):
    """Come back to one fit of what `simulate` makes, times the sign; no test may change it."""
    X, y = simulate()
    return fit(X, sign * y, **settings)
