"""Laplace's approximation: the toys, long runs, calibration and costs."""
