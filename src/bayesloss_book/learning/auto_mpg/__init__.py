"""Table 1 of W&N: monotone regression on Auto MPG."""
