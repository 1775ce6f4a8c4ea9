import numpy as np
import pytest
import torch
from scipy import sparse

from bayesloss import GP, ISGP, Gaussian, NystromBasis, TrigonometricKernel, laplace
from bayesloss.kernels import SquaredExponential
from bayesloss.learning.data.inputs import DenseInputs, SparseInputs, centred_scores
from bayesloss.learning.data.rows import folded
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.links.fitted_link import mean_slope
from bayesloss.learning.links.softmax_joint import SoftmaxJoint
from bayesloss.learning.sources.basis import Basis

N = 30
# The last block is shorter than the others, all are single rows, or one holds all.
SIZES = [1, 7, 1000]
CLOSE = {"rtol": 1e-11, "atol": 1e-12}


@pytest.fixture(params=SIZES)
def blocks(request, monkeypatch):
    """Rows in a block, or about as many numbers, wherever the library cuts data."""
    for name in (
        "data.rows._MERGED",
        "links.fitted_link._ROWS",
        "links.fitted_link._TABULATED",
        "data.inputs._BLOCK",
        "data.inputs._PREDICTED",
        "data.inputs._ROWS",
        "links.softmax_joint._ROWS",
        "weights.label_likelihood._PART",
        "inference.likelihoods._MANY",
        *(f"sources.{name}.BLOCK" for name in ("basis", "nystrom", "priors", "trigonometric")),
    ):
        rows = max(2, request.param) if name.endswith("_MERGED") else request.param
        monkeypatch.setattr(f"bayesloss.learning.{name}", rows)
    return request.param


def matrix(d=3, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(N, d)) * (generator.random((N, d)) < 0.7)
    X[0] = 2 - X.max(0)
    return X


def kernel():
    return TrigonometricKernel(a=1.6, c=0.5, n_basis=6)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("form", [DenseInputs, SparseInputs])
def test_sums_over_the_rows_of_inputs(form):
    X = matrix()
    generator = np.random.default_rng(1)
    inputs = form(torch.from_numpy(X) if form is DenseInputs else sparse.csr_array(X))
    weight = generator.uniform(0.5, 2, N)
    centre = generator.normal(size=3)
    W = generator.normal(size=(4, 3))
    S = generator.normal(size=(4, N))
    w, m, beta, slopes = map(torch.from_numpy, (weight, centre, W, S))
    np.testing.assert_allclose(inputs.sum(w), weight @ X, **CLOSE)
    np.testing.assert_allclose(inputs.squares_about(m, w), weight @ (X - centre) ** 2, **CLOSE)
    np.testing.assert_allclose(inputs.scores(beta), W @ X.T, **CLOSE)
    np.testing.assert_allclose(inputs.pull_back(slopes), S @ X, **CLOSE)
    along = (X - centre) @ W.T
    np.testing.assert_allclose(inputs.along(beta.T, m), along, **CLOSE)
    # Two problems of two directions each; once in single precision.
    lengths = np.stack([(along[:, :2] ** 2).sum(1), (along[:, 2:] ** 2).sum(1)])
    np.testing.assert_allclose(inputs.squared_lengths(beta.T, m, 2), lengths, **CLOSE)
    narrow = inputs.squared_lengths(beta.T.float(), m, 2)
    np.testing.assert_allclose(narrow, lengths, rtol=1e-5, atol=1e-5)
    for chosen in ([3, 1, 1], w > 1, slice(None, None, 7)):
        some = inputs.rows(torch.tensor(chosen) if isinstance(chosen, list) else chosen)
        np.testing.assert_allclose(some.scores(beta), W @ X[chosen].T, **CLOSE)
    np.testing.assert_allclose(inputs.dense(torch.tensor([3, 1, 1])), X[[3, 1, 1]], **CLOSE)
    assert inputs.largest() == np.abs(X).max()
    assert inputs.stored == (X.size if form is DenseInputs else np.count_nonzero(X))


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_centred_scores(form):
    X = matrix()
    generator = np.random.default_rng(2)
    coef = generator.normal(size=(2, 3))
    centre = generator.normal(size=3)
    expected = np.einsum("kd,nd->kn", coef, X - centre)
    np.testing.assert_allclose(centred_scores(form(X), coef, centre), expected, **CLOSE)


