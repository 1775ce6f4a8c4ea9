"""The chapter on what EM costs: its figure, and whole fits beside rivals."""
