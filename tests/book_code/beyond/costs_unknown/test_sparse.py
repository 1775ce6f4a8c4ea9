import numpy as np
import torch
from scipy.stats import norm

from bayesloss_book.beyond.both.mixture import excess_risks
from bayesloss_book.beyond.costs_unknown import fits, sparse

RNG = np.random.default_rng(0)


def test_a_sparse_mean_has_the_least_excess_risk_of_its_own_costs(monkeypatch):
    """By quadrature over thresholds, with LHG's excess risk at each: no bill, and no log loss."""
    x = torch.from_numpy(RNG.normal(size=(300, 2)))
    z = -2.5 + 2 * torch.sin(2 * x[:, 0]) + x[:, 1] ** 2
    y = torch.bernoulli(torch.sigmoid(z), generator=torch.Generator().manual_seed(0))
    targets = []

    def spy(theta, x, p, *how, climb=sparse.climb):
        targets.append(p)
        return climb(theta, x, p, *how)

    monkeypatch.setattr(sparse, "climb", spy)
    found, kernel = sparse.means(x[:100], y[:100], x[100:], "three")
    log_r = np.linspace(-14, 14, 4_001)
    t = 1 / (1 + np.exp(-log_r))
    # Densities of log r: of the costs, a missed case costing 1; of the log loss, 1 / (t (1 - t)).
    weights = {"cost": norm.pdf(log_r, fits.CENTRE, fits.SPREAD) / (1 - t), "log": np.ones_like(t)}
    p = targets[0]
    for own, other in (("cost", "log"), ("log", "cost")):
        by = {}
        for name in (own, other):
            q = torch.sigmoid(sparse.log_odds(found[name], x[100:], kernel))
            by[name] = np.trapezoid(excess_risks(p, q, t) * weights[own], log_r)
        assert by[own] < 0.97 * by[other]
