r"""Probabilities where classes are as frequent as elsewhere, and how frequent they are there.

A classifier's p(k | x) hold where it was calibrated, at the class frequencies pi_k there. Where
classes have other frequencies q_k and cases of a class look the same, Bayes' rule gives

    p'(k | x) = q_k / pi_k p(k | x) / sum_j q_j / pi_j p(j | x).

Are q unknown, and are there cases without labels, then q maximises their likelihood,

    sum_n log sum_k q_k r_nk,   r_nk = p(k | x_n) / pi_k,

which is concave. EM (Saerens, Latinne and Decaestecker 2002) takes turns: the E-step is the formula
above, the M-step its mean over the cases. With g_k = sum_n r_nk / sum_j q_j r_nj a round gains
nothing that matters once max_k g_k - n, which bounds the gain still to be had, is small. The
standard error is that of the curvature, sum_n (r_n / q^T r_n)(r_n / q^T r_n)^T on the simplex; what
is not known of the probabilities themselves adds to it.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesloss.arrays import Array, read_distributions, read_probabilities, real_numbers
from bayesloss.threads import one_thread
from bayesloss.warnings import warn_caller, warn_unconverged

# Nats of the log likelihood that rounds may leave: the prior is then within 0.002 standard errors.
_GAP = 1e-6
_MAX_ROUNDS = 20_000


@dataclass(frozen=True)
class PriorEstimate:
    """Class frequencies among cases without labels.

    Attributes
    ----------
    prior, standard_error : ndarray of shape (K,)
        The frequencies of most likelihood, and their standard errors.
    converged : bool
        Whether EM came to the end.
    """

    prior: Array
    standard_error: Array
    converged: bool


@one_thread()
def estimate_prior(
    probabilities: ArrayLike, training_prior: ArrayLike, *, draws: ArrayLike | None = None
) -> PriorEstimate:
    """The class frequencies among cases without labels, by maximum likelihood.

    Cases of a class have to look as they did in training, and probabilities to be calibrated: of
    overconfident ones the estimate is wrong, however many the cases. Without draws the standard
    error takes the probabilities for exact, and is too small if labels were few.

    Parameters
    ----------
    probabilities : array-like of shape (n, K) or, for two classes, (n,)
        As from ``predict_proba`` of a calibrator, or of the second class.
    training_prior : array-like of shape (K,) or, for two classes, float
        The frequencies that probabilities hold for: a calibrator's ``class_prior_``; or of the
        second class.
    draws : array-like of shape (n_draws, n, K) or, for two classes, (n_draws, n), optional
        Posterior draws of the same probabilities, such as :meth:`LinkCalibrator.sample_proba` of
        the same scores. What is not known of the probabilities then adds to the standard error.

    Raises
    ------
    ValueError
        If shapes are wrong, rows are no probabilities, or a class has a frequency of zero in
        training, or a row none but such classes.

    Warns
    -----
    UserWarning, ConvergenceWarning
        If a standard error is larger than that of a blind guess, or the estimate is of less than
        one case of a class; if EM did not converge.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import LinkCalibrator, estimate_prior
    >>> rng = np.random.default_rng(0)
    >>> y = rng.random(2000) < 0.5
    >>> calibrator = LinkCalibrator().fit(rng.normal(y, 1), y)
    >>> elsewhere = rng.normal(rng.random(5000) < 0.1, 1)  # no labels
    >>> found = estimate_prior(
    ...     calibrator.predict_proba(elsewhere),
    ...     calibrator.class_prior_,
    ...     draws=calibrator.sample_proba(elsewhere),
    ... )
    >>> bool(abs(found.prior[1] - 0.1) < 2 * found.standard_error[1] < 0.1)
    True
    >>> p = calibrator.predict_proba(elsewhere, prior=found.prior)
    >>> bool(abs(p[:, 1].mean() - found.prior[1]) < 0.001)
    True
    """
    p = _distributions(real_numbers(probabilities, "probabilities"))
    n, K = p.shape
    if n == 0:
        raise ValueError("expected probabilities of one case at least, got none")
    training = _seen(_read_prior(training_prior, K, "training_prior"), np.arange(K))
    r = p / training
    prior, converged = _most_likely(r, training)
    if not converged:
        warn_unconverged(f"EM did not converge in {_MAX_ROUNDS} rounds")
    moved = r / (r @ prior)[:, None]
    covariance = _inverse_on_simplex(moved.T @ moved, n)
    if draws is not None:
        drawn = real_numbers(draws, "draws")
        covariance += _between(drawn, p.shape, prior, training, covariance)
    error = np.sqrt(covariance.diagonal())
    blind = math.sqrt((K - 1) / (K + 1)) / K  # of frequencies that are uniform on the simplex
    if error.max() > blind:
        k = int(error.argmax())
        warn_caller(
            f"the prior is hardly to be told from {n} cases and these probabilities: the standard "
            f"error of class {k} is {error[k]:.2g}, that of a blind guess {blind:.2g}"
        )
    k = int(prior.argmin())
    if prior[k] < 1 / n:
        warn_caller(
            f"the estimate rules class {k} out, with a standard error of {error[k]:.2g}: at this "
            "prior its cases would get probabilities near 0"
        )
    return PriorEstimate(prior=prior, standard_error=error, converged=converged)


def at_prior(p: Array, prior: ArrayLike, training: Array, classes: NDArray) -> Array:
    """Probabilities (n, K) at other class frequencies than those in training.

    Raises
    ------
    ValueError
        If the prior is none of K classes, training had no case of a class, or the prior rules out
        all classes that a row may have.
    """
    ratios = _read_prior(prior, len(classes), "prior") / _seen(training, classes)
    weighted = p * ratios
    total = weighted.sum(axis=1, keepdims=True)
    if (total == 0).any():
        row = int((total == 0).any(axis=1).argmax())
        raise ValueError(
            f"expected a prior above zero of a class that row {row} may have, got zero of all these"
        )
    return weighted / total


def _read_prior(prior: ArrayLike, K: int, name: str) -> Array:
    """Class frequencies (K,) of sum 1, given as such or, of two classes, as the second's."""
    values = real_numbers(prior, name)
    if values.ndim == 0 and K == 2:
        values = np.stack([1 - values, values])
    if values.shape != (K,):
        either = "" if K > 2 else ", or that of the second"
        raise ValueError(
            f"expected {name} of shape ({K},), a frequency a class{either}, got {values.shape}"
        )
    frequencies: Array = read_distributions(values[None], f" of {name}")[0]
    return frequencies


