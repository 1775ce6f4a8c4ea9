"""The trigonometric kernel and the closed forms of appendix E."""
