"""The experiments of the papers: parameters in, a table out."""
