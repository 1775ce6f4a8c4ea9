r"""Linkgistic regression: a generalised linear model whose link is learned (W&N section 4.2).

    y_n | z_n ~ Bernoulli(u(nu(x_n))),   x_n = beta . (z_n - mean z),   nu ~ an ISGP or a GP,

eq. (12), with u the inverse canonical link of a proper loss. EM alternates between the Laplace
posterior of nu with the scores x held (E-step) and the weights beta with that posterior held
(M-step). Neither costs more than a logistic regression: the E-step sees the scores on a grid, the
M-step sees the posterior as two tables of one variable.
"""

import math
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor

from bayesloss.learning.data.dask_inputs import DaskInputs, is_dask, on_client
from bayesloss.learning.data.duplicates import merge_duplicates
from bayesloss.learning.data.estimator_base import all_or_nothing, by_blocks, remember_columns
from bayesloss.learning.data.inputs import (
    DenseInputs,
    Inputs,
    SparseInputs,
    canonical,
    centred_scores,
)
from bayesloss.learning.inference.laplace import Posterior
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.inference.posterior_draws import even_normals
from bayesloss.learning.links.em import FIXED_LINK, LinkFit, fit_links
from bayesloss.learning.links.fitted_link import FittedLink
from bayesloss.learning.links.joint import SOFTMAX, JointFit, fit_joint_links
from bayesloss.learning.links.link_priors import LinkPriors
from bayesloss.learning.sources.priors import SourcePrior
from bayesloss.learning.sources.trigonometric import TrigonometricKernel
from bayesloss.learning.weights.leave_one_out import LeaveOneOut
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.proper_losses import LogLoss, ProperLoss
from bayesloss.warnings import warn_caller

__all__ = ["LinkgisticClassifier"]

_DRAWS = 64  # points that stand for a posterior, where there is no chance
_SIZES = (1e-100, 1e100)  # of inputs: squares keep within floating point's range
_MOST_BASIS = 4096  # an E-step factorises matrices with as many rows


@dataclass(frozen=True)
class Problems:
    """Problems that share their inputs, for any penalty.

    Attributes
    ----------
    Z : Inputs of shape (n, d)
    labels : Tensor of int8 of shape (K, n)
    weight : Tensor of shape (n,)
    groups : Tensor of int64 of shape (n,), or None
    """

    Z: Inputs
    labels: Tensor
    weight: Tensor
    groups: Tensor | None

    def at(self, C: float) -> LinearScores:
        """The problems with this penalty."""
        return LinearScores(self.Z, self.labels, self.weight, C)


