"""Limits are restored; small work gets one thread, large work the user's, children of forks one."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import dask.array as da
import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

import bayesloss
from bayesloss import threads
from bayesloss.calibrating import gp_classification
from bayesloss.learning.data import inputs as inputs_module
from bayesloss.learning.data.inputs import DenseInputs
from bayesloss.threads import one_thread, threads_for

LARGE = (2**11, 2**11, 2**11)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = (X[:, 0] + RNG.logistic(size=60) > 0).astype(int)


@pytest.fixture
def three():
    """The user has three threads, whatever the machine and its environment have."""
    with threads_of_the_user(3):
        yield


@contextmanager
def threads_of_the_user(number):
    before = torch.get_num_threads()
    limited = threadpool_limits(limits=number)
    torch.set_num_threads(number)
    let_go_of_blas()
    try:
        yield
    finally:
        limited.restore_original_limits()
        torch.set_num_threads(before)
        let_go_of_blas()


def let_go_of_blas():
    """Let other Python threads limit it, too."""
    for library in ThreadpoolController().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread()


def limits():
    """The threads of PyTorch, OpenMP and BLAS."""
    return {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}


def blas_limit():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("number", [1, 2])
def test_threads_are_taken_away_given_back_and_restored(number, three):
    with threads_of_the_user(number):
        assert limits() == {number}
        with one_thread():
            assert limits() == {1}
            with threads_for(*LARGE):
                assert limits() == {number}
            assert limits() == {1}
        assert limits() == {number}
    assert limits() == {3}


def test_threads_are_restored_after_an_error(three):
    @one_thread()
    def fail():
        with threads_for(*LARGE):
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert limits() == {3}


def test_large_products_get_the_users_threads(three):
    with threads_for(*LARGE):  # where nobody has taken them away
        assert limits() == {3}
    sizes = [(2**10, 2**10, 2**10), (2**20, 2**3, 1), (1, 2**20, 2**3)]
    with one_thread():
        for size in sizes:
            with threads_for(*size):
                assert limits() == {3}
        for rows, inner, columns in sizes:
            with threads_for(rows // 2, inner, columns // 2):
                assert limits() == {1}


def test_blas_has_one_thread_until_the_last_python_thread_leaves(three):
    entered = threading.Event()
    may_leave = threading.Event()

    def small():
        with one_thread():
            entered.set()
            may_leave.wait()
            assert torch.get_num_threads() == 1
            assert blas_limit() == {1}
        return torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(small)
        entered.wait()
        before = torch.get_num_threads()  # of this Python thread
        with one_thread(), threads_for(*LARGE):
            within = torch.get_num_threads(), blas_limit()
        after = torch.get_num_threads(), blas_limit()
        may_leave.set()
        assert other.result() == 3
    assert before == 3
    assert within == after == (3, {1})
    assert limits() == {3}


def test_a_python_thread_that_begins_meanwhile_gets_the_users_threads_back(three):
    def small():
        with one_thread():
            assert torch.get_num_threads() == 1
        return torch.get_num_threads()

    with one_thread(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(small).result() == 3
    assert limits() == {3}


def test_what_is_imported_within_is_limited_from_the_next_call_on():
    code = """
from bayesloss.threads import one_thread
with one_thread():
    import torch
    torch.set_num_threads(3)  # as it may be by default
    with one_thread():
        within = torch.get_num_threads()
print(within, torch.get_num_threads())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1", "3"]


class Watched:
    """Numbers that remember how many threads there were when they were read."""

    def __init__(self, values):
        self.values = values
        self.shape = values.shape
        self.dtype = values.dtype
        self.seen = set()

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        self.seen |= limits()
        return np.array(self.values, dtype=dtype)


def fit_and_ask(model, *methods, column=None):
    x = X if column is None else X[:, column]
    watched = Watched(x)
    model.fit(watched, Y)
    for method in methods:
        getattr(model, method)(watched)
    return watched


def ask_link():
    link = bayesloss.LinkgisticClassifier(max_iter=1).fit(X, Y).link_
    watched = Watched(X[:, 0])
    for method in (link.source, link.inverse_link, link.source_band, link.inverse_link_band):
        method(watched)
    return watched


def ask_softmax():
    watched = Watched(np.stack([-X[:, 0], X[:, 0], X[:, 1]], axis=1))
    calibrator = bayesloss.SoftmaxCalibrator().fit(watched, np.arange(60) % 3)
    calibrator.predict_interval(watched)
    return watched


def ask_reliability():
    watched = Watched(np.linspace(0.1, 0.9, 60))
    bayesloss.reliability(Y, watched)
    return watched


def ask_together():
    watched = Watched(RNG.integers(0, 2, (8, 5)))
    bayesloss.decide_together(watched)
    return watched


