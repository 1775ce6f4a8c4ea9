"""The probit core: tails against mpmath, whitening against the kernel matrix."""

import mpmath
import pytest
import torch

from bayesloss.calibrating.probit import whitened_gp
from bayesloss.calibrating.probit.whitened_gp import (
    MANY_INPUTS,
    WhitenedGP,
    curvature,
    hazard,
    log_likelihood,
    lower_gram,
    skewness,
)
from bayesloss.kernels import SquaredExponential

KERNEL = SquaredExponential(a=0.3**-2, b=9.0)


@pytest.fixture(params=["eigenvectors", "pivots"])
def whitening(request, monkeypatch):
    """Each way to whiten, the one for many inputs too."""
    if request.param == "pivots":
        monkeypatch.setattr(whitened_gp, "MANY_INPUTS", 0)


@pytest.mark.parametrize(
    "margin", [-1e6, -2e4, -9e3, -40.0, -20.1, -19.9, -10.0, -1.0, 0.0, 1.0, 10.0, 35.0]
)
def test_likelihood_and_derivatives_in_the_tails(margin):
    with mpmath.workdps(1200):  # Phi(-40) is 1e-350, and h + m cancels
        m = mpmath.mpf(margin)
        log_phi = -(m**2) / 2 - mpmath.log(2 * mpmath.pi) / 2
        # The continued fraction of erfc is behind mpmath's far tail.
        log_cdf = mpmath.log(mpmath.erfc(-m / mpmath.sqrt(2)) / 2)
        h = mpmath.exp(log_phi - log_cdf)
        bend = h * (h + m)
        skew = h * ((h + m) * (2 * h + m) - 1)
        expected = [float(log_cdf), float(h), float(bend), float(skew)]
    t = torch.tensor(margin, dtype=torch.float64)
    found = [float(f(t)) for f in (log_likelihood, hazard, curvature, skewness)]
    # h + m is about 1/|m|: a rounding error of |m| weighs m^2 as much there.
    # On the right exp(-m^2/2) has m^2/2 rounding errors.
    tail = 1e-13 + 2e-16 * margin**2 * (margin > 0)
    relative = [tail, tail, max(tail, 4e-16 * margin**2 * (-1e4 < margin < 0))]
    # The third derivative is about 2 / |m|^3, left over from terms of size |m|; then a series.
    left = 5e-14 * margin**4 if margin >= -20 else 3e-9 * (20 / margin) ** 12
    relative.append(max(tail, left * (margin < 0)))
    for value, truth, tolerance in zip(found, expected, relative, strict=True):
        assert value == pytest.approx(truth, rel=tolerance, abs=1e-280)


def test_derivatives_are_finite_at_forty():
    t = torch.tensor([-40.0, 40.0, -1e200, 1e200], dtype=torch.float64)
    for f in (hazard, curvature):
        assert torch.isfinite(f(t)).all()
    assert float(hazard(t)[1]) == 0.0  # 1e-348 underflows
    assert float(curvature(t)[2]) == 1.0


@pytest.mark.usefixtures("whitening")
def test_whitening_gives_the_kernel_matrix_and_theta():
    x = torch.rand(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    prior = WhitenedGP.at(KERNEL, x, batch_dims=1)
    for i in range(2):
        gram = KERNEL(x[i], x[i])
        assert (prior.features[i] @ prior.features[i].mT - gram).abs().max() < 1e-9
        # K theta = f for theta = basis z
        assert (gram @ prior.basis[i] - prior.features[i]).abs().max() < 1e-9
    new = torch.tensor([[0.3, 5.0]] * 2, dtype=torch.float64)
    features, noise = prior.project(new)
    for i in range(2):
        cross = KERNEL(new[i], x[i])
        gram = KERNEL(x[i], x[i])
        left = 1 + 9 - (cross @ torch.linalg.solve(gram, cross.T)).diagonal()
        # Six points in [0, 1] at length scale 0.3: a condition number of about 1e5.
        assert (noise[i] ** 2 - left).abs().max() < 1e-7
        assert (features[i] - cross @ prior.basis[i]).abs().max() < 1e-12
    assert float(noise[0, 1]) == pytest.approx(10**0.5)  # far away: prior and noise


@pytest.mark.usefixtures("whitening")
def test_duplicates_make_no_trouble():
    """A singular K: the rank is what is left, and a test point on top has noise 1."""
    x = torch.tensor([0.1, 0.1, 0.7, 0.7], dtype=torch.float64)
    prior = WhitenedGP.at(KERNEL, x)
    assert prior.features.shape == (4, 2)
    torch.testing.assert_close(
        prior.features @ prior.features.mT, KERNEL(x, x), rtol=1e-5, atol=1e-10
    )
    _, noise = prior.project(x[:1])
    assert float(noise) == pytest.approx(1, abs=1e-9)


@pytest.mark.usefixtures("whitening")
def test_data_sets_of_several_ranks():
    """The smaller ranks are filled up with zeros."""
    x = torch.tensor([[0.1, 0.1, 0.7, 0.7], [0.1, 0.3, 0.5, 0.7]], dtype=torch.float64)
    prior = WhitenedGP.at(KERNEL, x, batch_dims=1)
    assert prior.features.shape == prior.basis.shape == (2, 4, 4)
    assert prior.basis.isfinite().all()
    gram = prior.features @ prior.features.mT
    for found, inputs in zip(gram, x, strict=True):
        assert (found - KERNEL(inputs, inputs)).abs().max() < 1e-9


def test_many_smooth_inputs_have_few_weights():
    """And what is left out of each variance is below its tolerance."""
    x = torch.linspace(0, 1, MANY_INPUTS + 1, dtype=torch.float64)
    prior = WhitenedGP.at(KERNEL, x)
    assert prior.features.shape[-1] < 20
    _, noise = prior.project(x)
    assert (noise**2 - 1).abs().max() < 2 * 1e-11 * 9


@pytest.mark.parametrize("rank", [3, MANY_INPUTS + 1])
def test_half_a_product(rank):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 4, rank, generator=generator, dtype=torch.float64)
    weight = torch.rand(2, 4, generator=generator, dtype=torch.float64)
    expected = torch.einsum("mnr,mn,mns->mrs", features, weight, features)
    found = lower_gram(features, weight)
    torch.testing.assert_close(found.tril(), expected.tril(), rtol=0, atol=1e-13)
