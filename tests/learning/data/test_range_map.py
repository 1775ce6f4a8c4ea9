import numpy as np
import pytest

from bayesloss.learning.data.range_map import DEPTHS, RangeMap, robust_reach


def slope(g, x):
    """The derivative dt/dx, by central differences."""
    step = 1e-6 * g.width + 1e-9 * np.abs(x - g.centre)
    return (g(x + step) - g(x - step)) / (2 * step)


def log_normal(sigma, n=200, seed=0):
    return np.exp(sigma * np.random.default_rng(seed).normal(size=n))


def with_outlier(at=100.0, n=100, seed=0):
    x = np.random.default_rng(seed).uniform(size=n)
    x[0] = at
    return x


HEAVY = {
    "log-normal, 1": log_normal(1),
    "log-normal, 3": log_normal(3),
    "its mirror": -log_normal(3),
    "one outlier": with_outlier(),
    "one at 1e12": with_outlier(1e12),
    "Cauchy": np.random.default_rng(1).standard_cauchy(500),
    "two far groups": np.r_[np.linspace(0, 1, 50), 1e4 + np.linspace(0, 1, 30)],
    "many zeros": np.append(np.zeros(300), log_normal(2)),
}


@pytest.mark.parametrize("x", HEAVY.values(), ids=HEAVY)
class TestBijection:
    def places(self, x):
        """Between, at and beyond the data, ascending."""
        x = np.unique(x)
        span = x[-1] - x[0]
        beyond = span * np.logspace(-3, 3, 20)
        return np.unique(np.concatenate([x, (x[1:] + x[:-1]) / 2, x[0] - beyond, x[-1] + beyond]))

    def test_acts_and_increases_strictly(self, x):
        g = RangeMap.fit(x)
        assert not g.is_identity
        assert (np.diff(g(self.places(x))) > 0).all()

    def test_inverse(self, x):
        """Back to x, to some rounding errors in x and, through the slope there, in t."""
        g = RangeMap.fit(x)
        at = self.places(x)
        t = g(at)
        rounding = np.abs(at) + g.width + (np.abs(t) + g.width) / slope(g, at)
        assert (np.abs(g.inverse(t) - at) < 1e-12 * rounding).all()

    def test_the_bulk_fills_a_fair_share_of_the_range(self, x):
        t = RangeMap.fit(x)(x)
        low, high = np.quantile(t, [0.1, 0.9])
        assert high - low > 0.1 * (t.max() - t.min())


class TestIdentity:
    @pytest.mark.parametrize("n", [3, 10, 100, 1000, 100_000])
    def test_on_uniform_and_equidistant_data(self, n):
        for x in (np.random.default_rng(n).uniform(-5, 7, n), np.linspace(0, 1, n)):
            assert RangeMap.fit(x).is_identity or n == 3

    def test_on_most_normal_samples(self):
        """On 9 % of samples of a hundred it acts by chance, and nearly as an affine map."""
        draws = np.random.default_rng(0).normal(size=(200, 100))
        maps = [RangeMap.fit(x) for x in draws]
        acting = [not g.is_identity for g in maps]
        assert sum(acting) <= 30
        for x, g in zip(draws[acting], [g for g in maps if not g.is_identity], strict=True):
            assert np.corrcoef(x, g(x))[0, 1] > 0.97
        assert RangeMap.fit(np.random.default_rng(1).normal(size=100_000)).is_identity


