"""Beyond the two papers."""
