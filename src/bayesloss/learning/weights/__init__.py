"""Weights of linear scores, and leave-one-out, from ``data``; begin with ``linear_scores``."""
