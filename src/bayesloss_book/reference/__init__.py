"""Code of the reference pages."""
