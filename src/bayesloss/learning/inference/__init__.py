"""Posteriors over sources (W&N section 4.1, appendix D, and beyond): ``laplace`` comes first."""
