"""Priors over sources (W&N section 3), on the ground modules alone; begin with ``priors``."""
