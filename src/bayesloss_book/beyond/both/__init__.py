"""Decisions at unequal costs with a learned link: where the two papers meet."""
