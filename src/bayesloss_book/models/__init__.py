"""Models that only pages call, and the library does not need."""
