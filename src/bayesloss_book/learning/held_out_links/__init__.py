"""The chapter on links fitted to held-out scores: its figures; the rest is linkgistic's."""
