"""Lacoste-Julien, Huszár and Ghahramani: given the loss, calibrate the inference to it."""
