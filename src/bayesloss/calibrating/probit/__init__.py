"""Posteriors of a Gaussian process under the probit likelihood (LHG section 4): ``whitened_gp``."""
