"""Figures 2 and 9 of W&N: learning curves on images, and the learned links."""
