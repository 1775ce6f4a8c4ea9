"""Linkgistic regression: rounds of EM, held-out links, settings and costs."""
