"""The priors of links: what is given stands, what is not follows the scores."""

from dataclasses import replace

import pytest
import torch

from bayesloss.learning.centred_isgp import CentredISGP
from bayesloss.learning.isgp import GP, ISGP
from bayesloss.learning.link_priors import LinkPriors

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


def test_a_period_that_tells_nothing_is_refused():
    with pytest.raises(ValueError, match="expected c within"):
        replace(FREE, c=1e6).first(SCORES, WEIGHT)
    with pytest.warns(UserWarning, match="lower c to 0.17"):
        replace(FREE, c=1.0).first(SCORES, WEIGHT)


def test_sources_of_a_joint_model_share_their_period():
    family = FREE.joint_family(3.0)
    assert {1 / float(prior.kernel.c) for prior in family} == {6.0}
    assert len(family) == 3
