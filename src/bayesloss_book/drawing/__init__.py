"""How the book draws: one style for its figures, and the parts of its sliders."""