DOORS = {
    "linkgistic": lambda: fit_and_ask(
        bayesloss.LinkgisticClassifier(max_iter=1), "predict", "predict_proba", "decision_function"
    ),
    "gp": lambda: fit_and_ask(
        bayesloss.GPClassifier(length_scale=1.0, amplitude=1.0), "predict_proba", "sample_labels"
    ),
    "loss_em": lambda: fit_and_ask(
        bayesloss.LossEMClassifier(length_scale=1.0, amplitude=1.0), "predict"
    ),
    "isgp": lambda: fit_and_ask(
        bayesloss.ISGPRegressor(n_basis=8, average_hyperparameters=False),
        "predict",
        "predict_interval",
        "sample_source",
        column=0,
    ),
    "calibrator": lambda: fit_and_ask(
        bayesloss.LinkCalibrator(), "predict_proba", "predict_interval", "sample_proba", column=0
    ),
    "softmax": ask_softmax,
    "link": ask_link,
    "reliability": ask_reliability,
    "decide_together": ask_together,
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_small_fits_and_predictions_work_on_one_thread(door, three):
    assert door().seen == {1}
    assert limits() == {3}


class WatchedTensor(torch.Tensor):
    """A tensor that remembers how many threads there were when anything was done with it."""

    seen: ClassVar[set[int]] = set()

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.seen.add(torch.get_num_threads())
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


@pytest.fixture
def watched_tensor():
    WatchedTensor.seen.clear()
    return lambda values: values.as_subclass(WatchedTensor)


@pytest.mark.parametrize(
    "name", ["laplace", "variational", "maximise_evidence", "weigh_draws", "loss_em"]
)
def test_small_inference_works_on_one_thread(name, three, watched_tensor):
    x = torch.linspace(-1, 1, 20, dtype=torch.float64)
    prior = bayesloss.ISGP(bayesloss.TrigonometricKernel(a=2.0, c=0.25, n_basis=8))
    likelihood = bayesloss.Gaussian(100.0)
    calls = {
        "weigh_draws": lambda: bayesloss.weigh_draws(posterior, watched_tensor(x), x**3),
        "loss_em": lambda: bayesloss.loss_em(
            watched_tensor(torch.tensor([0.5, 0.5])), torch.eye(2), 2.0, start=0
        ),
    }
    posterior = bayesloss.laplace(prior, likelihood, x, x**3)
    call = getattr(bayesloss, name)
    calls.get(name, lambda: call(prior, likelihood, watched_tensor(x), x**3))()
    assert WatchedTensor.seen == {1}
    assert limits() == {3}


@pytest.mark.parametrize("large", [False, True])
def test_products_with_the_inputs_get_threads_by_their_size(
    large, three, monkeypatch, watched_tensor
):
    if large:
        monkeypatch.setattr(threads, "_MULTIPLICATIONS", 60)
    inputs = DenseInputs(watched_tensor(torch.from_numpy(X)))
    WatchedTensor.seen.clear()
    with one_thread():
        inputs.scores(torch.ones((1, 2), dtype=torch.float64))
        inputs.pull_back(torch.ones((1, 60), dtype=torch.float64))
        inputs.sum(torch.ones(60, dtype=torch.float64))
    assert (3 in WatchedTensor.seen) == large


def test_parts_are_shared_out_each_on_one_thread(three, monkeypatch):
    monkeypatch.setattr(inputs_module, "_ROWS", 7)
    inputs = DenseInputs(torch.from_numpy(X))
    arguments = torch.eye(2).double(), torch.ones(2).double(), 1
    seen = set()

    def along(self, *arguments):
        seen.add((threading.get_ident(), *limits()))
        time.sleep(0.01)  # or one Python thread may take all parts
        return plain(self, *arguments)

    plain = DenseInputs.along
    monkeypatch.setattr(DenseInputs, "along", along)
    with one_thread():
        expected = inputs.squared_lengths(*arguments)
        assert seen == {(threading.get_ident(), 1)}
        seen.clear()
        monkeypatch.setattr(threads, "_MULTIPLICATIONS", 60)
        with torch.inference_mode():
            assert torch.equal(inputs.squared_lengths(*arguments), expected)
    assert {number for _, number in seen} == {1}
    assert len(seen) > 1
    assert threading.get_ident() not in {python_thread for python_thread, _ in seen}
    seen.clear()
    with threads_of_the_user(1), one_thread():
        assert torch.equal(inputs.squared_lengths(*arguments), expected)
    assert seen == {(threading.get_ident(), 1)}
    assert limits() == {3}


@pytest.mark.filterwarnings("ignore:the fit tells nothing")
@pytest.mark.parametrize(("numbers", "expected"), [(1, 3), (2**23, 1)])
def test_gaussian_processes_get_threads_by_their_size(numbers, expected, three, monkeypatch):
    monkeypatch.setattr(threads, "_NUMBERS", numbers)
    seen = []
    fit_weights = gp_classification.fit_weights

    def watched(*arguments, **how):
        seen.append(limits())
        return fit_weights(*arguments, **how)

    monkeypatch.setattr(gp_classification, "fit_weights", watched)
    bayesloss.GPClassifier(length_scale=1.0, amplitude=1.0).fit(X, Y)
    assert seen == [{expected}]
    assert limits() == {3}


class Users(ClassifierMixin, BaseEstimator):
    """A classifier of the user's, which says how many threads it had."""

    seen: ClassVar[set[int]] = set()

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen.update(limits())
        return self

    def decision_function(self, X):
        self.seen.update(limits())
        return X[:, 0]


def test_the_users_classifier_has_the_users_threads(three):
    bayesloss.CalibratedClassifier(Users(), cv=2).fit(X, Y).predict_proba(X)
    assert Users.seen == {3}


class WatchedRegressor(bayesloss.ISGPRegressor):
    """A regression that says how many threads it had."""

    seen: ClassVar[set[int]] = set()

    def _new_input(self, X):
        self.seen.update(limits())
        return super()._new_input(X)


def test_blocks_of_a_dask_collection_are_predicted_on_one_thread(three):
    model = WatchedRegressor(n_basis=8, average_hyperparameters=False).fit(X[:, :1], X[:, 0])
    answer = model.predict(da.from_array(X[:, :1], chunks=(20, 1)))
    model.seen.clear()
    answer.compute(scheduler="synchronous")
    assert model.seen == {1}
    assert limits() == {3}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_predicts_and_fits():
    script = Path(__file__).with_name("forked_after_fit.py")
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    patience = "30"  # seconds for each call; what hangs, hangs for ever
    ran = subprocess.run(
        [sys.executable, script, patience], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
