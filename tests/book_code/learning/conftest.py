"""Figures that a test drew are closed after it."""

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def closed():
    """Close all figures."""
    yield
    plt.close("all")
