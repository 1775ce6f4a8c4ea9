"""From scores to calibrated probabilities.

May import ``inference`` and ``links``, and what they import. Begin with ``link_calibrator``.
"""
