"""Weights of linear scores: the search for them, and what they would be without each row.

May import ``data``. Begin with ``linear_scores``, then ``weight_search``; ``leave_one_out`` holds
rows out without refits.
"""
