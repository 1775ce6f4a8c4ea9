"""A sparse mean that is good for decisions: LHG's open problem."""