def _seen(training: Array, classes: NDArray) -> Array:
    """The frequencies in training, of classes that all had cases."""
    if (training == 0).any():
        raise ValueError(
            "expected labelled cases of every class, whose frequency is to be another, got none of "
            f"{classes[training == 0][0]}"
        )
    return training


def _distributions(p: Array) -> Array:
    """Probabilities of shape (n, K), of those or of the second of two classes."""
    if p.ndim == 1:
        p = read_probabilities(p)
        return np.stack([1 - p, p], axis=1)
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(f"expected probabilities of shape (n,) or (n, K), got {p.shape}")
    return read_distributions(p)


def _most_likely(r: Array, start: Array) -> tuple[Array, bool]:
    """The prior of most likelihood under ratios (n, K), by EM; and whether it converged."""
    prior = start
    for _ in range(_MAX_ROUNDS):
        gradient = (r / (r @ prior)[:, None]).sum(axis=0)
        if gradient.max() - len(r) <= _GAP:
            return prior, True
        prior = prior * gradient / len(r)  # E-step and M-step: the mean of at_prior
    return prior, False


def _inverse_on_simplex(information: Array, n: int) -> Array:
    """The covariance (K, K) of frequencies, whose sum is known, by their information."""
    K = len(information)
    along, _ = np.linalg.qr(np.eye(K)[:, 1:] - np.eye(K)[:, :1])  # a basis of vectors of sum 0
    values, vectors = np.linalg.eigh(along.T @ information @ along)
    root = along @ vectors / np.sqrt(values.clip(min=n * np.finfo(np.float64).eps))
    covariance: Array = root @ root.T
    return covariance


def _between(
    draws: Array, shape: tuple[int, ...], prior: Array, training: Array, covariance: Array
) -> Array:
    """The covariance of estimates between draws, each by one step of Newton's method."""
    K = shape[1]
    if draws.ndim == 2 and K == 2:
        draws = np.stack([1 - draws, draws], axis=2)
    if draws.shape[1:] != shape or len(draws) < 2:
        raise ValueError(
            f"expected two draws at least, of probabilities of shape {shape}, got shape "
            f"{draws.shape}"
        )
    estimates = []
    for drawn in draws:
        r = _distributions(drawn) / training
        gradient = (r / (r @ prior)[:, None]).sum(axis=0)
        estimates.append((prior + covariance @ gradient).clip(0, 1))
    return np.cov(np.array(estimates), rowvar=False)
