"""Gaussian process classifiers with a probit likelihood, as scikit-learn estimators.

LHG section 4.2. Both are Bayesian, with a squared-exponential kernel whose length scales and
amplitude are given, or have the largest evidence.
"""

import math
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import (
    _check_feature_names,
    check_array,
    check_is_fitted,
    validate_data,
)

from bayesloss.arrays import as_float64
from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.loss_em_probit import check_max_loss, loss_em_probit
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.kernel_evidence import choose_kernel
from bayesloss.calibrating.probit.laplace import find_mode, laplace_probit
from bayesloss.calibrating.probit.whitened_gp import GaussianWeights, WhitenedGP
from bayesloss.kernels import SquaredExponential
from bayesloss.warnings import warn_caller

__all__ = ["GPClassifier", "LossEMClassifier"]


_TOLD = 1e-3  # nats a row: a fit has told something when held-out labels are so much likelier


class _ProbitClassifier(ClassifierMixin, BaseEstimator):
    """What the two classifiers share: validation, the prior, and predictions."""

    length_scale: float | ArrayLike | str
    amplitude: float | None
    classes_: NDArray[Any]
    length_scale_: NDArray[np.float64]
    amplitude_: float
    prior_: WhitenedGP
    posterior_: GaussianWeights

    def _read(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], torch.Tensor]:
        """Inputs, and the labels as +1 and -1: (1, n) for two classes, (K, n) for more."""
        self._validate_params()
        features, labels = validate_data(self, X, y, dtype=np.float64)
        kind = type_of_target(labels, input_name="y", raise_unknown=True)
        many = self.__sklearn_tags__().classifier_tags.multi_class
        if kind != "binary" and not (many and kind == "multiclass"):
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}."
                if not many
                else f"Unknown label type: {kind}. Expected two or more classes."
            )
        self.classes_, codes = np.unique(labels, return_inverse=True)
        K = len(self.classes_)
        if K < 2:
            raise ValueError(f"expected two classes, got one class, {self.classes_[0]!r}")
        positive = codes == (np.arange(K)[:, None] if K > 2 else 1)
        return features, torch.from_numpy(np.where(np.atleast_2d(positive), 1.0, -1.0))

    def _make_prior(
        self, X: NDArray[np.float64], signs: torch.Tensor, inference: str
    ) -> torch.Tensor:
        """Choose the kernel where it is not given, and whiten the prior: features for each label.

        Raises
        ------
        ValueError
            If the length scales given are not positive and finite, one for all columns or one each.
        """
        chosen = isinstance(self.length_scale, str)
        given = None if chosen else _length_scales(self.length_scale, X)
        if given is not None and self.amplitude is not None:
            self.length_scale_, self.amplitude_ = given, float(self.amplitude)
        else:
            found = choose_kernel(
                X,
                signs.numpy(),
                inference=inference,
                length_scales=given,
                amplitude=None if self.amplitude is None else float(self.amplitude),
                ard=chosen and self.length_scale == "ard",
            )
            self.length_scale_, self.amplitude_ = found.length_scales, found.amplitude
            if not found.converged:
                warn_caller(
                    "the search for the kernel ended before the evidence's slope vanished: give "
                    "length_scale and amplitude, or scale the columns",
                    ConvergenceWarning,
                )
        kernel = SquaredExponential(a=1.0, b=self.amplitude_**2)
        self.prior_ = WhitenedGP.at(kernel, self._scaled(X), batch_dims=1)
        return self.prior_.features.expand(len(signs), -1, -1)

    def _scaled(self, X: NDArray[np.float64]) -> torch.Tensor:
        """In units of the length scales, with a leading dimension of length 1."""
        with np.errstate(over="ignore", under="ignore"):  # infinitely far is far
            return as_float64(X / self.length_scale_)[None]

    def _say_if_nothing_was_learned(
        self, plain: GaussianWeights, features: torch.Tensor, signs: torch.Tensor
    ) -> None:
        mean, variance = plain.held_out(features)
        held_out = torch.special.log_ndtr(signs * mean / (1 + variance).sqrt())
        if float(held_out.mean()) < math.log(0.5) + _TOLD:
            given = not isinstance(self.length_scale, str) or self.amplitude is not None
            warn_caller(
                "the fit tells nothing: held out, the training labels are no more probable than by "
                "the toss of a coin. "
                + (
                    "Is the given length scale too short for the distances between rows, or the "
                    "amplitude wrong? Leave them out, and the evidence chooses"
                    if given
                    else "No kernel explains them better than chance"
                )
            )

    def _margin(self, X: ArrayLike) -> NDArray[np.float64]:
        """The argument of Phi in LHG (25), a row for each set of labels."""
        check_is_fitted(self)
        new = self._scaled(validate_data(self, X, reset=False, dtype=np.float64))
        features, noise = self.prior_.project(new)
        mean, variance = self.posterior_.latent(features)
        return (mean / (noise**2 + variance).sqrt()).numpy()

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """LHG (25): the probabilities of the classes under the approximate posterior.

        Parameters
        ----------
        X : array-like of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n, n_classes)
            In the order of ``classes_``; of two, the second is the paper's label +1. Of more, each
            against the rest, normalised.
        """
        margin = torch.from_numpy(self._margin(X))
        if len(margin) == 1:
            # Both tails by themselves: 1 - p would lose the small one.
            return torch.special.ndtr(torch.cat([-margin, margin])).T.numpy()
        return torch.softmax(torch.special.log_ndtr(margin), 0).T.numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class that ``decision_function`` decides for.

        Parameters
        ----------
        X : array-like of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n,)
        """
        decided = self.decision_function(X)
        return self.classes_[(decided > 0).astype(int) if decided.ndim == 1 else decided.argmax(1)]

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Positive where the second class is decided; of many, the largest is.

        See the estimator's notes.

        Parameters
        ----------
        X : array-like of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n,), or (n, n_classes) if there are more than two
        """
        margin = self._margin(X)
        return margin[0] if len(margin) == 1 else margin.T


