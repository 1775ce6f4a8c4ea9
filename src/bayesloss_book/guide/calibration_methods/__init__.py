"""Learned links beside the usual calibrators."""
