"""Gaussian process regression for decisions, LHG section 4.1."""
