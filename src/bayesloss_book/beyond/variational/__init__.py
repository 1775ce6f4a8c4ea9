"""What the page on variational inference calls."""
