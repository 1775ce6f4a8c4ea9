r"""Linkgistic regression: a generalised linear model whose link is learned (W&N section 4.2).

    y_n | z_n ~ Bernoulli(u(nu(x_n))),   x_n = beta . (z_n - mean z),   nu ~ an ISGP or a GP,

eq. (12), with u the inverse canonical link of a proper loss. EM alternates between the Laplace
posterior of nu with the scores x held (E-step) and the weights beta with that posterior held
(M-step). Neither costs more than a logistic regression: the E-step sees the scores on a grid, the
M-step sees the posterior as two tables of one variable.

This module has the estimator: its parameters, what it keeps of a fit, and its predictions. The fit
is in :mod:`bayesloss.learning.estimators.linkgistic_fit`.
"""

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from bayesloss.learning.data.estimator_base import all_or_nothing, by_blocks
from bayesloss.learning.data.inputs import centred_scores
from bayesloss.learning.estimators.linkgistic_fit import (
    SIZES,
    Problems,
    Settings,
    fit_problems,
    read_problems,
)
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.proper_losses import LogLoss, ProperLoss
from bayesloss.warnings import warn_caller

_MOST_BASIS = 4096  # an E-step factorises matrices with as many rows


class LinkgisticClassifier(ClassifierMixin, BaseEstimator):
    """Logistic regression with a learned link.

    A logistic regression takes the log odds for the score, a weighted sum of the inputs. Here they
    are a curve nu of the score, increasing unless ``prior="gp"``, which is learned together with
    the weights. Its posterior gives the learned link an error band.

    Parameters
    ----------
    prior : {"isgp", "gp"}, default="isgp"
        The prior of nu: an integrated squared Gaussian process, whose curves all increase, or a
        Gaussian process, whose curves may also decrease.
    loss : ProperLoss, default=None
        The proper loss whose canonical link relates nu to probabilities; None for the log loss,
        where nu are the log odds. Its canonical link must map onto all real numbers.
    n_basis : int or None, default=None
        Number of basis functions of nu, even, at most 4096. None for 64 where ``a`` is given, else
        for 32: smoother curves need fewer.
    a : float or None, default=None
        Smoothness of nu, above 1: the larger, the smoother (the decay of the kernel's eigenvalues).
        None chooses the prior for each link by the evidence of the data, in rounds 1, 2, 4, 8, ...
        of EM. Under "gp" the candidates differ in ``a`` alone. Under "isgp" they are centred on
        a straight line, and differ in ``a`` and in how far they stray from the line, see
        :class:`bayesloss.learning.sources.centred_isgp.CentredISGP`: with few data the fit is then
        near a logistic regression. Where ``variance`` is given, None is 1.2 under "isgp", the
        paper's value.
    c : float or None, default=None
        Sets the range of scores in which nu can be learned: from -1/c to 1/c, which is one period
        of the kernel. None chooses c from the scores of a logistic regression, so that they fill
        the middle half of this range; one-vs-rest does so for each class. Where ``a`` is None as
        well, a few scores far out from the rest do not count for this; if they then lie beyond the
        range, the link is constant there, and a warning tells how many they are.
    variance : float or None, default=None
        Under "isgp" the slope of nu that the prior expects; None for 1, so that nu(x) = x is
        expected. Under "gp" the prior variance of nu; None for the mean square of the scores of a
        logistic regression.
    gamma : float, default=0.01
        Prior precision of the intercept of nu.
    leave_one_out : bool, default=True
        Whether links are fitted to approximate leave-one-out scores, or to the training scores, as
        in the paper. Weights separate their own training data better than new data; a link that is
        fitted to the training scores is overconfident, the more so the fewer rows there are for
        each column.
    multi_class : {"joint", "ovr"}, default="joint"
        How more than two classes are treated. "joint" fits one model: a softmax of increasing
        curves, one for each class, see :mod:`bayesloss.learning.links.joint`. "ovr" fits each class
        against the rest, as the paper does; so are all classes fitted under ``prior="gp"`` and
        under other losses than the log loss.
    class_weight : dict, "balanced" or None, default=None
        Factors of the weights of the data of each class, as in scikit-learn.
    C : float, default=1.0
        Inverse strength of the L2 penalty on the weights, as in scikit-learn; ``inf`` for none, as
        in the paper.
    tol : float, default=1e-4
        EM ends when a round changes the log evidence, less the penalty, by less than ``tol`` nats
        for each datum. The logistic regression that it begins with ends when no derivative of the
        mean log likelihood exceeds ``tol``, as in scikit-learn.
    max_iter : int, default=30
        The largest number of M-steps; a last E-step follows them.
    n_samples : int or None, default=None
        Number of random draws that represent the posterior, the same normal numbers in each round.
        None takes a fixed set of 64 evenly spread points, which is more exact than some thousand
        random draws; then the fit is deterministic.
    device : str, default="cpu"
        Where the inputs and the scores are kept, as PyTorch names it.
    verbose : int, default=0
        Whether a progress bar is shown.
    random_state : int, RandomState or None, default=None
        Of the random draws, where ``n_samples`` asks for them.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) for two classes, else (n_classes, n_features)
        The weights, on the scale of a logistic regression's: for each class the mean slope of nu
        over the training data is 1.
    centre_ : ndarray of shape (n_features,)
        The mean of the training inputs. Scores are ``(X - centre_) @ coef_.T``.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        With it scores are ``X @ coef_.T + intercept_``. The rest of a logistic regression's
        intercept is nu(0), ``link_.source(0.0)``.
    link_ : FittedLink
        The learned link, for two classes.
    links_ : list of FittedLink
        The learned links, of each class if there are more than two. In a joint model ``source`` is
        the curve of a class, and ``inverse_link`` its probability where the curves of the other
        classes sum up to zero.
    n_iter_ : int
        Number of rounds of EM (of E-steps), at most ``max_iter`` + 1.
    converged_ : bool
    joint_ : bool
        Whether the classes are one joint model.
    history_ : dict of ndarray of shape (n_iter_, n_links)
        "log_evidence": Laplace's approximation after each E-step, in nats. "expected_before" and
        "expected": the expected log likelihood less the penalty, in nats for each datum, before and
        after each M-step. "change": the relative change of the weights in it. NaN after the last
        M-step, and for links that converged before. A joint model has "log_evidence" only, of shape
        (n_iter_, 1), and keeps the round where it is largest.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    The paper's recipe (W&N section 5) is ``a=1.2``, ``leave_one_out=False``, ``multi_class="ovr"``
    and random draws, ``n_samples=64``; it leaves c open and has no penalty. Inputs are not
    rescaled. There is no ``warm_start``: the expensive part of a fit depends on the range of its
    scores, and would not gain from earlier weights.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from bayesloss import LinkgisticClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LinkgisticClassifier(random_state=0).fit(scale(X), y)
    >>> bool(model.score(scale(X), y) > 0.98)
    True
    >>> low, high = model.link_.inverse_link_band([-1.0, 0.0, 1.0], level=0.9)
    >>> bool((low < high).all() and (high[:-1] < high[1:]).all())
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "prior": [StrOptions({"isgp", "gp"})],
        "loss": [ProperLoss, None],
        "n_basis": [Interval(Integral, 2, _MOST_BASIS, closed="both"), None],
        "a": [Interval(Real, 1, None, closed="neither"), None],
        "c": [Interval(Real, 0, None, closed="neither"), None],
        "variance": [Interval(Real, 0, None, closed="neither"), None],
        "gamma": [Interval(Real, 0, None, closed="neither")],
        "leave_one_out": ["boolean"],
        "multi_class": [StrOptions({"joint", "ovr"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "C": [Interval(Real, 0, None, closed="right")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_samples": [None, Interval(Integral, 1, None, closed="left")],
        "device": [str],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        prior: str = "isgp",
        loss: ProperLoss | None = None,
        n_basis: int | None = None,
        a: float | None = None,
        c: float | None = None,
        variance: float | None = None,
        gamma: float = 0.01,
        leave_one_out: bool = True,
        multi_class: str = "joint",
        class_weight: dict[Any, float] | str | None = None,
        C: float = 1.0,
        tol: float = 1e-4,
        max_iter: int = 30,
        n_samples: int | None = None,
        device: str = "cpu",
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.prior = prior
        self.loss = loss
        self.n_basis = n_basis
        self.a = a
        self.c = c
        self.variance = variance
        self.gamma = gamma
        self.leave_one_out = leave_one_out
        self.multi_class = multi_class
        self.class_weight = class_weight
        self.C = C
        self.tol = tol
        self.max_iter = max_iter
        self.n_samples = n_samples
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit weights and links.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n, n_features)
            Sparse inputs are never made dense; a Dask array or DataFrame stays where it is, see
            :mod:`bayesloss.learning.data.dask_inputs`.
        y : array-like of shape (n,)
            Labels of any kind, at least two different ones.
        sample_weight : array-like of shape (n,), optional
            How many times each datum counts; data of weight zero are left out.
        groups : array-like of shape (n,), optional
            Labels of rows that belong together, such as the measurements of one patient. Groups are
            left out whole where links are fitted to leave-one-out scores. Without groups each row
            is left out, together with all rows that are equal to it.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a value is not finite, or the largest not within 1e-100 and 1e100, there is one class
            only, the loss has a bounded link, PyTorch cannot use the device, sparse inputs should
            be on another than the processor, groups of them have over 2048 columns, blocks of a
            Dask collection have unknown sizes or others than those of y, or c is over a thousand
            times too large or too small for the scores.
        RuntimeError
            If Dask's workers died or ran out of memory.

        Warns
        -----
        ConvergenceWarning
            If EM did not converge, an E-step found no mode, or, without a penalty, a class can be
            separated from the rest: the optimum then is at infinity.
        UserWarning
            If scores of the logistic regression leave the range of the c that was given, or a few
            lie far out from the rest.
        """
        self._validate_params()
        with all_or_nothing(self):
            self._fit_at(self._read(X, y, sample_weight, groups), self.C)
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> Problems:
        """Check the data; learn which classes there are, and whether they make one model."""
        Bernoulli(self.loss)  # refuses bounded links
        self.classes_, problems = read_problems(self, X, y, sample_weight, groups)
        usual = self.loss is None or isinstance(self.loss, LogLoss)
        several = len(self.classes_) > 2 and self.multi_class == "joint"
        self.joint_ = several and self.prior == "isgp" and usual
        return problems

    def _fit_at(self, problems: Problems, C: float) -> None:
        """Fit weights and links, and keep them."""
        found = fit_problems(problems, C, self.joint_, Settings.of(self))
        self.links_ = found.links
        self.__dict__.pop("link_", None)  # of an earlier fit
        if len(self.links_) == 1:
            self.link_ = self.links_[0]
        slopes = np.array([link.slope for link in self.links_])
        self.coef_ = slopes[:, None] * found.beta.cpu().numpy()
        self.centre_ = found.centre.cpu().numpy()
        self.intercept_ = -self.coef_ @ self.centre_
        self.n_iter_ = len(found.history["log_evidence"])
        self.converged_ = found.converged
        self.history_ = {
            name: torch.stack(rows).cpu().numpy() if rows else np.empty((0, len(found.beta)))
            for name, rows in found.history.items()
        }

    @by_blocks
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """The log odds of each class against the rest, averaged over the posterior of nu.

        In a joint model: the curves of all classes at the mode of the posterior, whose softmax are
        the probabilities.

        Parameters
        ----------
        X : array-like of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n,) for two classes, else (n, n_classes)

        Warns
        -----
        UserWarning
            If a score lies beyond the range that c sets.
        """
        return self._log_odds(X)

    @by_blocks
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The probabilities of the classes, of shape (n, n_classes).

        They are averaged over the posterior of nu; in a joint model they are those at its mode.
        More than two one-vs-rest probabilities are scaled to sum to 1.
        """
        odds = self._log_odds(X)
        if odds.ndim == 1:
            return np.stack([expit(-odds), expit(odds)], axis=1)
        if self.joint_:
            return softmax(odds, axis=1)
        positive = expit(odds)
        return positive / positive.sum(axis=1, keepdims=True)

    @by_blocks
    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The logarithms of the probabilities, exact also where those are tiny."""
        odds = self._log_odds(X)
        if odds.ndim == 1:
            return np.stack([log_expit(-odds), log_expit(odds)], axis=1)
        return log_softmax(odds if self.joint_ else log_expit(odds), axis=1)

    @by_blocks
    def predict(self, X: ArrayLike) -> NDArray:
        """The most probable class, of shape (n,)."""
        odds = self._log_odds(X)
        return self.classes_[(odds > 0).astype(int) if odds.ndim == 1 else odds.argmax(axis=1)]

    @by_blocks
    def scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """The scores that links act on: of shape (n,) for two classes, else (n, n_classes)."""
        check_is_fitted(self)
        inputs = validate_data(self, X, reset=False, dtype=np.float64, accept_sparse="csr")
        scores = centred_scores(inputs, self.coef_, self.centre_).T
        return scores[:, 0] if len(self.coef_) == 1 else scores

    def _log_odds(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        inputs = validate_data(self, X, reset=False, dtype=np.float64, accept_sparse="csr")
        if (largest := float(max(inputs.max(), -inputs.min()))) > SIZES[1]:
            raise ValueError(f"expected inputs of at most {SIZES[1]}, got {largest:.3g}")
        scores = centred_scores(inputs, self.coef_, self.centre_)
        edges = np.array([link.edge for link in self.links_])
        outside = int((np.abs(scores) > edges[:, None]).any(axis=0).sum())
        if outside:
            warn_caller(
                f"{outside} of {scores.shape[1]} inputs have a score outside [-1/c, 1/c], where "
                "the kernel's period ends: the learned link says nothing there",
            )
        odds = [
            link.posterior.prior.source(link.within(x), link.posterior.mode).numpy()
            if self.joint_
            else link.log_odds(link.within(x))[0].numpy()
            for link, x in zip(self.links_, scores, strict=True)
        ]
        return odds[0] if len(odds) == 1 else np.stack(odds, axis=1)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
