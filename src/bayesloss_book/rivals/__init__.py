"""Rivals of the papers' methods, which pages compare them with."""
