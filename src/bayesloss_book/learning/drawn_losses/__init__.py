"""Losses drawn from the ISGP prior: W&N's theorems 2 and 4."""
