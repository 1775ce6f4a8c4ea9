"""What a linkgistic fit costs beside what people use, and beside the paper's own recipe.

Run by ``make bench``, with the image files at hand (``BAYESLOSS_DATA``). One round each: a fit is
a matter of seconds to minutes. The plain recipe is measured at a size that fits in memory, and
extrapolated linearly in their number.
"""

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicSpline
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression

from bayesloss import ISGP, LinkgisticClassifier, LogLoss, PaperLink, TrigonometricKernel, laplace
from bayesloss.learning.inference.laplace import approximate
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss.learning.inference.newton import find_mode
from bayesloss.learning.links.em import EM
from bayesloss.learning.links.tables import HermiteTable, table_nodes
from bayesloss.learning.sources.priors import grid_size
from bayesloss_book.data.data_sets import DataError, load_images
from bayesloss_book.references.source_laws import law_at

N_BASIS = 64
N_DRAWS = 64
# of the plain recipe; eight rounds is what ours took
WEIGHT_STEPS = 10
MODE_STEPS = 30
ROUNDS = 8


@pytest.fixture(scope="module")
def images():
    try:
        X, y = load_images("mnist", "train")
    except DataError as error:
        pytest.skip(f"needs the MNIST files: {error}")
    return X.reshape(len(X), -1) / 255.0, y


FITS = {
    "linkgistic": lambda: LinkgisticClassifier(),
    "logistic": lambda: LogisticRegression(C=1.0, tol=1e-4, max_iter=1000),
    "calibrated": lambda: CalibratedClassifierCV(
        LogisticRegression(C=1.0, tol=1e-4, max_iter=1000), cv=5
    ),
}


@pytest.mark.benchmark(group="one class of MNIST against the rest, 60,000 x 784")
@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_one_class(benchmark, images, name):
    X, y = images
    model = benchmark.pedantic(FITS[name]().fit, (X, y == 3), rounds=1)
    assert model.score(X, y == 3) > 0.97


@pytest.mark.benchmark(group="MNIST, 60,000 x 784: ten classes together, and one by one")
@pytest.mark.parametrize("together", [True, False])
def test_ten_classes(benchmark, images, together):
    X, y = images

    def fit():
        if together:
            return [LinkgisticClassifier().fit(X, y)]
        return [LinkgisticClassifier().fit(X, y == k) for k in range(10)]

    models = benchmark.pedantic(fit, rounds=1)
    benchmark.extra_info["rounds"] = [model.n_iter_ for model in models]


@pytest.mark.benchmark(group="the paper's recipe: psi, 64 draws, automatic differentiation")
@pytest.mark.parametrize("step", ["E", "H", "M"])
def test_plain_recipe(benchmark, images, step):
    """One call of each kind at n = 500; extra_info has what a fit to 60,000 would take.

    E: a gradient in the search for the mode. H: the Hessian there. M: a gradient in the weights.
    """
    n = 500
    X, y = images
    Z = torch.from_numpy(X[:n] - X.mean(0))
    labels = torch.from_numpy((y[:n] == 3).astype(float))
    kernel = TrigonometricKernel(a=1.2, c=0.02, n_basis=N_BASIS)
    prior = ISGP(kernel, gamma=0.01)
    generator = torch.Generator().manual_seed(0)
    beta = 0.1 * torch.randn(Z.shape[1], dtype=torch.float64, generator=generator)
    posterior = laplace(prior, Bernoulli(), Z @ beta, labels)
    draws = posterior.sample(N_DRAWS, generator)
    sign = 2 * labels - 1

    def expectation(beta):
        psi = kernel.psi(Z @ beta)
        w = draws[:, :-1]
        nu = draws[:, -1:] + torch.einsum("si,nij,sj->sn", w, psi, w)
        return torch.nn.functional.logsigmoid(sign * nu).mean(0).sum()

    psi = kernel.psi(Z @ beta)

    def log_joint(Gamma):
        nu = Gamma[-1] + torch.einsum("i,nij,j->n", Gamma[:-1], psi, Gamma[:-1])
        prior_term = 0.5 * (prior.precision * Gamma**2).sum()
        return torch.nn.functional.logsigmoid(sign * nu).sum() - prior_term

    function, at = (expectation, beta) if step == "M" else (log_joint, posterior.mode)
    derivative = torch.func.hessian(function) if step == "H" else torch.func.grad(function)
    slope = benchmark.pedantic(derivative, (at,), rounds=3, warmup_rounds=1)
    assert bool(slope.isfinite().all())
    if benchmark.enabled:
        calls = ROUNDS * {"E": MODE_STEPS, "H": 1, "M": WEIGHT_STEPS}[step]
        hours = benchmark.stats["median"] * calls * 60_000 / n / 3600
        benchmark.extra_info["hours for a fit to 60,000"] = round(hours, 2)


@pytest.mark.benchmark(group="E-step")
@pytest.mark.parametrize("n", [10**5, 10**6, 10**7])
def test_e_step(benchmark, n):
    """From scores and labels to the posterior; the grid grows with the fourth root of n."""
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(n, dtype=torch.float64, generator=generator)
    y = (torch.rand(n, dtype=torch.float64, generator=generator) < torch.sigmoid(x)).double()
    kernel = TrigonometricKernel(a=1.2, c=0.5 / float(x.abs().max()), n_basis=N_BASIS)
    prior = ISGP(kernel, gamma=0.01)
    likelihood = Bernoulli(LogLoss())

    def e_step():
        low = float(x.min())
        high = float(x.max())
        nodes = torch.linspace(low, high, grid_size(prior, high - low, n), dtype=torch.float64)
        shares = likelihood.shares(x, y, torch.ones_like(x), nodes)
        joint = LogJoint(prior, likelihood, likelihood.on_grid(prior.features, nodes, shares))
        return approximate(joint, find_mode(joint, prior.start(x[:1000])), with_bound=False)

    posterior = benchmark.pedantic(e_step, rounds=3)
    assert posterior.converged
    assert np.abs(posterior.mean(torch.linspace(-3, 3, 7).double()).numpy()).max() < 5


@pytest.mark.benchmark(group="a fit to 1,000 x 20: expectations by points, or exact at 129 scores")
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("a", [None, 1.2])
def test_expectations(benchmark, monkeypatch, a, exact):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 20))
    beta = rng.normal(size=20) / 2
    x = X @ beta
    y = rng.random(1000) < 1 / (1 + np.exp(-np.where(x > 0, 3 * x, x)))

    def expectations(em):
        nodes = table_nodes(em.prior, 1.5 * float(em.scores.abs().max()), 64)
        law = law_at(em.found(), nodes)
        up = law.expected_log_sigmoid().value
        values = torch.stack([up - law.mean, up])
        slopes = CubicSpline(nodes.numpy(), values.numpy(), axis=1)(nodes.numpy(), 1)
        return HermiteTable(nodes, values, torch.from_numpy(slopes))

    if exact:
        monkeypatch.setattr(EM, "_expectations", expectations)
    link = PaperLink(a=a, n_samples=None)
    fit = LinkgisticClassifier(link=link).fit
    model = benchmark.pedantic(fit, (X, y), rounds=5, warmup_rounds=1)
    assert model.converged_
