import sys

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_iris

from bayesloss import ISGPRegressor, LinkDisplay, LinkgisticClassifier, MonotoneDisplay


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


class TestLink:
    X, y = load_iris(return_X_y=True)

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls):
        return LinkgisticClassifier().fit(cls.X[50:], cls.y[50:])

    def test_curve_and_band(self, model):
        _, ax = plt.subplots()
        display = LinkDisplay.from_estimator(model, ax=ax, level=0.8)
        (line,) = ax.lines
        train = model.scores(self.X[50:])
        evenly = np.linspace(train.min(), train.max(), 300)  # from the least score upwards
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

    def test_one_of_many_classes(self):
        names = np.array(["setosa", "versicolor", "virginica"])[self.y]
        model = LinkgisticClassifier(multi_class="ovr", tol=0.01).fit(self.X, names)
        assert LinkDisplay.from_estimator(model, target="versicolor").name == "versicolor"
        for target in (None, "rose"):
            with pytest.raises(ValueError, match=f"expected a target of .*, got {target!r}"):
                LinkDisplay.from_estimator(model, target=target)

    def test_the_class_without_a_link(self, model):
        with pytest.raises(ValueError, match="expected target=.*2.*, which has the link, got 1"):
            LinkDisplay.from_estimator(model, target=1)

    def test_without_matplotlib(self, model, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(ImportError, match="pip install matplotlib"):
            LinkDisplay.from_estimator(model)


class TestMonotone:
    generator = np.random.default_rng(0)
    X = np.exp(generator.normal(size=(40, 1)))
    y = np.log(X[:, 0]) + 0.2 * generator.normal(size=40)
    data = (X, y)

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls):
        return ISGPRegressor(n_basis=4).fit(*cls.data)

    def test_it_draws_what_the_estimator_says(self, model):
        _, ax = plt.subplots()
        display = MonotoneDisplay.from_estimator(model, *self.data, level=0.8, n_points=30, ax=ax)
        assert display.ax_ is ax
        (line,) = ax.get_lines()
        x, mean = line.get_data()
        assert (x.min(), x.max()) == pytest.approx((self.X.min(), self.X.max()))
        np.testing.assert_allclose(mean, model.predict(x[:, None]), rtol=1e-10)
        low, high = model.predict_interval(x[:, None], 0.8)
        np.testing.assert_allclose(display.curve, (low, high))
        band = model.predict_interval(x[:, None], 0.8, of="observation")
        np.testing.assert_allclose(display.observation, band)
        labels = [text.get_text() for text in ax.get_legend().texts]
        assert labels == ["data", "80 % of new data", "80 % of curve", "mean"]
        np.testing.assert_array_equal(ax.collections[0].get_offsets()[:, 1], self.y)
        assert display.plot().ax_ is not ax

    def test_data_frames(self):
        frame = pd.DataFrame(self.X, columns=["income"])
        model = ISGPRegressor(n_basis=4, average_hyperparameters=False).fit(frame, self.y)
        display = MonotoneDisplay.from_estimator(model, frame, self.y)
        x = display.ax_.get_lines()[0].get_xdata()
        on_curve = model.predict(pd.DataFrame({"income": x}))
        np.testing.assert_allclose(display.ax_.get_lines()[0].get_ydata(), on_curve, rtol=1e-12)

    def test_inputs_of_one_dimension_are_drawn_as_fit_takes_them(self, model):
        column = MonotoneDisplay.from_estimator(model, *self.data)
        flat = MonotoneDisplay.from_estimator(model, self.X[:, 0], self.y)
        np.testing.assert_array_equal(flat.mean, column.mean)
        np.testing.assert_array_equal(flat.X, column.X)

    def test_without_matplotlib(self, model, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(ImportError, match="pip install matplotlib"):
            MonotoneDisplay.from_estimator(model, *self.data)

    def test_shapes(self, model):
        with pytest.raises(
            ValueError, match=r"expected X of shape \(n, 1\) and y .*, got .* and \(30,\)"
        ):
            MonotoneDisplay.from_estimator(model, self.X, self.y[:30])


def test_tensors_with_gradients_are_drawn():
    x = torch.linspace(0, 1, 50, dtype=torch.float64)
    y = x.sqrt().requires_grad_()
    model = ISGPRegressor(n_basis=8).fit(x, y)
    display = MonotoneDisplay.from_estimator(model, x.clone().requires_grad_(), y)
    np.testing.assert_array_equal(display.y, y.detach().numpy())
