"""What the Gaussian process classifiers with a probit likelihood share (LHG section 4.2)."""

import math
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bayesloss.arrays import Array
from bayesloss.calibrating.probit.kernel_evidence import choose_kernel
from bayesloss.calibrating.probit.whitened_gp import GaussianWeights, WhitenedGP
from bayesloss.kernels import SquaredExponential
from bayesloss.tensors import as_float64
from bayesloss.warnings import warn_caller, warn_unconverged

_TOLD = 1e-3  # nats a row: a fit has learned something if labels left out are so much likelier


class ProbitClassifier(ClassifierMixin, BaseEstimator):
    """What the two classifiers share: validation, the choice of the kernel, and predictions."""

    inference: str
    length_scale: float | ArrayLike | str
    amplitude: float | None
    classes_: NDArray[Any]
    length_scale_: Array
    amplitude_: float
    prior_: WhitenedGP
    posterior_: GaussianWeights

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "inference": [StrOptions({"ep", "laplace"})],
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
        features, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        K = len(self.classes_)
        if K < 2:
            raise ValueError(f"expected two classes, got one class, {self.classes_[0]!r}")
        if K > 2 and not self.__sklearn_tags__().classifier_tags.multi_class:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass."
            )
        positive = codes == (np.arange(K)[:, None] if K > 2 else 1)
        return features, torch.from_numpy(np.where(np.atleast_2d(positive), 1.0, -1.0))

    def _make_prior(self, X: Array, signs: torch.Tensor) -> torch.Tensor:
        given = self.length_scale
        found = choose_kernel(
            X,
            signs.numpy(),
            inference=self.inference,
            length_scales=None if isinstance(given, str) else _checked_length_scales(given, X),
            amplitude=None if self.amplitude is None else float(self.amplitude),
            ard=isinstance(given, str) and given == "ard",
        )
        self.length_scale_, self.amplitude_ = found.length_scales, found.amplitude
        if not found.converged:
            warn_unconverged(
                "the search for the kernel ended before the evidence's slope vanished: give "
                "length_scale and amplitude, or scale the columns"
            )
        kernel = SquaredExponential(a=1.0, b=self.amplitude_**2)
        self.prior_ = WhitenedGP.at(kernel, self._scaled(X), batch_dims=1)
        return self.prior_.features.expand(len(signs), -1, -1)

    def _scaled(self, X: Array) -> torch.Tensor:
        with np.errstate(over="ignore", under="ignore"):  # infinitely far is far
            return as_float64(X / self.length_scale_)[None]

    def _say_if_nothing_was_learned(
        self, plain: GaussianWeights, features: torch.Tensor, signs: torch.Tensor
    ) -> None:
        mean, variance = plain.held_out(features)
        held_out = torch.special.log_ndtr(signs * mean / (1 + variance).sqrt())  # LHG (25)
        if float(held_out.mean()) >= math.log(0.5) + _TOLD:
            return
        given = not isinstance(self.length_scale, str) or self.amplitude is not None
        hint = "Is the length scale too short? Leave it and amplitude out: the evidence chooses"
        warn_caller(
            "the fit tells nothing: held out, the training labels are no more probable than by the "
            f"toss of a coin. {hint if given else 'No kernel explains them better than chance'}"
        )

    def _margin(self, X: ArrayLike) -> Array:
        """The argument of Phi in LHG (25), a row for each set of labels."""
        check_is_fitted(self)
        new = self._scaled(validate_data(self, X, reset=False, dtype=np.float64))
        return self.posterior_.margin(*self.prior_.project(new)).numpy()

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
        new = self._scaled(validate_data(self, X, reset=False, dtype=np.float64))
        generator = torch.Generator()
        generator.manual_seed(int(check_random_state(random_state).randint(2**31)))
        z = self.posterior_.sample(n_samples, generator)
        return self.classes_[self.prior_.draw_labels(z, new, generator)[0].numpy().astype(int)]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class that ``decision_function`` favours; X as for :meth:`predict_proba`."""
        decided = self.decision_function(X)
        return self.classes_[(decided > 0).astype(int) if decided.ndim == 1 else decided.argmax(1)]

    def decision_function(self, X: ArrayLike) -> Array:
        """The margin in LHG (25), positive for the second class; X as for :meth:`predict_proba`.

        If there are more than two classes, its shape is (n, n_classes), and the largest decides.
        """
        margin = self._margin(X)
        return margin[0] if len(margin) == 1 else margin.T


def _checked_length_scales(given: ArrayLike, X: Array) -> Array:
    scales, n_features = np.asarray(given, dtype=float), X.shape[1]
    if scales.ndim and scales.shape != (n_features,):
        raise ValueError(f"expected one length_scale or {n_features}, got shape {scales.shape}")
    if not ((scales > 0) & np.isfinite(scales)).all():
        raise ValueError(f"expected length_scale > 0 and finite, got {scales.tolist()}")
    with np.errstate(over="ignore"):
        if not np.isfinite(np.abs(X).max(axis=0) / scales).all():
            raise ValueError(
                f"expected inputs of a finite number of length scales, got {np.abs(X).max():g} in "
                f"units of {scales.min():g}"
            )
    return np.broadcast_to(scales, n_features).copy()