NYSTROM = NystromBasis(SquaredExponential(a=4.0), torch.linspace(-1.2, 1.1, 6).double())


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("basis", [kernel(), NYSTROM], ids=["trigonometric", "Nystrom"])
@pytest.mark.parametrize("kind", [ISGP, GP])
def test_sources_and_moments_are_those_of_one_row_at_a_time(kind, basis):
    """By psi or phi for w, and by a posterior's moments of single rows."""
    x = torch.linspace(-1.5, 1.7, N, dtype=torch.float64)
    generator = np.random.default_rng(7)
    prior = kind(basis, mu=0.3, gamma=2.0)
    Gamma = torch.from_numpy(generator.normal(size=(2, 7)))
    w = Gamma[:, :-1]
    rows = x.split(1)
    squares = torch.cat([torch.einsum("si,nij,sj->sn", w, basis.psi(row), w) for row in rows], 1)
    for form in (type(basis), Basis):
        np.testing.assert_allclose(form.integrated_square(basis, x, w), squares, atol=1e-10)
    nu = squares if kind is ISGP else w @ basis.basis(x).T
    np.testing.assert_allclose(prior.source(x, Gamma), Gamma[:, -1:] + nu, atol=1e-10)
    posterior = laplace(prior, Gaussian(25.0), x, torch.tanh(2 * x))
    for found, each in zip(
        posterior.moments(x), zip(*map(posterior.moments, rows), strict=True), strict=True
    ):
        np.testing.assert_allclose(found, torch.cat(each), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("steps", [N // 4, 4096])  # read off a table, or computed row by row
def test_mean_slope_by_differences(blocks, monkeypatch, steps):
    monkeypatch.setattr("bayesloss.learning.links.fitted_link._STEPS", steps)
    generator = np.random.default_rng(4)
    x = torch.from_numpy(generator.uniform(-1.4, 1.1, 6 * N))
    weight = torch.from_numpy(generator.uniform(0.5, 2, 6 * N))
    posterior = laplace(ISGP(kernel(), mu=0.0, gamma=1.0), Gaussian(25.0), x, torch.tanh(2 * x))
    h = 1e-5  # central differences are off by about h^2
    slope = (posterior.mean(x + h) - posterior.mean(x - h)) / (2 * h)
    expected = float(weight @ slope / weight.sum())
    # Cubic interpolation on the few nodes of the table is off by their spacing to the fourth power.
    assert mean_slope(posterior, x, weight) == pytest.approx(
        expected, rel=1e-8 if steps > N else 0.01
    )


@pytest.mark.usefixtures("blocks")
def test_shares_of_the_nodes_are_hat_functions():
    generator = np.random.default_rng(5)
    nodes = np.linspace(-2, 3, 9)
    x = np.concatenate([generator.uniform(-2, 3, N - 3), nodes[[0, 4, 8]]])
    y = generator.integers(0, 2, N)
    weight = generator.uniform(0.5, 2, N)
    hats = np.maximum(0, 1 - np.abs(x - nodes[:, None]) / (nodes[1] - nodes[0]))
    given = (torch.from_numpy(each) for each in (x, y.astype(float), weight, nodes))
    found = Bernoulli.shares(*given)
    np.testing.assert_allclose(found, [hats @ weight, hats @ (weight * y)], **CLOSE)


@pytest.mark.usefixtures("blocks")
def test_derivatives_of_the_softmax_of_sources():
    """Of the log joint density of K sources, by automatic differentiation of another form of it."""
    prior = ISGP(kernel(), mu=0.3, gamma=2.0)
    generator = torch.Generator().manual_seed(6)
    x = torch.rand(3, N, generator=generator, dtype=torch.float64) * 2 - 1
    codes = torch.randint(0, 3, (N,), generator=generator)
    weight = torch.rand(N, generator=generator, dtype=torch.float64) + 0.5
    intercepts = torch.tensor([0.1, -0.2, 0.4], dtype=torch.float64)
    labels = torch.stack([codes == k for k in range(3)])
    joint = SoftmaxJoint.of(prior, intercepts, [prior.features(each) for each in x], labels, weight)
    Gamma = torch.randn(3, 7, generator=generator, dtype=torch.float64)

    def log_joint(flat):
        parts = flat.reshape(3, 7)
        nu = torch.stack([prior.source(each, G) for each, G in zip(x, parts, strict=True)], dim=1)
        fit = -torch.nn.functional.cross_entropy(nu, codes, reduction="none")
        centre = torch.cat([torch.zeros(3, 6, dtype=nu.dtype), intercepts[:, None]], dim=1)
        return weight @ fit - 0.5 * (prior.precision * (parts - centre) ** 2).sum()

    gradient, H = joint.derivatives(Gamma.flatten())
    flat = Gamma.flatten()
    expected = torch.autograd.functional.jacobian(log_joint, flat)
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)
    expected = -torch.autograd.functional.hessian(log_joint, flat)
    torch.testing.assert_close(H, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 20])
def test_parts_are_merged_in_their_order_and_each_once(n):
    from dask.delayed import delayed

    parts = [delayed(letter) for letter in "abcdefghijklmnopqrst"[:n]]
    assert folded(parts, "".join) == "abcdefghijklmnopqrst"[:n]
