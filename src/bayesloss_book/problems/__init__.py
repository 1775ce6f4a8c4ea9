"""The problems that several pages solve: the papers' toys, and our own."""
