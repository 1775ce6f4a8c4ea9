"""Gaussian process classifiers with a probit likelihood, as scikit-learn estimators.

LHG section 4.2: one infers first and decides after, the other infers for the decisions.
"""

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_feature_names, check_array

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.loss_em_probit import loss_em_probit
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.laplace import find_mode, laplace_probit
from bayesloss.calibrating.probit_classifier import ProbitClassifier
from bayesloss.calibrating.utility import check_max_loss


class GPClassifier(ProbitClassifier):
    r"""Gaussian process classification: :math:`p(y \mid x, f) = \Phi(y f(x))`.

    Parameters
    ----------
    inference : {"ep", "laplace"}, default="ep"
        Expectation propagation, or Laplace's approximation, which is faster, and where the
        amplitude is large much too unsure of itself.
    length_scale : float, array-like of shape (n_features,), "shared" or "ard", default="shared"
        Of the squared-exponential kernel, in units of the inputs: one for all columns, or one each.
        ``"shared"`` chooses by the evidence a multiple of the columns' standard deviations,
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
    LHG section 4.2. ``predict`` takes all errors to cost the same; for decisions under other costs
    give the probabilities to :meth:`CostMatrix.decide`. Time grows like n^3, memory like n^2. There
    are no sample weights.

    More than two classes are told each from the rest under one kernel, whose evidence is the sum.
    The search for the kernel looks at 500 rows at most, and gives extreme values a little less
    weight; the fit uses all rows.

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
        features = self._make_prior(inputs, signs)
        infer = expectation_propagation if self.inference == "ep" else laplace_probit
        self.posterior_ = infer(features, signs, max_iter=self.max_iter)
        self.log_evidence_ = float(self.posterior_.log_evidence.sum())
        self.n_iter_ = self.posterior_.n_iterations
        self.converged_ = bool(self.posterior_.converged.all())
        self._say_if_nothing_was_learned(self.posterior_, features, signs)
        return self


class LossEMClassifier(ProbitClassifier):
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
        larger it is, the nearer the result is to the plain approximation.
    max_iter : int, default=50
        The largest number of rounds.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    length_scale_, amplitude_, prior_, posterior_, n_features_in_, feature_names_in_
        As in :class:`GPClassifier`.
    costs_ : CostMatrix
    max_loss_ : float
    target_decisions_ : ndarray of shape (s,)
        The classes decided on the target inputs.
    n_iter_ : int
        Rounds.
    converged_ : bool

    Notes
    -----
    LHG section 4.2, Table 3, started at the decisions of the plain approximation. ``predict``
    decides by the costs, LHG (26). A false positive is the second class decided for the first.

    Examples
    --------
    >>> from bayesloss import CostMatrix, LossEMClassifier
    >>> X, y = [[0.0], [0.2], [0.8], [1.0]], [0, 0, 1, 1]
    >>> model = LossEMClassifier(CostMatrix(c_plus=1, c_minus=2), length_scale=0.5, amplitude=2.0)
    >>> model.fit(X, y, X_target=[[0.1], [0.45], [0.9]]).target_decisions_
    array([0, 1, 1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **ProbitClassifier._parameter_constraints,
        "costs": [CostMatrix, None],
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
        target = inputs if X_target is None else self._read_target(X_target)
        features = self._make_prior(inputs, signs)
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

    def _read_target(self, X_target: ArrayLike) -> NDArray[np.float64]:
        _check_feature_names(self, X_target, reset=False)
        target = check_array(X_target, dtype=np.float64, input_name="X_target")
        if target.shape[1] != self.n_features_in_:
            raise ValueError(
                f"expected X_target with {self.n_features_in_} columns like X, got "
                f"{target.shape[1]}"
            )
        return target

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """LHG (26): positive where the second class is decided under the costs, of shape (n,)."""
        margin = self._margin(X)[0]  # first: it says so when nothing has been fitted
        return margin - self.costs_.probit_threshold

    def __sklearn_tags__(self) -> Tags:
        """Two classes only."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
