"""Table 4 of LHG: classification with unequal costs."""
