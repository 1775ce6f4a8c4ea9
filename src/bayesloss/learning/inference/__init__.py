"""Posteriors over sources given labels or targets (W&N section 4.1, appendix D, and beyond).

May import ``sources``. Begin with ``laplace``, whose Hessian is (11), then
``likelihoods``.
"""
