"""Run by ``test_threads``: fit, compute with two threads, fork; then the child does the like.

Another Python thread of the parent is in the middle of a fit when the child is made.
"""

import multiprocessing
import sys
import threading

import numpy as np
import torch
from threadpoolctl import threadpool_info

from bayesloss import GPClassifier, LinkCalibrator, LinkgisticClassifier
from bayesloss.threads import one_thread

rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 20))
y = (X[:, 0] + rng.logistic(size=2000) > 0).astype(int)


def predict(_: int) -> float:
    """Predict with the parent's fit."""
    return float(model.predict_proba(X)[0, 1])


def calibrate(_: int) -> float:
    """Fit and predict."""
    return float(LinkCalibrator().fit(X[:, 0], y).predict_proba([0.0])[0, 1])


def classify(_: int) -> float:
    """Fit another classifier."""
    few = GPClassifier(length_scale=3.0, amplitude=2.0).fit(X[:100], y[:100])
    return float(few.predict_proba(X)[0, 1])


def compute(_: int) -> float:
    """Compute what two threads would share, outside of any fit."""
    return float(torch.ones(2**20).exp().mean())


def blas_threads(_: int) -> float:
    """The threads of BLAS, which survive a fork."""
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


if __name__ == "__main__":
    torch.set_num_threads(2)
    model = LinkgisticClassifier(max_iter=3).fit(X, y)
    jobs = (predict, calibrate, classify, compute, blas_threads)
    expected = [job(0) for job in jobs]
    held = threading.Event()
    forked = threading.Event()

    def hold() -> None:
        """Be in the middle of a fit."""
        with one_thread():
            held.set()
            forked.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        forked.set()
        holder.join()
        for job, number in zip(jobs, expected, strict=True):
            there = pool.map_async(job, [0]).get(timeout=float(sys.argv[1]))
            assert there == [number], (job.__name__, there, number)
    assert torch.get_num_threads() == 2
