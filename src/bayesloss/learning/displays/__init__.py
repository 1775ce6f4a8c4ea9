"""What estimators and calibrators have learned, drawn: may import both, ``links`` and ``data``."""