def _length_scales(given: ArrayLike, X: NDArray[np.float64]) -> NDArray[np.float64]:
    """One for each column."""
    scales, n_features = np.asarray(given, dtype=float), X.shape[1]
    if scales.ndim and scales.shape != (n_features,):
        raise ValueError(
            f"expected length_scale to be one number, or one for each of {n_features} columns, got "
            f"shape {scales.shape}"
        )
    if not ((scales > 0) & np.isfinite(scales)).all():
        raise ValueError(f"expected length_scale > 0 and finite, got {scales.tolist()}")
    with np.errstate(over="ignore"):
        if not np.isfinite(np.abs(X).max(axis=0) / scales).all():
            raise ValueError(
                f"expected inputs of a finite number of length scales, got {np.abs(X).max():g} in "
                f"units of {scales.min():g}"
            )
    return np.broadcast_to(scales, n_features).copy()


_KERNEL_CONSTRAINTS: dict[str, list[Any]] = {
    "length_scale": [
        Interval(Real, 0, None, closed="neither"),
        "array-like",
        StrOptions({"shared", "ard"}),
    ],
    # Beyond, the square or the rounding errors of the kernel matrix are out of hand.
    "amplitude": [Interval(Real, 1e-100, 1e6, closed="both"), None],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
}


class GPClassifier(_ProbitClassifier):
    r"""Gaussian process classification: :math:`p(y \mid x, f) = \Phi(y f(x))`.

    Parameters
    ----------
    inference : {"ep", "laplace"}, default="ep"
        Expectation propagation, or Laplace's approximation: faster, and much too unsure of itself
        where the amplitude is large.
    length_scale : float, array-like of shape (n_features,), "shared" or "ard", default="shared"
        Of the squared-exponential kernel, in units of the inputs: one for all columns, or one each.
        ``"shared"`` chooses a multiple of the columns' standard deviations by the evidence,
        ``"ard"`` a length scale for each column (automatic relevance determination), which takes
        longer, and many rows.
    amplitude : float, optional
        The prior standard deviation of f, in units of the probit noise. If None, the evidence
        chooses it.
    max_iter : int, default=200
        The largest number of sweeps of EP, or Newton steps of Laplace.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    length_scale_ : ndarray of shape (n_features,)
    amplitude_ : float
    posterior_ : GaussianWeights
        Over the whitened weights of ``prior_``, with a leading dimension of length 1, or n_classes
        if there are more than two.
    prior_ : WhitenedGP
        At inputs in units of the length scales.
    log_evidence_ : float
        The approximate log probability of the labels: compare kernels with it. With more than two
        classes, the sum over classes against the rest.
    n_iter_ : int
    converged_ : bool
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    For decisions under costs give the probabilities to :meth:`CostMatrix.decide`. ``predict`` takes
    both errors to cost the same; ``decision_function`` is the argument of the normal distribution
    function in LHG (25). Time grows like n^3, memory like n^2. There are no sample weights.

    More than two classes are told each from the rest under one kernel, whose evidence is the sum.
    The search for the kernel looks at 500 rows at most, and gives extreme values a little less
    weight (:func:`~bayesloss.calibrating.probit.kernel_evidence.choose_kernel`); the fit uses all
    rows.

    Examples
    --------
    >>> from bayesloss import CostMatrix, GPClassifier
    >>> X, y = [[0.0], [0.2], [0.8], [1.0]], ["no", "no", "yes", "yes"]
    >>> model = GPClassifier(length_scale=0.5, amplitude=2.0).fit(X, y)
    >>> model.predict([[0.1], [0.45], [0.9]])
    array(['no', 'no', 'yes'], dtype='<U3')
    >>> costs = CostMatrix(c_plus=1, c_minus=2)
    >>> costs.decide(model.predict_proba([[0.1], [0.45], [0.9]]))
    array([-1,  1,  1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_KERNEL_CONSTRAINTS,
        "inference": [StrOptions({"ep", "laplace"})],
    }

    def __init__(
        self,
        inference: str = "ep",
        *,
        length_scale: float | ArrayLike | str = "shared",
        amplitude: float | None = None,
        max_iter: int = 200,
    ) -> None:
        self.inference = inference
        self.length_scale = length_scale
        self.amplitude = amplitude
        self.max_iter = max_iter

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Approximate the posterior.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        y : array-like of shape (n,)
            Of two classes the second in sorted order is the paper's +1.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is out of range, a value is not finite, or there is one class.

        Warns
        -----
        ConvergenceWarning
            If the inference, or the search for the kernel, did not converge.
        UserWarning
            If the fit tells nothing: held out, labels are no more probable than one half.
        """
        inputs, signs = self._read(X, y)
        features = self._make_prior(inputs, signs, self.inference)
        infer = expectation_propagation if self.inference == "ep" else laplace_probit
        self.posterior_ = infer(features, signs, max_iter=self.max_iter)
        self.log_evidence_ = float(self.posterior_.log_evidence.sum())
        self.n_iter_ = self.posterior_.n_iterations
        self.converged_ = bool(self.posterior_.converged.all())
        self._say_if_nothing_was_learned(self.posterior_, features, signs)
        return self


