"""Gaussian process classifiers with a probit likelihood, plain and by loss-EM (LHG section 4.2)."""

import math
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from bayesloss.arrays import Array, Numbers, read_labels, untensored
from bayesloss.calibrating.costs import CostMatrix
from bayesloss.calibrating.kernel_matrices.kernel_evidence import (
    checked_length_scales,
    choose_kernel,
)
from bayesloss.calibrating.kernel_matrices.kernel_matrix import fit_weights
from bayesloss.calibrating.loss_em_probit import loss_em_probit
from bayesloss.calibrating.probit.laplace import find_mode
from bayesloss.calibrating.probit.whitened_gp import GaussianWeights, Inference, Sites, WhitenedGP
from bayesloss.calibrating.utility import check_max_loss
from bayesloss.kernels import SquaredExponential
from bayesloss.tensors import as_float64
from bayesloss.threads import on_one_thread, threads_for
from bayesloss.warnings import warn_caller, warn_unconverged

LengthScale = Numbers | Literal["shared", "ard"]

# Nats a row: a fit has learned something if labels left out are so much likelier than by a coin.
_LEAST_GAIN = 1e-3


class _Prepared(NamedTuple):
    """The prior's features, (1 or K, n, r), and the sites that the search for the kernel left."""

    features: torch.Tensor
    sites: Sites | None


