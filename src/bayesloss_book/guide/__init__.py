"""What the guide's pages call."""
