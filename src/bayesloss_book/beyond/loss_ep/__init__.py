"""Loss-calibrated EP, beside all that it has to beat."""
