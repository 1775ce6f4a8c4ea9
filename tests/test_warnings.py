import warnings
from typing import ClassVar

import pytest
import torch
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, _fit_context

from bayesloss.warnings import warn_caller


class Estimator(BaseEstimator):
    _parameter_constraints: ClassVar[dict] = {}

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self):
        inside(self)


@torch.no_grad()
def inside(_):
    warn_caller("look here", RuntimeWarning)


def test_the_warning_names_the_first_line_outside(monkeypatch):
    """Through joblib and decorators of scikit-learn's and torch's; this module stands for ours."""
    namespace = {"__name__": "bayesloss.made_up", "fit": delayed(Estimator().fit)}
    namespace["parallel"] = Parallel(n_jobs=1)
    exec("def call():\n    parallel([fit()])\n", namespace)
    monkeypatch.setitem(globals(), "__name__", "bayesloss.another")
    user = {"__name__": "user", "call": namespace["call"]}
    code = compile("\n\ncall()\n", "the_user.py", "exec")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        exec(code, user)
    assert [(w.filename, w.lineno, w.category) for w in seen] == [
        ("the_user.py", 3, RuntimeWarning)
    ]


def test_without_a_caller_the_last_line_is_named():
    with pytest.warns(UserWarning, match="said"):
        warn_caller("said")
