"""Rows of inputs in memory or on a cluster, from the ground modules alone: begin with ``inputs``."""
