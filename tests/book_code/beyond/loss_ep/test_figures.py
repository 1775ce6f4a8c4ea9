"""The figures on loss-calibrated EP draw what they are given."""

import pytest

from bayesloss_book.beyond.loss_ep import figures


@pytest.fixture(scope="module")
def here():
    return figures.live(6, 60, "u_05_15", 512, 0)


def test_max_loss_goes_to_ep(here):
    found = figures.by_max_loss(here, 0.275, (1, 1e6))
    assert found.loc[1e6, "loss_ep"] == found.loc[1e6, "ep"] == found.loc[1e6, "table_3_ep"]
    assert found.loc[1, "table_3_ep"] >= 0
