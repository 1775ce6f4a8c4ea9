"""The chapter on links fitted to held-out scores: rounds, few rows a column, figures."""
