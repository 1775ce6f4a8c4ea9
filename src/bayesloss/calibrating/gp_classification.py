"""Gaussian process classifiers with a probit likelihood, as scikit-learn estimators.

LHG section 4.2. Both are Bayesian, with a squared-exponential kernel whose parameters are given.
"""

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
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
from bayesloss.calibrating.expectation_propagation import expectation_propagation
from bayesloss.calibrating.loss_em_classification import check_max_loss, loss_em_probit
from bayesloss.calibrating.probit import GaussianWeights, WhitenedGP
from bayesloss.calibrating.probit_mode import laplace_probit
from bayesloss.kernels import SquaredExponential

__all__ = ["GPClassifier", "LossEMClassifier"]


class _ProbitClassifier(ClassifierMixin, BaseEstimator):
    """What the two classifiers share: validation, the prior, and predictions."""

    length_scale: float
    amplitude: float
    classes_: NDArray[Any]
    prior_: WhitenedGP
    posterior_: GaussianWeights

    def _prepare(self, X: ArrayLike, y: ArrayLike) -> torch.Tensor:
        """Whiten the prior at the training inputs; return the labels as +1 and -1, (1, n)."""
        self._validate_params()
        features, labels = validate_data(self, X, y, dtype=np.float64)
        kind = type_of_target(labels, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}."
            )
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"expected two classes, got one class, {self.classes_[0]!r}")
        kernel = SquaredExponential(a=self.length_scale**-2, b=self.amplitude**2)
        self.prior_ = WhitenedGP.at(kernel, as_float64(features)[None], batch_dims=1)
        return torch.from_numpy(2.0 * codes - 1.0)[None]

    def _project(self, X: NDArray[np.float64]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.prior_.project(as_float64(X)[None])

    def _margin(self, X: ArrayLike) -> NDArray[np.float64]:
        """The argument of Phi in LHG (25)."""
        check_is_fitted(self)
        features, noise = self._project(validate_data(self, X, reset=False, dtype=np.float64))
        mean, variance = self.posterior_.latent(features)
        return (mean / (noise**2 + variance).sqrt())[0].numpy()

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """LHG (25): the probabilities of the classes under the approximate posterior.

        Parameters
        ----------
        X : array-like of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n, 2)
            In the order of ``classes_``; the second is the paper's label +1.
        """
        margin = torch.from_numpy(self._margin(X))
        # Both tails by themselves: 1 - p would lose the small one.
        return torch.stack([torch.special.ndtr(-margin), torch.special.ndtr(margin)], 1).numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class whose ``decision_function`` has its sign.

        Parameters
        ----------
        X : array-like of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n,)
        """
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Positive where the second class is decided; see the estimator's notes."""
        return self._margin(X)

    def __sklearn_tags__(self) -> Tags:
        """Two classes only."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


_KERNEL_CONSTRAINTS: dict[str, list[Any]] = {
    "length_scale": [Interval(Real, 0, None, closed="neither")],
    "amplitude": [Interval(Real, 0, None, closed="neither")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
}


class GPClassifier(_ProbitClassifier):
    r"""Gaussian process classification: :math:`p(y \mid x, f) = \Phi(y f(x))`.

    Parameters
    ----------
    inference : {"ep", "laplace"}, default="ep"
        Expectation propagation, or Laplace's approximation: faster, and much too unsure of itself
        where the amplitude is large.
    length_scale : float, default=1
        Of the squared-exponential kernel, in units of the inputs.
    amplitude : float, default=1
        The prior standard deviation of f, in units of the probit noise.
    max_iter : int, default=200
        The largest number of sweeps of EP, or Newton steps of Laplace.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    posterior_ : GaussianWeights
        Over the whitened weights of ``prior_``, with a leading dimension of length 1.
    prior_ : WhitenedGP
    log_evidence_ : float
        The approximate log probability of the labels: compare kernels with it.
    n_iter_ : int
    converged_ : bool
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    For decisions under costs give the probabilities to :meth:`CostMatrix.decide`. ``predict`` takes
    both errors to cost the same; ``decision_function`` is the argument of the normal distribution
    function in LHG (25). Time grows like n^3, memory like n^2. There are no sample weights.

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
        length_scale: float = 1.0,
        amplitude: float = 1.0,
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
            With two classes; the second in sorted order is the paper's +1.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is out of range, a value is not finite, or there are not two classes.

        Warns
        -----
        ConvergenceWarning
            If the inference did not converge.
        """
        sign = self._prepare(X, y)
        infer = expectation_propagation if self.inference == "ep" else laplace_probit
        self.posterior_ = infer(self.prior_.features, sign, max_iter=self.max_iter)
        self.log_evidence_ = float(self.posterior_.log_evidence)
        self.n_iter_ = self.posterior_.n_iterations
        self.converged_ = bool(self.posterior_.converged[0])
        return self


class LossEMClassifier(_ProbitClassifier):
    """Gaussian process classification by loss-EM: inference that knows what errors cost.

    Parameters
    ----------
    costs : CostMatrix, optional
        If None, both errors cost the same.
    length_scale, amplitude : float, default=1
        As in :class:`GPClassifier`.
    max_loss : float, optional
        The constant M of the utility M - L, at least the larger cost, which it is if None. The
        larger it is, the nearer the result is to Laplace's approximation.
    max_iter : int, default=50
        The largest number of rounds.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    posterior_ : GaussianWeights
        Over the whitened weights of ``prior_``, with a leading dimension of length 1.
    prior_ : WhitenedGP
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
    LHG section 4.2, Table 3, started at the decisions of Laplace's approximation. ``predict``
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
        "max_loss": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        costs: CostMatrix | None = None,
        *,
        length_scale: float = 1.0,
        amplitude: float = 1.0,
        max_loss: float | None = None,
        max_iter: int = 50,
    ) -> None:
        self.costs = costs
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
            If the decisions still changed in the last round.
        """
        sign = self._prepare(X, y)
        self.costs_ = CostMatrix() if self.costs is None else self.costs
        if self.costs_.columns_of(self.classes_).tolist() != [0, 1]:
            raise ValueError(
                f"expected costs of the classes {self.classes_.tolist()} in this order, got "
                f"{self.costs_!r}"
            )
        self.max_loss_ = check_max_loss(self.max_loss, self.costs_)
        if X_target is None:
            target = self.prior_.inputs[0].numpy()
        else:
            _check_feature_names(self, X_target, reset=False)
            target = check_array(X_target, dtype=np.float64, input_name="X_target")
            if target.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"expected X_target with {self.n_features_in_} columns like X, got "
                    f"{target.shape[1]}"
                )
        found = loss_em_probit(
            self.prior_.features,
            sign,
            *self._project(target),
            self.costs_,
            max_loss=self.max_loss_,
            max_iter=self.max_iter,
        )
        self.posterior_ = found.q
        self.target_decisions_ = self.classes_[(found.decisions[0].numpy() > 0).astype(int)]
        self.n_iter_ = int(found.n_rounds[0])
        self.converged_ = bool(found.converged[0] and found.q.converged[0])
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
        margin = self._margin(X)  # first: it says so when nothing has been fitted
        return margin - self.costs_.probit_threshold
