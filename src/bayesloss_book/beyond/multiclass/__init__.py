"""What the page on many classes at once calls."""
