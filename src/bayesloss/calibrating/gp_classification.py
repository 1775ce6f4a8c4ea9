"""Gaussian process classifiers with a probit likelihood, plain and by loss-EM (LHG section 4.2)."""

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import validate_data

from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.loss_em_probit import loss_em_probit
from bayesloss.calibrating.probit.expectation_propagation import expectation_propagation
from bayesloss.calibrating.probit.laplace import find_mode, laplace_probit
from bayesloss.calibrating.probit_classifier import ProbitClassifier
from bayesloss.calibrating.utility import check_max_loss


class GPClassifier(ProbitClassifier):
    r"""Gaussian process classification, :math:`p(y \mid x, f) = \Phi(y f(x))`: LHG section 4.2.

    ``predict`` takes all errors to cost the same; for other costs use :meth:`CostMatrix.decide`.
    More than two classes are each separated from the rest, with one kernel. The kernel is sought on
    at most 500 rows, with a weak prior against extreme values. Time grows like n^3, memory like
    n^2. There are no sample weights.

    Parameters
    ----------
    inference : {"ep", "laplace"}, default="ep"
        Expectation propagation, or Laplace's faster approximation, underconfident where the
        amplitude is large.
    length_scale : float, array-like of shape (n_features,), "shared" or "ard", default="shared"
        Of the squared-exponential kernel. The evidence chooses ``"shared"``, a multiple of the
        columns' standard deviations, or ``"ard"``, one for each column: slow, and needs many rows.
    amplitude : float, optional
        The prior standard deviation of f, in units of the probit noise; if None, the evidence's.
    max_iter : int, default=200
        The largest number of EP's sweeps or Newton's steps.

    Attributes
    ----------
    classes_, length_scale_ : ndarray of shape (n_classes,), (n_features,)
    amplitude_, log_evidence_ : float
        Compare kernels by the latter, the approximate log probability of the labels.
    prior_, posterior_ : WhitenedGP, GaussianWeights
        In units of the length scales, of leading dimension 1, or n_classes if more than two.
    n_iter_, converged_, n_features_in_, feature_names_in_ : int, bool, int, ndarray of str

    Examples
    --------
    >>> from bayesloss import CostMatrix, GPClassifier
    >>> X, y = [[0.0], [0.2], [0.8], [1.0]], ["no", "no", "yes", "yes"]
    >>> model = GPClassifier(length_scale=0.5, amplitude=2.0).fit(X, y)
    >>> model.predict([[0.1], [0.45], [0.9]])
    array(['no', 'no', 'yes'], dtype='<U3')
    >>> CostMatrix(c_plus=1, c_minus=2).decide(model.predict_proba([[0.1], [0.45], [0.9]]))
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
        """Approximate the posterior; return self.

        Parameters
        ----------
        X, y : array-like of shape (n, n_features), (n,)
            Of two classes the second in sorted order is the paper's +1.

        Raises
        ------
        ValueError
            If a parameter is out of range, a value is not finite, or there is one class.

        Warns
        -----
        ConvergenceWarning, UserWarning
            If a search did not converge; if labels left out are predicted no better than by chance.
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

    LHG section 4.2, Table 3, started at the decisions of the plain approximation. ``predict``
    decides by the costs, LHG (26).

    Parameters
    ----------
    costs : CostMatrix, optional
        If None, both errors cost the same.
    inference : {"laplace", "ep"}, default="laplace"
        How the posterior times the utility is approximated; the paper uses Laplace's method.
    length_scale : float, array-like of shape (n_features,), "shared" or "ard", default="shared"
    amplitude : float, optional
        As for :class:`GPClassifier`.
    max_loss : float, optional
        M of the utility M - L, by default the larger cost. The larger it is, the nearer the result
        is to the plain approximation.
    max_iter : int, default=50
        The largest number of rounds.

    Attributes
    ----------
    costs_, max_loss_ : CostMatrix, float
    target_decisions_ : ndarray of shape (s,)
        The classes decided on the target inputs.
    n_iter_, converged_ : int, bool
        Of the rounds. All others but ``log_evidence_`` are as for :class:`GPClassifier`.

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
        """Alternate between the posterior and the decisions that it weighs; return self.

        Errors and warnings are those of :meth:`GPClassifier.fit`, and others if ``max_loss`` is
        below the larger cost, if the classes of the costs or the columns of ``X_target`` are not
        those of the data in their order, or if the decisions still changed in the last round.

        Parameters
        ----------
        X, y : array-like of shape (n, n_features), (n,)
            With two classes.
        X_target : array-like of shape (s, n_features), optional
            The inputs on which decisions will be taken; the training inputs if None.
        """
        inputs, signs = self._read(X, y)
        self.costs_ = CostMatrix() if self.costs is None else self.costs
        if self.costs_.columns_of(self.classes_).tolist() != [0, 1]:
            order = self.classes_.tolist()
            raise ValueError(f"expected costs of the classes {order} in order, got {self.costs_!r}")
        self.max_loss_ = check_max_loss(self.max_loss, self.costs_)
        target = inputs
        if X_target is not None:
            target = validate_data(self, X_target, reset=False, dtype=np.float64)
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

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """LHG (26): positive where the second class is decided under the costs, of shape (n,)."""
        margin = self._margin(X)[0]  # first, as it checks that there is a fit
        return margin - self.costs_.probit_threshold

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
