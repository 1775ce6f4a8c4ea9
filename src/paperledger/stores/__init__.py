"""Stored results, where they come from, and whether they repeat."""