class LinkgisticClassifier(ClassifierMixin, BaseEstimator):
    """Logistic regression with a learned link, by EM; many classes in one model.

    Parameters
    ----------
    prior : {"isgp", "gp"}, default="isgp"
        The prior of the source nu. Only under "isgp" is every learned link monotone.
    loss : ProperLoss, default=None
        The fixed part of the link; None for the log loss. Its canonical link must map onto all real
        numbers.
    n_basis : int or None, default=None
        Number M of basis functions, even, at most 4096. None for 64 where ``a`` is given, else for
        32: smoother links need fewer.
    a : float or None, default=None
        Decay of the kernel's eigenvalues, above 1: the larger, the smoother the link. None has
        Laplace's evidence choose the prior for each link in rounds 1, 2, 4, 8, ... of EM. Under
        "gp" candidates differ in a. Under "isgp" they are centred on a straight line, and differ in
        a and in how far they stray from it, see
        :class:`bayesloss.learning.sources.priors.CentredISGP`: with few data a fit is near a
        logistic
        regression on the scale that held-out scores ask for. With ``variance`` given, None is 1.2
        under "isgp", the paper's value.
    c : float or None, default=None
        Half the inverse period of the kernel, in units of the inverse score. None takes it from the
        fit with the fixed link, separately for each class: its scores fill half of [-1/c, 1/c].
        Where ``a`` is None, too, a few scores may lie far out: the rest fill half, and beyond the
        period the link is held constant; see
        :func:`bayesloss.learning.data.range_map.robust_reach`.
    variance : float or None, default=None
        k(0, 0), the prior mean of the slope of nu under "isgp", the prior variance of nu under
        "gp". None for 1 under "isgp", which makes nu(x) = x the prior mean, and for the mean square
        of the scores of the fixed link under "gp".
    gamma : float, default=0.01
        Prior precision of the intercept nu_0.
    leave_one_out : bool, default=True
        Whether links are fitted to approximate leave-one-out scores, or to the training scores, as
        in the paper. Weights tell apart the data they were fitted to better than others; a link
        that learns from those is overconfident, the more so the fewer data there are per column.
    multi_class : {"joint", "ovr"}, default="joint"
        How more than two classes are treated. "joint" gives each a monotone source and fits all
        together, in turns with the weights while that raises the evidence of held-out labels, see
        :mod:`bayesloss.learning.links.joint`; "ovr" is the paper's recipe, one class against the
        rest, and so are all classes under "gp" and with other losses than the log loss.
    class_weight : dict, "balanced" or None, default=None
        Factors of the weights of the data of each class, as in scikit-learn.
    C : float, default=1.0
        Inverse strength of the L2 penalty on the weights, as in scikit-learn; ``inf`` for none, as
        in the paper.
    tol : float, default=1e-4
        EM ends when a round changes the log evidence, less the penalty, by less than tol nats a
        datum. The fit with the fixed link, where it begins, ends when no derivative of the mean log
        likelihood exceeds tol, as scikit-learn's logistic regression does.
    max_iter : int, default=30
        The largest number of M-steps; a last E-step follows them.
    n_samples : int or None, default=None
        Random draws that stand for the posterior, the same normal numbers in each round. None takes
        a fixed set of 64 points of low discrepancy, which are more exact than some thousand random
        ones; then nothing is left to chance.
    device : str, default="cpu"
        Where the inputs and the scores are kept, as torch names it.
    verbose : int, default=0
        Whether a progress bar is shown.
    random_state : int, RandomState or None, default=None
        Of the random draws, where ``n_samples`` asks for them.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) for two classes, else (n_classes, n_features)
        The weights, on the scale of a logistic regression's: the mean slope of nu over the training
        data is 1, for each class by itself.
    centre_ : ndarray of shape (n_features,)
        The mean of the training inputs. Scores are ``(X - centre_) @ coef_.T``.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        With it scores are ``X @ coef_.T + intercept_``. The rest of a logistic regression's
        intercept is nu(0), ``link_.source(0.0)``.
    link_ : FittedLink
        For two classes.
    links_ : list of FittedLink
        One a problem. In a joint model ``source`` is that of a class, and ``inverse_link`` its
        probability against rivals whose sources sum up to zero.
    n_iter_ : int
        Rounds of EM: E-steps, at most ``max_iter`` + 1.
    converged_ : bool
    joint_ : bool
        Whether the classes are one joint model.
    history_ : dict of ndarray of shape (rounds, n_problems)
        "log_evidence", Laplace's, in nats, after each E-step; "expected_before" and "expected", the
        expected log likelihood less the penalty, in nats a datum, before and after each M-step;
        "change", the relative change of the weights in it. The last round has no M-step, and a
        problem that has settled takes no further part: NaN. In a joint model the first alone, of
        shape (rounds, 1), and the round with the most evidence counts.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    The paper's recipe (W&N section 5) is ``a=1.2``, ``leave_one_out=False``, ``multi_class="ovr"``
    and random draws, ``n_samples=64``; it leaves c open and has no penalty. Inputs are not
    rescaled. See :class:`FittedLink` for the learned link and its band. There is no ``warm_start``:
    EM from old weights would keep the range and the scale of the old scores, and a fit begins with
    a logistic regression, which is the cheap part.

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
            What belongs together, such as the measurements of one patient: the link is fitted to
            scores that each group would have had without all its data. Without it, each row is
            held out with all its weight, and equal rows together.

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
            If scores of the fixed link leave the period of the c that was given, or a few lie far
            out from the rest.
        """
        self._validate_params()
        with all_or_nothing(self):
            self._fit_at(self._read(X, y, sample_weight, groups), self.C)
        return self

    def _read(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        groups: ArrayLike | None,
    ) -> Problems:
        """Check the data, and bring them into the form that is fitted."""
        Bernoulli(self.loss)  # refuses bounded links
        device = _device(self.device)
        inputs: Inputs
        if is_dask(X):
            inputs, y, sample_weight = self._read_blocks(X, y, sample_weight, groups)
        else:
            checked = validate_data(self, X, y, dtype=np.float64, order="C", accept_sparse="csr")
            rows, y = canonical(checked[0]), np.asarray(checked[1])
            if issparse(rows):
                inputs = SparseInputs(rows)
            else:
                inputs = DenseInputs(torch.from_numpy(rows).to(device))
        if device.type != "cpu" and not isinstance(inputs, DenseInputs):
            raise ValueError(
                f"expected device='cpu' for inputs that are sparse or Dask's, got {self.device!r}: "
                "set it, or give an array"
            )
        largest = inputs.largest()
        if largest and not _SIZES[0] <= largest <= _SIZES[1]:
            raise ValueError(
                f"expected inputs whose largest is within {_SIZES[0]} and {_SIZES[1]}, or 0, got "
                f"{largest:.3g}: scale them"
            )
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
        counted = weight > 0
        if not counted.any():
            raise ValueError("expected a sample weight above zero, got none")
        together = _group_numbers(groups, len(inputs))
        if not counted.all():
            inputs, y, weight = inputs.rows(torch.from_numpy(counted)), y[counted], weight[counted]
            together = None if together is None else together[counted]
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, got one class only: "
                f"{self.classes_[0]}"
            )
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
        if self.leave_one_out:
            keys = [codes] if together is None else [codes, together]
            kept, weight = merge_duplicates(inputs.equal(), weight, *keys)
            if len(kept) < len(inputs) or weight.max() > 1:
                inputs, codes = inputs.rows(torch.from_numpy(kept)), codes[kept]
                together = None if together is None else together[kept]
        positives = range(1, 2) if len(self.classes_) == 2 else range(len(self.classes_))
        self.joint_ = len(self.classes_) > 2 and self._together
        return Problems(
            inputs,
            torch.from_numpy(np.stack([codes == k for k in positives]).view(np.int8)).to(device),
            torch.from_numpy(weight).to(device),
            None if together is None else torch.from_numpy(together).to(device),
        )

    def _read_blocks(
        self, X: Any, y: Any, sample_weight: Any, groups: Any
    ) -> tuple[DaskInputs, NDArray, Any]:
        """The same for a Dask collection: what is one number a row comes here."""
        inputs = DaskInputs.of(X)
        if groups is not None:
            raise ValueError(
                "expected no groups where X is a Dask collection, got some: fit to a sample of "
                "whole groups that is in memory, or set leave_one_out=False and give none"
            )
        remember_columns(self, X)
        labels = column_or_1d(on_client(y, inputs, "y"))
        if len(labels) != len(inputs):
            raise ValueError(f"expected {len(inputs)} labels, one a row of X, got {len(labels)}")
        return inputs, labels, on_client(sample_weight, inputs, "sample_weight")

    def _fit_at(self, problems: Problems, C: float) -> None:
        """Fit weights and links, and keep them."""
        data, groups = problems.at(C), problems.groups
        fit, far = self._fit_once(data, groups)
        held_ends = bool(far.any())
        if held_ends:  # far rows may have moved the mean of the inputs away from all others
            data = data.centred_on(~far.to(data.weight.device))
            fit, far = self._fit_once(data, groups, held_ends=True)
            if n_far := int(far.sum()):
                warn_caller(
                    f"{n_far} of {len(far)} rows have scores far out from the rest, and the "
                    "link is held constant there: look at these rows, or transform columns that "
                    "have long tails"
                )
        self._keep(fit, data, held_ends)
        self._warn(fit, data)

    def _fit_once(
        self,
        data: LinearScores,
        groups: Tensor | None,
        *,
        held_ends: bool = False,
    ) -> tuple[LinkFit | JointFit, Tensor]:
        """The fit, and the rows whose scores lie so far out that the period was not made for them.

        The latter of shape (n,); none where c is given, or a is and with it the paper's recipe.
        """
        far = torch.zeros(len(data.weight), dtype=torch.bool)
        if self.joint_:
            joint = fit_joint_links(
                data,
                self._priors.joint_family,
                tol=self.tol,
                max_iter=self.max_iter,
                groups=groups,
                held_out=self.leave_one_out,
            )
            if self.c is None:
                far = (joint.scores.cpu().abs() > joint.prior.kernel.edge).any(dim=0)
            return joint, far

        weight = data.weight.cpu()

        def prior_of(scores: Tensor) -> SourcePrior[TrigonometricKernel]:
            prior = self._priors.first(scores, weight)
            if self._priors.robust:
                far.logical_or_(scores.abs() > prior.kernel.edge)
            return prior

        noise, seed = self._noise()
        fit = fit_links(
            data,
            Bernoulli(self.loss),
            prior_of,
            noise,
            tol=self.tol,
            max_iter=self.max_iter,
            ordered=self.n_samples is None,
            family=self._priors.family if self._priors.chosen else None,
            held_out=LeaveOneOut(data, seed, groups) if self.leave_one_out else None,
            held_ends=held_ends,
            progress=bool(self.verbose),
        )
        return fit, far

    @by_blocks
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """The log odds of each class against the rest, nu averaged over its posterior.

        In a joint model the sources at the mode, of which the probabilities are the softmax.

        Parameters
        ----------
        X : array-like of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n,) for two classes, else (n, n_classes)

        Warns
        -----
        UserWarning
            If a score lies outside the kernel's period.
        """
        return self._log_odds(X)

    @by_blocks
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The probabilities of the classes, nu averaged over its posterior: of (n, n_classes).

        For more than two classes those of one-vs-rest are scaled to sum to 1; those of a joint
        model are at the mode of the posterior.
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
        positive = odds if self.joint_ else log_expit(odds)
        return log_softmax(positive, axis=1)

    @by_blocks
    def scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """The scores that links act on: of shape (n,) for two classes, else (n, n_classes)."""
        check_is_fitted(self)
        inputs = validate_data(self, X, reset=False, dtype=np.float64, accept_sparse="csr")
        scores = centred_scores(inputs, self.coef_, self.centre_).T
        return scores[:, 0] if len(self.coef_) == 1 else scores

    @by_blocks
    def predict(self, X: ArrayLike) -> NDArray:
        """The most probable class, of shape (n,)."""
        odds = self._log_odds(X)
        return self.classes_[(odds > 0).astype(int) if odds.ndim == 1 else odds.argmax(axis=1)]

    @property
    def _priors(self) -> LinkPriors:
        return LinkPriors(self.prior, self.n_basis, self.a, self.c, self.variance, self.gamma)

    def _noise(self) -> tuple[Tensor, int]:
        """Normal numbers that become draws, of shape (S, any), and a seed for the rest."""
        width = self._priors.n_parameters
        if self.n_samples is None:
            return even_normals(_DRAWS, width), 0
        seed = int(check_random_state(self.random_state).randint(2**31))
        generator = torch.Generator().manual_seed(seed)
        shape = (self.n_samples, width)
        return torch.randn(shape, dtype=torch.float64, generator=generator), seed

    @property
    def _together(self) -> bool:
        """Whether many classes make one model."""
        usual = self.loss is None or isinstance(self.loss, LogLoss)
        return self.multi_class == "joint" and self.prior == "isgp" and usual

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _keep(self, fit: LinkFit | JointFit, data: LinearScores, held_ends: bool) -> None:
        loss = Bernoulli(self.loss).loss
        link_of = partial(FittedLink.of, loss=loss, weight=data.weight.cpu(), held_ends=held_ends)
        scores = fit.scores.cpu()
        if isinstance(fit, JointFit):
            self.links_ = [
                link_of(posterior, x=x)
                for posterior, x in zip(_marginals(fit), scores, strict=True)
            ]
            self.n_iter_ = len(fit.history)
            history = {"log_evidence": [torch.tensor([value]) for value in fit.history]}
        else:
            chance = self.n_samples is not None
            self.links_ = [
                link_of(posterior, x=x, draws=draws, chance=chance)
                for posterior, draws, x in zip(fit.posteriors, fit.draws, scores, strict=True)
            ]
            self.n_iter_ = len(fit.history["log_evidence"])
            history = fit.history
        self.__dict__.pop("link_", None)  # of an earlier fit
        if len(self.links_) == 1:
            self.link_ = self.links_[0]
        slopes = np.array([link.slope for link in self.links_])
        self.coef_ = slopes[:, None] * fit.beta.cpu().numpy()
        self.centre_ = data.centre.cpu().numpy()
        self.intercept_ = -self.coef_ @ self.centre_
        self.converged_ = not fit.unsettled
        self.history_ = {
            name: torch.stack(rows).cpu().numpy() if rows else np.empty((0, len(fit.beta)))
            for name, rows in history.items()
        }

    def _warn(self, fit: LinkFit | JointFit, data: LinearScores) -> None:
        if fit.unsettled:
            # Rounds have no part in the fit with the fixed link.
            without = fit.unsettled in ((FIXED_LINK,), (SOFTMAX,))
            rounds = "" if without else f"raise max_iter={self.max_iter}, "
            warn_caller(
                f"not converged: {'; '.join(fit.unsettled)}. To mend it: {rounds}scale the inputs, "
                "or lower C",
                ConvergenceWarning,
            )
        if data.ridge:
            return
        below = [
            torch.where(labels == 0, x, -math.inf).max()
            < torch.where(labels == 1, x, math.inf).min()
            for x, labels in zip(fit.scores, data.labels, strict=True)
        ]
        apart = torch.stack(below).tolist()
        if any(apart):
            warn_caller(
                f"{sum(apart)} of {len(apart)} problems can be separated without an error: their "
                f"likelihood is largest at infinite weights, and what tol={self.tol} stopped at is "
                "no maximum. A finite C has one",
                ConvergenceWarning,
            )

    def _log_odds(self, X: ArrayLike) -> NDArray[np.float64]:
        scores = self._scores(X)
        if self.joint_:
            return np.stack(
                [
                    link.posterior.prior.source(link.within(x), link.posterior.mode).numpy()
                    for link, x in zip(self.links_, scores, strict=True)
                ],
                axis=1,
            )
        odds = [
            link.log_odds(link.within(x))[0].numpy()
            for link, x in zip(self.links_, scores, strict=True)
        ]
        return odds[0] if len(odds) == 1 else np.stack(odds, axis=1)

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """The scores of every problem, of shape (K, n)."""
        check_is_fitted(self)
        inputs = validate_data(self, X, reset=False, dtype=np.float64, accept_sparse="csr")
        if (largest := float(max(inputs.max(), -inputs.min()))) > _SIZES[1]:
            raise ValueError(f"expected inputs of at most {_SIZES[1]}, got {largest:.3g}")
        scores = centred_scores(inputs, self.coef_, self.centre_)
        edges = np.array([link.edge for link in self.links_])
        outside = int((np.abs(scores) > edges[:, None]).any(axis=0).sum())
        if outside:
            warn_caller(
                f"{outside} of {scores.shape[1]} inputs have a score outside [-1/c, 1/c], where "
                "the kernel's period ends: the learned link says nothing there",
            )
        return scores


def _device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (AssertionError, RuntimeError) as error:  # what PyTorch raises, by kind of device
        raise ValueError(
            f"expected a device that this PyTorch can use, got device={name!r}: {error}"
        ) from error


def _group_numbers(groups: ArrayLike | None, n: int) -> NDArray[np.int64] | None:
    """The groups as numbers 0, 1, ..., of shape (n,)."""
    if groups is None:
        return None
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(f"expected groups of shape ({n},), got {labels.shape}")
    numbers = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    if numbers.max() == 0:
        raise ValueError("expected at least two groups, got one: nothing is left without it")
    return numbers


def _marginals(fit: JointFit) -> list[Posterior]:
    """The posterior of each source of a joint model."""
    return [
        Posterior(
            prior=fit.prior,
            likelihood=Bernoulli(),
            mode=mode,
            root=torch.linalg.qr(rows.T, mode="r").R.T,  # of the marginal covariance
            log_evidence=fit.log_evidence,
            evidence_bound=math.nan,
            least_curvature=fit.least_curvature,
            converged=not fit.unsettled,
            n_iter=len(fit.history),
        )
        for mode, rows in zip(fit.mode, fit.root.split(fit.mode.shape[1]), strict=True)
    ]
