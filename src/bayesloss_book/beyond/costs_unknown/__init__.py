"""Costs of which only the distribution is known: which loss to learn by, and what to label next."""
