"""The book's workshop: what its pages call, laid out like its table of contents."""
