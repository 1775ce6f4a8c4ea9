"""Rows: inputs in memory, sparse or on a cluster, and what is done to them before any inference.

May import the ground modules (``arrays``, ``warnings``, ``threads``) alone. Begin with ``inputs``,
the interface that all fits see; ``range_map`` brings far-away values near.
"""
