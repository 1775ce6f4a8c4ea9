"""Figures 3, 5 and 6 of W&N: regression on toys."""
