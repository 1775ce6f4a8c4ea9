"""Tests of the figure of a link: what it draws, and what it asks for."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_iris

from bayesloss import LinkDisplay, LinkgisticClassifier

X, y = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def model():
    return LinkgisticClassifier().fit(X[50:], y[50:])


def test_curve_and_band(model):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, ax = pyplot.subplots()
    display = LinkDisplay.from_estimator(model, ax=ax, level=0.8)
    (line,) = ax.lines
    train = model.scores(X[50:])
    evenly = np.linspace(train.min(), train.max(), 300)  # from the least training score upwards
    np.testing.assert_allclose(display.scores, evenly, rtol=1e-12)
    np.testing.assert_array_equal(line.get_ydata(), model.link_.inverse_link(display.scores))
    band = model.link_.inverse_link_band(display.scores, level=0.8)
    np.testing.assert_array_equal([display.low, display.high], band)
    assert (display.low < display.high).all()
    # Far out the law of the probability is so skewed that its mean is beyond its quantiles.
    inner = (display.probability > 0.01) & (display.probability < 0.99)
    assert (display.low < display.probability)[inner].all()
    assert (display.probability < display.high)[inner].all()
    assert display.ax_ is ax
    assert ax.get_ylabel() == "probability of 2"
    assert display.plot(ax) is display
    pyplot.close(figure)


def test_one_of_many_classes():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = LinkgisticClassifier(multi_class="ovr").fit(X, names)
    display = LinkDisplay.from_estimator(model, target="versicolor")
    assert display.name == "versicolor"
    pyplot.close(display.ax_.figure)
    for target in (None, "rose"):
        with pytest.raises(ValueError, match=f"expected a target of .*, got {target!r}"):
            LinkDisplay.from_estimator(model, target=target)


def test_the_class_without_a_link(model):
    with pytest.raises(ValueError, match="expected target=.*2.*, which has the link, got 1"):
        LinkDisplay.from_estimator(model, target=1)


def test_without_matplotlib(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'bayesloss\[plot\]'"):
        LinkDisplay.from_estimator(model)


def test_matplotlib_is_loaded_when_called_for():
    module = "bayesloss.learning.estimators.link_display"
    code = f"import sys, {module}; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