@on_one_thread
class ProbitClassifier(ClassifierMixin, BaseEstimator):
    """What the two classifiers share: validation, the choice of the kernel, and predictions."""

    inference: Inference
    length_scale: LengthScale
    amplitude: float | None
    posterior_: GaussianWeights

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "inference": [StrOptions(set(get_args(Inference)))],
        "length_scale": [
            Interval(Real, 0, None, closed="neither"),
            "array-like",
            StrOptions({"shared", "ard"}),
        ],
        # Beyond, the square or the rounding errors of the kernel matrix are out of hand.
        "amplitude": [Interval(Real, 1e-100, 1e6, closed="both"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def _read(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, torch.Tensor]:
        """Inputs, and the labels as +1 and -1: (1, n) for two classes, (K, n) for more."""
        self._validate_params()
        features, labels = validate_data(self, untensored(X), read_labels(y), dtype=np.float64)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        K = len(self.classes_)
        if K < 2:
            raise ValueError(f"expected two classes, got one class, {self.classes_[0]!r}")
        if K > 2 and not self.__sklearn_tags__().classifier_tags.multi_class:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass."
            )
        of_each_set = np.arange(K)[:, None] if K > 2 else np.array([[1]])  # the class that is +1
        signs = np.where(codes == of_each_set, 1.0, -1.0)
        return features, torch.from_numpy(signs)

    def _read_new(self, X: ArrayLike) -> Array:
        return validate_data(self, untensored(X), reset=False, dtype=np.float64)

    def _make_prior(self, X: Array, signs: torch.Tensor) -> "_Prepared":
        """Choose the kernel, and set the prior."""
        length_scales = None
        if not isinstance(self.length_scale, str):
            length_scales = checked_length_scales(self.length_scale, X)
        chosen = choose_kernel(
            X,
            signs.numpy(),
            inference=self.inference,
            length_scales=length_scales,
            amplitude=None if self.amplitude is None else float(self.amplitude),
            ard=length_scales is None and self.length_scale == "ard",
        )
        self._unit = chosen.length_scales  # of the columns; the attributes only tell
        self.length_scale_ = chosen.length_scales.copy()
        self.amplitude_ = chosen.amplitude
        if not chosen.converged:
            warn_unconverged(
                "the search for the kernel ended before the evidence's slope vanished: give "
                "length_scale and amplitude, or scale the columns"
            )
        kernel = SquaredExponential(a=1.0, b=chosen.amplitude**2)
        n = len(X)
        with threads_for(n, n, n):
            self.prior_ = WhitenedGP.at(kernel, self._scaled(X), batch_dims=1)
        features = self.prior_.features.expand(len(signs), -1, -1)
        return _Prepared(features=features, sites=chosen.sites)

    def _scaled(self, X: Array) -> torch.Tensor:
        with np.errstate(over="ignore", under="ignore"):  # infinitely far is far
            return as_float64(X / self._unit)[None]

    def _say_if_nothing_was_learned(
        self, plain: GaussianWeights, features: torch.Tensor, signs: torch.Tensor
    ) -> None:
        mean, variance = plain.held_out(features)
        held_out = torch.special.log_ndtr(signs * mean / (1 + variance).sqrt())  # LHG (25)
        if float(held_out.mean()) >= math.log(0.5) + _LEAST_GAIN:
            return
        if isinstance(self.length_scale, str) and self.amplitude is None:
            hint = "No kernel explains them better than chance"
        else:
            hint = "Is the length scale too short? Leave it and amplitude out: the evidence chooses"
        warn_caller(
            "the fit tells nothing: held out, the training labels are no more probable than by the "
            f"toss of a coin. {hint}"
        )

    def _margin(self, X: ArrayLike) -> Array:
        """The argument of Phi in LHG (25), a row for each set of labels."""
        check_is_fitted(self)
        new = self._scaled(self._read_new(X))
        features, noise = self.prior_.project(new)
        _, n, rank = self.prior_.basis.shape
        with threads_for(new.shape[1], n, rank):
            return self.posterior_.margin(features, noise).numpy()

    def predict_proba(self, X: ArrayLike) -> Array:
        """LHG (25): the probabilities of the classes under the approximate posterior.

        Of X, of shape (n, n_features), it is (n, n_classes), in the order of ``classes_``; of more
        than two, each is against the rest, normalised.
        """
        margin = torch.from_numpy(self._margin(X))
        if len(margin) == 1:
            # Both tails by themselves: 1 - p would lose the small one.
            return torch.special.ndtr(torch.cat([-margin, margin])).T.numpy()
        return torch.softmax(torch.special.log_ndtr(margin), 0).T.numpy()

    def sample_labels(
        self, X: ArrayLike, n_samples: int = 1000, random_state: Any = None
    ) -> NDArray[Any]:
        """Draw the labels of all n rows together, (n_samples, n), as :func:`decide_together` wants.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        n_samples : int, default=1000
        random_state : int, RandomState or None, default=None

        Raises
        ------
        ValueError
            If there are more than two classes.
        """
        check_is_fitted(self)
        if len(self.classes_) > 2:
            raise ValueError(f"expected a fit of two classes, got {len(self.classes_)}")
        new = self._scaled(self._read_new(X))
        generator = torch.Generator()
        generator.manual_seed(int(check_random_state(random_state).randint(2**31)))
        z = self.posterior_.sample(n_samples, generator)
        positive = self.prior_.draw_labels(z, new, generator)[0]
        return self.classes_[positive.numpy().astype(int)]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class that ``decision_function`` favours; X as for :meth:`predict_proba`."""
        decision = self.decision_function(X)
        codes = (decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(1)
        return self.classes_[codes]

    def decision_function(self, X: ArrayLike) -> Array:
        """The margin in LHG (25), positive for the second class; X as for :meth:`predict_proba`.

        If there are more than two classes, its shape is (n, n_classes), and the largest decides.
        """
        margin = self._margin(X)
        return margin[0] if len(margin) == 1 else margin.T


@on_one_thread
class GPClassifier(ProbitClassifier):
    r"""Gaussian process classification, :math:`p(y \mid x, f) = \Phi(y f(x))`: LHG section 4.2.

    ``predict`` takes all errors to cost the same; for other costs use :meth:`CostMatrix.decide`.
    More than two classes are each separated from the rest, with one kernel. The kernel is sought on
    at most 500 rows, with a weak prior against extreme values. Time grows like n^3, memory like
    n^2: 3,000 rows take some 7 seconds of one core by Laplace's method, like scikit-learn's with
    the kernel given, and twice as many by EP. There are no sample weights.

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
        Steps are those after the search for the kernel, from where that ended.

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
        inference: Inference = "ep",
        *,
        length_scale: LengthScale = "shared",
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
        features, sites = self._make_prior(inputs, signs)
        _, n, rank = features.shape
        with threads_for(rank, n, rank):
            self.posterior_ = fit_weights(
                self.prior_, signs, self.inference, start=sites, max_iter=self.max_iter
            )
            self._say_if_nothing_was_learned(self.posterior_, features, signs)
        self.log_evidence_ = float(self.posterior_.log_evidence.sum())
        self.n_iter_ = self.posterior_.n_iterations
        self.converged_ = bool(self.posterior_.converged.all())
        return self


@on_one_thread
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
        inference: Inference = "laplace",
        length_scale: LengthScale = "shared",
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
            target = self._read_new(X_target)
        features = self._make_prior(inputs, signs).features
        _, n, rank = features.shape
        with threads_for(rank, n, rank):
            target_features, target_noise = self.prior_.project(self._scaled(target))
            result = loss_em_probit(
                features,
                signs,
                target_features,
                target_noise,
                self.costs_,
                inference=self.inference,
                max_loss=self.max_loss_,
                max_iter=self.max_iter,
            )
            self._say_if_nothing_was_learned(find_mode(features, signs), features, signs)
        self.posterior_ = result.q
        self.target_decisions_ = self.classes_[(result.decisions[0].numpy() > 0).astype(int)]
        self.n_iter_ = int(result.n_rounds[0])
        self.converged_ = bool(result.converged[0] and result.q.converged[0])
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """LHG (26): positive where the second class is decided under the costs, of shape (n,)."""
        margin = self._margin(X)[0]  # first, as it checks that there is a fit
        return margin - self.costs_.probit_threshold

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
