"""Data sets, the scores and images that pages make of them, and where stored results are."""
