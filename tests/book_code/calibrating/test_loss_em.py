"""Loss-EM in bulk: the vectorised runs and the closed forms are what the algorithms do."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from bayesloss import linearised_loss_em, loss_em
from bayesloss_book.calibrating import loss_em as page
from bayesloss_book.models.families import gaussians
from bayesloss_book.problems.power_plant import ACTIONS, PowerPlant, approximations
from bayesloss_book.references.decision_references import mixed_loss_em

RUN = dict(zip(page.ALGORITHMS, (loss_em, linearised_loss_em, mixed_loss_em), strict=True))


@pytest.mark.parametrize("disasters", [False, True])
@pytest.mark.parametrize("algorithm", page.ALGORITHMS)
def test_bulk_is_the_package_s_algorithm(algorithm, disasters):
    p, losses = page.random_problems(20, 6, 4, 3, disasters=disasters)
    for multiple in (1.0, 1.3, 10.0):
        ends = page.end_points(p, losses, multiple, algorithm)
        for k in range(20):
            M = multiple * float(losses[k].max())
            expected = [RUN[algorithm](p[k], losses[k], M, start=h).action for h in range(4)]
            assert ends[k].tolist() == expected


@pytest.mark.filterwarnings("ignore:no fixed point within 1 rounds")
def test_the_slider_tells_the_first_round_of_the_algorithm():
    """What is left of the meltdown's mass, in closed form; and whether the run leaves "on"."""
    plant = PowerPlant()
    constants = (101, 130, 150, 1_000)
    told = str(page.tilt_slider(plant, constants, 0)).split("; ")
    hot = float(plant.posterior[plant.states > plant.critical].sum())
    for M, sentence in zip(constants, told, strict=True):
        left = hot * (M - 100) / (M - 100 * hot)
        assert f"leaves {100 * left:.1f} % above" in sentence
        run = loss_em(plant.posterior, plant.losses, float(M), start=0, max_iter=1)
        assert sentence.endswith(f"decides: {ACTIONS[run.actions[1]]}.")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.sampled_from(page.ALGORITHMS),
    st.floats(1e-3, 0.999),
    st.floats(0.01, 0.95),
    st.floats(1.0, 50.0),
)
def test_traps_of_the_plant(algorithm, pi, share, multiple):
    """Two states, "cool" and "hot"; the closed form says which starts are fixed points."""
    p = torch.tensor([1 - pi, pi], dtype=torch.float64)
    losses = torch.tensor([[0.0, share], [1.0, share]], dtype=torch.float64)
    off_from, on_until = (
        float(limit[0]) for limit in page.plant_limits(algorithm, np.array([multiple]), share, 1.0)
    )
    # Rounding decides within a hair of the limits.
    assume(abs(pi - off_from) > 1e-9 and abs(pi - on_until) > 1e-9)
    assert off_from <= share + 1e-12 and on_until >= share - 1e-12
    on = RUN[algorithm](p, losses, multiple, start=0)
    off = RUN[algorithm](p, losses, multiple, start=1)
    assert (on.actions == (0, 0)) == (pi < on_until)
    assert (off.actions == (1, 1)) == (pi > off_from)


def test_problems():
    p, losses = page.random_problems(500, 5, 4, 0, disasters=True)
    np.testing.assert_allclose(p.sum(dim=1), 1)
    assert float((losses == 1).double().mean()) == pytest.approx(0.1, abs=0.02)
    assert float(losses[losses < 1].max()) <= 0.2


def test_gaussian_plants_end_where_the_library_does():
    plant = PowerPlant()
    criticals = (320.0, 345.0)
    prices = (1.0, 5.0, 12.0)
    M = 101.0
    table = page.gaussian_plants(plant, criticals, prices, M)
    family = gaussians(plant.states)
    fits = approximations(plant)
    for critical, price in table.index:
        other = replace(plant, critical=critical, shutdown=price)
        row = table.loc[critical, price]
        risks = (100 * plant.tail(critical), price)
        for start, name in enumerate(("loss-EM from on", "loss-EM from off")):
            run = loss_em(other.posterior, other.losses, M, start=start, family=family)
            assert row[name] == pytest.approx(risks[run.action] - min(risks), abs=1e-3)
        for fit, name in (("min KL(q‖p)", "variational inference"), ("min KL(p‖q)", "moments")):
            off = int(100 * norm.sf(critical, *fits[fit]) > price)
            assert row[name] == pytest.approx(risks[off] - min(risks), abs=1e-3)
    assert (table > 0).any().all() and (table == 0).any().all()  # each is right here, wrong there
    assert len(page.draw_gaussian_plants(table).axes) == 2