class LossEMClassifier(_ProbitClassifier):
    """Gaussian process classification by loss-EM: inference that knows what errors cost.

    Parameters
    ----------
    costs : CostMatrix, optional
        If None, both errors cost the same.
    inference : {"laplace", "ep"}, default="laplace"
        What approximates the posterior that the utility weighs: Laplace's method, which is the
        paper's, or expectation propagation.
    length_scale : float, array-like of shape (n_features,), "shared" or "ard", default="shared"
    amplitude : float, optional
        As in :class:`GPClassifier`; the evidence is that of the inference.
    max_loss : float, optional
        The constant M of the utility M - L, at least the larger cost, which it is if None. The
        larger it is, the nearer the result is to Laplace's approximation.
    max_iter : int, default=50
        The largest number of rounds.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    length_scale_ : ndarray of shape (n_features,)
    amplitude_ : float
    posterior_ : GaussianWeights
        Over the whitened weights of ``prior_``, with a leading dimension of length 1.
    prior_ : WhitenedGP
        At inputs in units of the length scales.
    costs_ : CostMatrix
    max_loss_ : float
    target_decisions_ : ndarray of shape (s,)
        The classes decided on the target inputs.
    n_iter_ : int
        Rounds.
    converged_ : bool
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    LHG section 4.2, Table 3, started at the decisions of the plain approximation. ``predict``
    decides by the costs, LHG (26): ``decision_function`` is the argument of the normal distribution
    function in (25) less the threshold b_c. A false positive is the second class decided for the
    first.

    Examples
    --------
    >>> from bayesloss import CostMatrix, LossEMClassifier
    >>> X, y = [[0.0], [0.2], [0.8], [1.0]], [0, 0, 1, 1]
    >>> model = LossEMClassifier(CostMatrix(c_plus=1, c_minus=2), length_scale=0.5, amplitude=2.0)
    >>> model.fit(X, y, X_target=[[0.1], [0.45], [0.9]]).target_decisions_
    array([0, 1, 1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_KERNEL_CONSTRAINTS,
        "costs": [CostMatrix, None],
        "inference": [StrOptions({"ep", "laplace"})],
        "max_loss": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        costs: CostMatrix | None = None,
        *,
        inference: str = "laplace",
        length_scale: float | ArrayLike | str = "shared",
        amplitude: float | None = None,
        max_loss: float | None = None,
        max_iter: int = 50,
    ) -> None:
        self.costs = costs
        self.inference = inference
        self.length_scale = length_scale
        self.amplitude = amplitude
        self.max_loss = max_loss
        self.max_iter = max_iter

    def fit(self, X: ArrayLike, y: ArrayLike, X_target: ArrayLike | None = None) -> Self:
        """Alternate between the posterior and the decisions that it weighs.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        y : array-like of shape (n,)
            With two classes; the second in sorted order is the paper's +1.
        X_target : array-like of shape (s, n_features), optional
            The inputs on which decisions will be taken; the training inputs if None.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is out of range, ``max_loss`` is below the larger cost, the costs were
            told other classes or the same in another order, a value is not finite, there are not
            two classes, or X_target has other columns than X, or the same in another order.

        Warns
        -----
        ConvergenceWarning
            If the decisions still changed in the last round, or the search for the kernel did not
            converge.
        UserWarning
            If the fit tells nothing: held out, labels are no more probable than one half.
        """
        inputs, signs = self._read(X, y)
        self.costs_ = CostMatrix() if self.costs is None else self.costs
        if self.costs_.columns_of(self.classes_).tolist() != [0, 1]:
            raise ValueError(
                f"expected costs of the classes {self.classes_.tolist()} in this order, got "
                f"{self.costs_!r}"
            )
        self.max_loss_ = check_max_loss(self.max_loss, self.costs_)
        if X_target is None:
            target = inputs
        else:
            _check_feature_names(self, X_target, reset=False)
            target = check_array(X_target, dtype=np.float64, input_name="X_target")
            if target.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"expected X_target with {self.n_features_in_} columns like X, got "
                    f"{target.shape[1]}"
                )
        features = self._make_prior(inputs, signs, self.inference)
        found = loss_em_probit(
            features,
            signs,
            *self.prior_.project(self._scaled(target)),
            self.costs_,
            inference=self.inference,
            max_loss=self.max_loss_,
            max_iter=self.max_iter,
        )
        self.posterior_ = found.q
        self.target_decisions_ = self.classes_[(found.decisions[0].numpy() > 0).astype(int)]
        self.n_iter_ = int(found.n_rounds[0])
        self.converged_ = bool(found.converged[0] and found.q.converged[0])
        self._say_if_nothing_was_learned(find_mode(features, signs), features, signs)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """LHG (26): positive where the second class is decided under the costs.

        Parameters
        ----------
        X : array-like of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n,)
        """
        margin = self._margin(X)[0]  # first: it says so when nothing has been fitted
        return margin - self.costs_.probit_threshold

    def __sklearn_tags__(self) -> Tags:
        """Two classes only."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
