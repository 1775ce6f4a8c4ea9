"""The evidence of a prior: maximised (W&N appendix D), bounded from below, averaged over priors.

May import ``inference`` and ``sources``. Begin with ``evidence``; the rest goes beyond the papers.
"""
