"""Approximate posteriors of a Gaussian process with the probit likelihood (LHG section 4).

May import the ground modules alone. Begin with ``whitened_gp``, then ``laplace`` and
``expectation_propagation``.
"""
