"""Both papers' ends in one estimator: may import ``calibrating`` and ``learning.calibration``."""
