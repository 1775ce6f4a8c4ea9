"""Posteriors over sources (W&N section 4.1), from ``sources``: ``laplace`` comes first."""
