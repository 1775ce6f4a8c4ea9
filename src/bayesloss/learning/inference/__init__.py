"""Posteriors over sources (W&N section 4.1, appendix D, and beyond); may import ``sources``.

Begin with ``laplace``, whose Hessian is (11), then ``likelihoods``.
"""
