"""Warnings that point at the user's line, whichever function of the package raises them."""

import sys
import warnings

from sklearn.exceptions import ConvergenceWarning

# Whose lines stand between a user's call and ours: decorators, pipelines, cross-validation.
_BETWEEN = ("bayesloss.", "beartype.", "contextlib", "jaxtyping.", "joblib.", "sklearn.", "torch.")


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the first line up the stack that is neither ours nor that of a library between."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        level += 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level)


def warn_unconverged(message: str) -> None:
    """Warn of a search that did not end where it should, by scikit-learn's ConvergenceWarning."""
    warn_caller(message, ConvergenceWarning)
