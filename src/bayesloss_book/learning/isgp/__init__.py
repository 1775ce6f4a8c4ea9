"""The integrated squared Gaussian process: the prior, its paths, the losses that they give."""
