"""EM for weights and links (W&N section 4.2), from ``inference`` and ``weights``: see ``em``."""
