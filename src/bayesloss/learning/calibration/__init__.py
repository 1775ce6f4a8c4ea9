"""From scores to calibrated probabilities: may import ``inference``, ``sources`` and ``data``.

Begin with ``link_calibrator``.
"""
