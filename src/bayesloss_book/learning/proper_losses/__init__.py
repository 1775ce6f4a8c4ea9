"""Proper losses, links and sources: W&N section 2 and Figure 1."""
