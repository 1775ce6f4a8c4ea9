"""EM for weights and links together (W&N section 4.2), for two classes and for many.

May import ``inference``, ``weights`` and what they import. Begin with ``em``.
"""
