"""Rows of inputs, in memory or on a cluster, from ground modules alone; begin with ``inputs``."""
