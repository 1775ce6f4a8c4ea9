"""Priors over sources (W&N section 3): bases, the ISGP, the plain GP.

May import the ground modules alone. Begin with ``priors``: every prior is linear in features of x
that its parameters do not enter.
"""
