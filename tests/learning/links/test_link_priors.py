from dataclasses import replace

import pytest
import torch
from scipy.stats import ncx2

from bayesloss.learning.links.joint_link import joint_priors
from bayesloss.learning.links.link_priors import LinkPriors
from bayesloss.learning.sources.priors import GP, ISGP, CentredISGP

FREE = LinkPriors("isgp", None, None, None, None, 0.01)
SCORES = torch.linspace(-3, 3, 61, dtype=torch.float64)
WEIGHT = torch.ones(61, dtype=torch.float64)


def test_scores_fill_half_of_the_period():
    prior = FREE.first(SCORES, WEIGHT)
    assert isinstance(prior, CentredISGP)
    assert 1 / float(prior.kernel.c) == pytest.approx(6)
    assert FREE.n_parameters == len(prior.location) == FREE.n_basis + 2


def test_a_few_scores_far_out_do_not_set_the_period():
    far = torch.linspace(-3, 3, 3001, dtype=torch.float64)
    far[-1] = 1e4
    assert 1 / float(FREE.first(far, torch.ones_like(far)).kernel.c) < 20
    paper = replace(FREE, a=1.2)  # the paper's recipe takes the largest
    assert 1 / float(paper.first(far, torch.ones_like(far)).kernel.c) == pytest.approx(2e4)


def test_the_family_is_ordered_by_what_a_path_strays_from_its_line():
    x = torch.tensor([-2.0, 0.0, 2.0], dtype=torch.float64)
    family = FREE.family(FREE.first(SCORES, WEIGHT))
    assert len(family) == 6
    assert len({float(prior.kernel.c) for prior in family}) == 1
    spread = []
    for prior in family:
        nu = prior.source(x, prior.sample(4000, torch.Generator().manual_seed(0)))
        spread.append(float((nu[:, 2] - 2 * nu[:, 1] + nu[:, 0]).var()))
    assert spread[1::2] == sorted(spread[1::2], reverse=True)
    assert spread[::2] == sorted(spread[::2], reverse=True)


@pytest.mark.parametrize(
    ("given", "chosen", "centred"),
    [
        ({}, True, True),
        ({"kind": "gp"}, True, False),
        ({"a": 1.2}, False, False),
        ({"variance": 1.0}, False, False),
        ({"kind": "gp", "variance": 1.0}, True, False),
    ],
)
def test_what_is_given_is_not_chosen(given, chosen, centred):
    priors = replace(FREE, **given)
    assert (priors.chosen, priors.centred) == (chosen, centred)
    prior = priors.first(SCORES, WEIGHT)
    assert isinstance(prior, GP if priors.kind == "gp" else ISGP | CentredISGP)
    if priors.variance:
        assert float(prior.kernel.variance) == pytest.approx(priors.variance)


def test_a_gp_has_the_mean_square_of_the_scores():
    prior = replace(FREE, kind="gp").first(SCORES, WEIGHT)
    assert float(prior.kernel.variance) == pytest.approx(float((SCORES**2).mean()))
    weight = WEIGHT + 3 * (SCORES > 1)
    expected = float(weight @ SCORES**2 / weight.sum())
    kernel = replace(FREE, kind="gp").first(SCORES, weight).kernel
    assert float(kernel.variance) == pytest.approx(expected)


@pytest.mark.parametrize(
    "given", [{}, {"variance": 2.5}, {"a": 1.5}, {"kind": "gp"}, {"kind": "gp", "variance": 2.5}]
)
def test_the_prior_of_paths_is_what_was_asked_for(given):
    """By draws: the intercept's precision, and the slope of an ISGP or the variance of a GP."""
    priors = replace(FREE, gamma=0.04, n_given=6, **given)
    first = priors.first(SCORES, WEIGHT)
    n = 20_000
    family = [first]
    if priors.chosen:
        family = [first, *priors.family(first)]
    for prior in family:
        Gamma = prior.sample(n, torch.Generator().manual_seed(0))
        nu = prior.source(torch.tensor([0.0, 1.3], dtype=torch.float64), Gamma)
        # Standard errors: of a variance (2 / n)^1/2 of it, of a mean the deviation over n^1/2.
        variance = 25.0
        if priors.kind == "gp":
            variance += given.get("variance", float((SCORES**2).mean()))
        else:
            slope = (nu[:, 1] - nu[:, 0]) / 1.3
            error = float(slope.std()) / n**0.5
            assert float(slope.mean()) == pytest.approx(given.get("variance", 1.0), abs=4 * error)
        assert float(nu[:, 0].var()) == pytest.approx(variance, rel=4 * (2 / n) ** 0.5)


def test_sources_of_a_joint_model_share_their_period():
    family = joint_priors(3.0)
    assert {1 / float(prior.kernel.c) for prior in family} == {6.0}
    assert len(family) == 3


@pytest.mark.parametrize(("joint", "least", "most"), [(False, 0.0, 4.0), (True, 0.6, 1.4)])
def test_the_slope_of_a_path_is_known_beforehand(joint, least, most):
    """95 in 100 lie in 0 to 4 or so, and on the common scale of a joint model in 0.6 to 1.4.

    Of the stiffest member f is nearly its level w_0 ~ N(m, tau^2) with m^2 + tau^2 = 0.98, and the
    mean slope its square: quantiles of a scaled noncentral chi-square.
    """
    prior = (joint_priors(3.0) if joint else FREE.family(FREE.first(SCORES, WEIGHT)))[-1]
    tau = 0.1 if joint else 0.5
    expected = ncx2(1, (0.98 - tau**2) / tau**2, scale=tau**2).ppf([0.025, 0.975])
    assert expected == pytest.approx([least, most], rel=0.2, abs=0.05)
    ends = torch.tensor([-6.0, 6.0], dtype=torch.float64)
    nu = prior.source(ends, prior.sample(20_000, torch.Generator().manual_seed(0)))
    slope = (nu[:, 1] - nu[:, 0]) / 12
    found = torch.quantile(slope, torch.tensor([0.025, 0.975], dtype=torch.float64))
    # The upper quantile of 20,000 draws has a standard error of 0.04; the waves add 0.02.
    assert found.tolist() == pytest.approx(expected, abs=0.1)


def test_periods_are_refused_where_a_thousandth_or_a_thousand_of_them_hold_the_scores():
    for c in (1 / 3001, 1001 / 3):
        with pytest.raises(ValueError, match=r"within 0\.000333 and 333, for scores that reach 3 "):
            replace(FREE, c=c).first(SCORES, WEIGHT)
    assert float(replace(FREE, c=1 / 2999).first(SCORES, WEIGHT).kernel.c) == 1 / 2999
    with pytest.warns(UserWarning, match="ends at 1/c = 0.003"):
        replace(FREE, c=999 / 3).first(SCORES, WEIGHT)
    # Scores within 1 are no reason for longer periods, nor those that are all zero for any.
    small = 1e-3 * SCORES
    assert float(replace(FREE, c=1 / 999).first(small, WEIGHT).kernel.c) == 1 / 999
    with pytest.raises(ValueError, match="expected c within 0.001 and"):
        replace(FREE, c=1 / 1001).first(small, WEIGHT)
    assert float(FREE.first(0 * SCORES, WEIGHT).kernel.c) == 1.0
