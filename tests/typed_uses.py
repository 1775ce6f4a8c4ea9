"""What type checkers are to refuse, and what they are to know: read by mypy, never run.

Each line that is to be refused says so; mypy complains where nothing needed to be ignored.
"""

from typing import assert_type

import numpy as np

from bayesloss import (
    CalibratedClassifier,
    GPClassifier,
    ISGPRegressor,
    LinkCalibrator,
    LinkgisticClassifier,
    LossEMClassifier,
    PaperLink,
    SoftmaxCalibrator,
)
from bayesloss.arrays import Array

X = np.zeros((3, 1))

GPClassifier(inference="nonsense")  # type: ignore[arg-type]
GPClassifier(length_scale="nonsense")  # type: ignore[arg-type]
LossEMClassifier(inference="nonsense")  # type: ignore[arg-type]
LossEMClassifier(length_scale="nonsense")  # type: ignore[arg-type]
CalibratedClassifier(ensemble="nonsense")  # type: ignore[arg-type]
LinkCalibrator(scale="nonsense")  # type: ignore[arg-type]
SoftmaxCalibrator(scale="nonsense")  # type: ignore[arg-type]
PaperLink(prior="nonsense")  # type: ignore[arg-type]
LinkgisticClassifier(multi_class="nonsense")  # type: ignore[arg-type]
LinkgisticClassifier(class_weight="nonsense")  # type: ignore[arg-type]
LinkgisticClassifier(C="nonsense")  # type: ignore[arg-type]
ISGPRegressor(prior="nonsense")  # type: ignore[arg-type]
ISGPRegressor(increasing="nonsense")  # type: ignore[arg-type]
ISGPRegressor().predict_interval(X, of="nonsense")  # type: ignore[arg-type]

GPClassifier(inference="laplace", length_scale="ard")
GPClassifier(length_scale=[1, 2.5])
LossEMClassifier(inference="ep", length_scale=np.ones(2))
CalibratedClassifier(ensemble=True)
LinkCalibrator(scale="real")
SoftmaxCalibrator(scale="probability")
LinkgisticClassifier(link=PaperLink(prior="gp"), class_weight={0: 2.0})
LinkgisticClassifier(multi_class="ovr", C="auto")
LinkgisticClassifier(class_weight="balanced", C=[0.1, 1])
ISGPRegressor(prior="gp", increasing=False)

assert_type(ISGPRegressor().predict(X), Array)
assert_type(ISGPRegressor().predict(X, return_std=True), tuple[Array, Array])