class TestFit:
    def test_log_normal_data_come_near_to_normal(self):
        """As straight in t as log x is: correlation of t with log x, over the central 98 %."""
        for sigma in (1, 2, 3):
            x = log_normal(sigma, 1000)
            t = RangeMap.fit(x)(x)
            log = np.log(x) / sigma
            inner = np.abs(log) < 2.3
            assert np.corrcoef(t[inner], log[inner])[0, 1] > 0.995

    def test_an_outlier_leaves_the_bulk_alone(self):
        """Within the bulk the map is affine, of slope near 1, wherever the outlier lies."""
        for at in (100.0, 1e6, 1e12):
            x = with_outlier(at)
            g = RangeMap.fit(x)
            np.testing.assert_allclose(slope(g, np.linspace(0.05, 0.95, 30)), 1, atol=0.05)
            assert float(g(x).max()) < 3

    @pytest.mark.parametrize("x", HEAVY.values(), ids=HEAVY)
    def test_affine_equivariance(self, x):
        g = RangeMap.fit(x)
        for scale in (8.0, -0.25, 2.0**500, 2.0**-500):  # powers of two: no rounding
            other = RangeMap.fit(scale * x)
            np.testing.assert_allclose(other(scale * x) / scale, g(x), rtol=1e-9, atol=1e-9)

    def test_weights_are_repetitions(self):
        x = log_normal(2, 60)
        times = np.arange(60.0) % 4
        weighted = RangeMap.fit(x, times)
        repeated = RangeMap.fit(x.repeat(times.astype(int)))
        scaled = RangeMap.fit(x, times / 7)
        np.testing.assert_allclose(weighted(x), repeated(x), rtol=1e-12)
        np.testing.assert_allclose(weighted(x), scaled(x), rtol=1e-9)

    def test_depths_count_from_the_nearer_end_and_leave_no_gaps(self):
        """A depth is at most 1/2, and levels from both ends are a 32nd apart in the bulk."""
        depths = np.unique(DEPTHS)
        assert depths.max() == 0.5, "a depth is the distance of a level from the nearer of 0 and 1"
        levels = np.union1d(depths, 1 - depths)
        assert np.diff(levels[(levels > 0.05) & (levels < 0.95)]) == pytest.approx(1 / 32)

    @pytest.mark.parametrize("x", [[], [2.0], [1.0, 5.0], [3.0] * 9])
    def test_too_few_to_tell(self, x):
        assert RangeMap.fit(np.array(x, dtype=float)).is_identity

    @pytest.mark.parametrize(("n", "width"), [(29, 5e-324), (29, 1e-310), (15, 5e-324)])
    def test_what_rounding_cannot_tell_from_a_point(self, n, width):
        """No map brings the rest near to a bulk whose width, or whose distance, is no number."""
        x = np.array([*(width * np.arange(n)), *np.linspace(0.5, 1, 30 - n)])
        assert RangeMap.fit(x).is_identity


class TestRobustReach:
    x = np.random.default_rng(0).normal(size=1000)

    def test_well_spread_data_reach_as_far_as_they_do(self):
        assert robust_reach(self.x) == np.abs(self.x).max()
        slightly = np.append(self.x, 4 * np.abs(self.x).max())
        assert robust_reach(slightly) == np.abs(slightly).max()

    @pytest.mark.parametrize("far", [50.0, 1e3, -1e12])
    def test_a_few_far_out_count_little(self, far):
        reach = robust_reach(np.append(self.x, [far, far / 2]))
        assert 0.7 < reach / np.abs(self.x).max() < 2
        assert robust_reach(np.append(3 * self.x, [3 * far, 3 * far / 2])) == (
            pytest.approx(3 * reach)
        )

    def test_more_than_one_in_a_hundred_are_not_a_few(self):
        assert robust_reach(np.append(self.x, np.linspace(900, 1000, 30))) > 900

    def test_weights_are_counts(self):
        x = np.append(self.x, 1e3)
        counts = np.ones(1001)
        counts[-1] = 30
        assert robust_reach(x, counts) > 900
        assert robust_reach(x, 0.5 + 0 * counts) == robust_reach(x)


@pytest.mark.parametrize("weighted", [False, True])
def test_points_that_rounding_tells_apart_are_tied(weighted):
    rng = np.random.default_rng(0)
    x = rng.choice([-3.0, -0.5, 0.1, 0.4, 2.0, 40.0], size=300)
    weight = rng.choice([1.0, 2.0], size=300) if weighted else None
    shaken = x * (1 + 1e-15 * rng.integers(-3, 4, size=300))
    assert len(np.unique(shaken)) > 20
    at = np.linspace(-5, 50, 40)
    expected = RangeMap.fit(x, weight)
    np.testing.assert_allclose(RangeMap.fit(shaken, weight)(at), expected(at), rtol=1e-12)
