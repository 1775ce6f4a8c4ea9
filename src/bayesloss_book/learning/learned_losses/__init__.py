"""Table 2 of W&N: learned losses on images."""
