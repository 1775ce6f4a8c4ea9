"""Figures that a test drew are closed after it."""

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")
