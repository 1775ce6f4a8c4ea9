"""From scores to calibrated probabilities.

May import ``inference``, ``sources`` and ``data``. Begin with ``link_calibrator``.
"""
