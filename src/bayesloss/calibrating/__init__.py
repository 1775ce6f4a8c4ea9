"""Calibrate approximate inference to the loss: Lacoste-Julien, Huszár and Ghahramani (2011).

May import ``probit`` and the ground modules. Begin with ``decision_theory``, then ``loss_em``.
"""
