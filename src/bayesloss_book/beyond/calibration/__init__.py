"""Calibration by a learned link, beside every calibrator that leads elsewhere."""
