import numpy as np
import pytest
import torch
from scipy.stats import norm

from bayesloss import GPClassifier
from bayesloss_book.beyond.both.mixture import excess_risks
from bayesloss_book.beyond.costs_unknown import fits, sparse


def test_a_sparse_mean_has_the_least_excess_risk_of_its_own_costs():
    """By quadrature of LHG's excess risk over thresholds: the theorem of both papers."""
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(300, 2)))
    z = -2.5 + 2 * torch.sin(2 * x[:, 0]) + x[:, 1] ** 2
    y = torch.bernoulli(torch.sigmoid(z), generator=torch.Generator().manual_seed(0))
    found, kernel = sparse.means(x[:100], y[:100], x[100:], "three")
    full = GPClassifier(inference="laplace", length_scale=2**0.5, amplitude=3.0)
    p = torch.from_numpy(full.fit(x[:100], y[:100]).predict_proba(x[100:])[:, 1])
    log_r = np.linspace(-14, 14, 20_001)
    t = 1 / (1 + np.exp(-log_r))
    q = {name: sparse.log_odds(theta, x[100:], kernel) for name, theta in found.items()}
    risks = {name: excess_risks(p, torch.sigmoid(z), t) for name, z in q.items()}
    # Densities of log r: of the costs, a missed case costing 1; of the log loss, 1 / (t (1 - t)).
    costs = norm.pdf(log_r, fits.CENTRE, fits.SPREAD) / (1 - t)
    ours, of_log = (
        {name: np.trapezoid(risk * weight, log_r) for name, risk in risks.items()}
        for weight in (costs, 1.0)
    )
    assert ours["cost"] < 0.97 * ours["log"] and of_log["log"] < 0.97 * of_log["cost"]
    bills = fits.bill(q["cost"], p) - fits.bill(torch.logit(p), p)
    assert ours["cost"] == pytest.approx(float(bills.mean()), rel=0.02)
