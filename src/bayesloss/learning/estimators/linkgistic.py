r"""Linkgistic regression: a generalised linear model whose link is learned (W&N section 4.2).

    y_n | z_n ~ Bernoulli(u(nu(x_n))),   x_n = beta . (z_n - mean z),   nu ~ an ISGP or a GP,

eq. (12), with u the inverse canonical link of a proper loss. EM alternates between the Laplace
posterior of nu given the scores x (E-step) and the weights beta given that posterior (M-step), each
about as costly as a logistic regression. Here are parameters and predictions; the fit is in
:mod:`bayesloss.learning.estimators.linkgistic_fit`.
"""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from bayesloss.arrays import Array, Numbers
from bayesloss.learning.data.estimator_base import all_or_nothing, by_blocks
from bayesloss.learning.data.inputs import centred_scores
from bayesloss.learning.estimators.calibrated_fit import fit_calibrated_links
from bayesloss.learning.estimators.linkgistic_fit import (
    SIZES,
    Problems,
    Settings,
    fit_problems,
    read_problems,
)
from bayesloss.learning.estimators.penalty_path import held_out_losses, strengths
from bayesloss.learning.inference.likelihoods import Bernoulli
from bayesloss.learning.sources.priors import PriorName
from bayesloss.proper_losses import LogLoss, ProperLoss
from bayesloss.threads import on_one_thread
from bayesloss.warnings import warn_caller, warn_unconverged

LinkName = Literal["evidence", "calibrated"]


@on_one_thread
class LinkgisticClassifier(ClassifierMixin, BaseEstimator):
    """Logistic regression with a learned link.

    The log odds are a curve nu of the score, a weighted sum of the inputs. Curve and weights are
    learned together, and the curve has a posterior band. Inputs are not rescaled. The paper's
    recipe (W&N section 5), which leaves c open, is ``a=1.2``, ``leave_one_out=False``,
    ``multi_class="ovr"``, ``n_samples=64``, ``C=inf``.

    Parameters
    ----------
    link : {"evidence", "calibrated"}, default="evidence"
        "evidence": under a prior that parameters or the evidence choose, by leave-one-out scores.
        "calibrated": a :class:`~bayesloss.LinkCalibrator`'s curve of the scores of folds
        (:mod:`bayesloss.learning.links.calibrated_link`), each class against the rest; of the other
        parameters class_weight, C, tol, max_iter and device count.
    prior : {"isgp", "gp"}, default="isgp"
        The prior of nu: an integrated squared Gaussian process, whose curves all increase, or a
        Gaussian process, whose curves may also decrease.
    loss : ProperLoss, default=None
        Its canonical link, onto all real numbers, takes probabilities to nu. None for the log loss.
    n_basis : int or None, default=None
        Basis functions of nu, even, at most 4096; None for 64 if ``a`` is given, else 32.
    a : float or None, default=None
        Smoothness of nu, above 1: the larger, the smoother. None chooses it for each link by the
        evidence, and under "isgp" also how far nu strays from a straight line
        (:class:`~bayesloss.learning.sources.priors.CentredISGP`), or is the paper's 1.2 under
        "isgp" with a given ``variance``.
    c : float or None, default=None
        nu is learned for scores from -1/c to 1/c, one period of the kernel. None makes this twice
        as wide as the scores of a logistic regression; if ``a`` is None, too, a few far-out scores
        do not count, and the link is constant beyond the period, with a warning.
    variance : float or None, default=None
        Under "isgp" the prior mean of the slope of nu; None for 1. Under "gp" the prior variance of
        nu; None for the mean square of a logistic regression's scores.
    gamma : float, default=0.01
        Prior precision of the intercept of nu.
    leave_one_out : bool, default=True
        Whether links are fitted to approximate leave-one-out scores, or a joint model's to those of
        folds. Fitted to training scores, as in the paper, they are overconfident, the more so
        the fewer rows per column.
    multi_class : {"joint", "ovr"}, default="joint"
        Whether more than two classes are one model (:mod:`bayesloss.learning.links.joint`), or each
        is fitted against the rest, as in the paper, and as always under "gp" or other losses.
    class_weight : dict, "balanced" or None, default=None
    C : float, "auto" or array-like of float, default=1.0
        Inverse strength of the L2 penalty, as in scikit-learn; ``inf`` for none, as in the paper.
        Of several values that of the least log loss in ten folds, with groups whole, of weights
        under the fixed link (:mod:`bayesloss.learning.estimators.penalty_path`); "auto" has ten,
        evenly spaced in logarithm from 1e-4 to 1e4. Warns if it is the last of all.
    tol : float, default=1e-4
        EM ends when a round changes the penalised log evidence by less, in nats per case; the
        logistic regression before it, when derivatives of the mean log likelihood are less.
    max_iter : int, default=30
        The largest number of M-steps.
    n_samples, random_state : int or None, default=None
        Random draws that represent the posterior, and their seed or RandomState. None for 64 fixed,
        evenly spread points, more exact than some thousand random draws.
    device : str, default="cpu"
        The PyTorch device of inputs and scores.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights on the scale of a logistic regression: nu has mean slope 1 over the training data.
    C_ : float
        The value of C, for all classes.
    Cs_, scores_ : ndarray of shape (n_Cs,)
        All values, ascending, and minus the cross-validated log loss of each, in nats per case,
        averaged over one-vs-rest classes; NaN if not tried, since two in a row were no better, or
        only one was given.
    centre_, intercept_ : ndarray of shape (n_features,), and (1,) or (n_classes,)
        The mean of the training inputs, and ``-coef_ @ centre_``: scores are ``X @ coef_.T +
        intercept_``. A logistic regression's intercept is this plus nu(0), ``link_.source(0.0)``.
    link_, links_ : FittedLink, list of FittedLink
        The link of two classes; all links. In a joint model ``source`` is the curve of a class, and
        ``inverse_link`` its probability where the other curves sum to zero.
    n_iter_, converged_, joint_ : int, bool, bool
        E-steps, at most ``max_iter`` + 1; whether EM converged; whether the model is joint.
    history_ : dict of ndarray of shape (rounds, n_links)
        "log_evidence": Laplace's approximation after each E-step, in nats. "expected_before",
        "expected": the penalised expected log likelihood around each M-step, in nats per case.
        "change": the relative change of the weights. NaN without an M-step. A joint model has only
        "log_evidence", of shape (rounds, 1), and keeps its best round.
    n_features_in_, feature_names_in_ : int, ndarray of str

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from bayesloss import LinkgisticClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LinkgisticClassifier().fit(scale(X), y)
    >>> low, high = model.link_.inverse_link_band([-1.0, 0.0, 1.0], level=0.9)
    >>> bool(model.score(scale(X), y) > 0.98), bool((low < high).all())
    (True, True)
    >>> LinkgisticClassifier(C=[1e-4, 0.1, 100]).fit(scale(X), y).C_
    0.1
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "link": [StrOptions(set(get_args(LinkName)))],
        "prior": [StrOptions(set(get_args(PriorName)))],
        "loss": [ProperLoss, None],
        # An E-step factorises matrices with as many rows.
        "n_basis": [Interval(Integral, 2, 4096, closed="both"), None],
        "a": [Interval(Real, 1, None, closed="neither"), None],
        "c": [Interval(Real, 0, None, closed="neither"), None],
        "variance": [Interval(Real, 0, None, closed="neither"), None],
        "gamma": [Interval(Real, 0, None, closed="neither")],
        "leave_one_out": ["boolean"],
        "multi_class": [StrOptions({"joint", "ovr"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "C": [Interval(Real, 0, None, closed="right"), StrOptions({"auto"}), "array-like"],
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
        link: LinkName = "evidence",
        prior: PriorName = "isgp",
        loss: ProperLoss | None = None,
        n_basis: int | None = None,
        a: float | None = None,
        c: float | None = None,
        variance: float | None = None,
        gamma: float = 0.01,
        leave_one_out: bool = True,
        multi_class: Literal["joint", "ovr"] = "joint",
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        C: Numbers | Literal["auto"] = 1.0,
        tol: float = 1e-4,
        max_iter: int = 30,
        n_samples: int | None = None,
        device: str = "cpu",
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.link = link
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
        """Fit weights and links; return self.

        Warns if EM did not converge, an E-step found no mode, or, without a penalty, a class can be
        separated from the rest, so that the optimum is at infinity (ConvergenceWarning); if scores
        leave the range of a given c, or a few lie far from the rest (UserWarning).

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n, n_features)
            Sparse inputs are never made dense; Dask collections are read block by block
            (:mod:`bayesloss.learning.data.dask_inputs`).
        y, sample_weight : array-like of shape (n,)
            Labels of at least two kinds, and, optional, how many times each row counts.
        groups : array-like of shape (n,), optional
            Which rows belong together, such as one patient's: they are left out together for
            leave-one-out scores. Without groups each row is left out with its copies.

        Raises
        ------
        ValueError, RuntimeError
            If there is one class only; inputs are not finite or the largest is outside [1e-100,
            1e100]; c is a thousand times too large or small for the scores; the loss has a bounded
            link; PyTorch cannot use the device, or it is not the CPU and inputs are sparse or
            Dask's; groups come with sparse inputs of over 2048 columns; Dask's blocks have unknown
            sizes or do not match those of y. If Dask's workers died or ran out of memory.
        """
        self._validate_params()
        with all_or_nothing(self):
            self.Cs_ = strengths(self.C)
            Bernoulli(self.loss)  # refuses bounded links
            self.classes_, problems = read_problems(self, X, y, sample_weight, groups)
            if self.link == "calibrated":
                self._fit_calibrated(problems)
                return self
            usual = self.loss is None or isinstance(self.loss, LogLoss)
            several = len(self.classes_) > 2 and self.multi_class == "joint"
            self.joint_ = several and self.prior == "isgp" and usual
            losses = np.array([np.nan])
            if len(self.Cs_) > 1:
                losses = held_out_losses(problems, self.Cs_, self.joint_, Settings.of(self))
            self.scores_ = -losses
            self.C_ = float(self.Cs_[0 if len(losses) == 1 else np.nanargmin(losses)])
            self._fit_at(problems, self.C_)
        return self

    def _fit_at(self, problems: Problems, C: float) -> None:
        fit, centre, links = fit_problems(problems, C, self.joint_, Settings.of(self))
        self._keep(links, fit.beta, centre, fit.unsettled)
        self.history_ = {
            name: torch.stack(rounds).cpu().numpy() if rounds else np.empty((0, len(fit.beta)))
            for name, rounds in fit.history.items()
        }
        self.n_iter_ = len(self.history_["log_evidence"])

    def _fit_calibrated(self, problems: Problems) -> None:
        """The calibrator's link."""
        self.joint_ = False
        fit = fit_calibrated_links(problems, self.Cs_, tol=self.tol, max_iter=self.max_iter)
        self.scores_ = -fit.losses
        self.C_ = fit.C
        self._keep(fit.links, fit.beta, fit.centre, fit.unsettled)
        self.history_ = {"log_evidence": fit.log_evidences}
        self.n_iter_ = len(fit.log_evidences)
        if fit.unsettled:
            warn_unconverged(
                f"not converged: {'; '.join(fit.unsettled)}. To mend it: raise "
                f"max_iter={self.max_iter}, scale the inputs, or lower C"
            )

    def _keep(self, links: Sequence, beta: Tensor, centre: Tensor, unsettled: Sequence) -> None:
        self.links_: list[Any] = list(links)
        self.__dict__.pop("link_", None)  # of an earlier fit
        if len(self.links_) == 1:
            self.link_ = self.links_[0]
        slopes = np.array([link.slope for link in self.links_])
        self.coef_ = slopes[:, None] * beta.cpu().numpy()
        self.centre_ = centre.cpu().numpy()
        self.intercept_ = -self.coef_ @ self.centre_
        self.converged_ = not unsettled

    @by_blocks
    def decision_function(self, X: ArrayLike) -> Array:
        """The log odds of each class against the rest, averaged over the posterior of nu.

        Of shape (n,) for two classes, else (n, n_classes). In a joint model, the curves at the
        mode, whose softmax are the probabilities. Warns of scores so far out that nothing was
        learned there, unless the curve increases and has come within 0.01 of certainty before.
        """
        scores = self.scores(X).T.reshape(len(self.links_), -1)
        if self.link == "calibrated":
            pairs = zip(self.links_, scores, strict=True)
            odds = np.stack([link.log_odds(x) for link, x in pairs])
        else:
            self._warn_of_far(scores)
            odds = self._odds(scores)
        return odds[0] if len(odds) == 1 else np.ascontiguousarray(odds.T)

    def _odds(self, scores: Array) -> Array:
        """The log odds of each link at its scores, both of shape (n_links, n)."""
        odds = [
            link.posterior.prior.source(link.within(x), link.posterior.mode).numpy()
            if self.joint_
            else link.log_odds(link.within(x))[0].numpy()
            for link, x in zip(self.links_, scores, strict=True)
        ]
        return np.stack(odds)

    def _warn_of_far(self, scores: Array) -> None:
        edges = np.array([[link.edge] for link in self.links_])
        far = scores[:, (np.abs(scores) > edges).any(axis=0)]
        if not far.size:
            return
        odds = self._odds(far.clip(-edges, edges))
        p = softmax(odds, axis=0) if self.joint_ else expit(odds)
        unsure = (np.where(far > 0, 1 - p, p) > 0.01) | (self.prior == "gp")
        unsure &= np.abs(far) > edges
        if n := int(unsure.any(axis=0).sum()):
            k = int(unsure.any(axis=1).argmax())
            link, whose = self.links_[k], f" of {self.classes_[k]}" if len(edges) > 1 else ""
            warn_caller(
                f"{n} of {scores.shape[1]} inputs have a score{whose} beyond ±{link.edge:.3g}, "
                f"where training scores lie between {link.low:.3g} and {link.high:.3g}: nothing "
                "was learned there"
            )

    @by_blocks
    def predict_proba(self, X: ArrayLike) -> Array:
        """The probabilities of the classes, of shape (n, n_classes).

        Averaged over the posterior of nu; in a joint model, at its mode. One-vs-rest probabilities
        of more than two classes are scaled to sum to 1.
        """
        odds = self.decision_function(X)
        if odds.ndim == 1:
            return np.stack([expit(-odds), expit(odds)], axis=1)
        if self.joint_:
            return softmax(odds, axis=1)
        positive = expit(odds)
        return positive / positive.sum(axis=1, keepdims=True)

    @by_blocks
    def predict_log_proba(self, X: ArrayLike) -> Array:
        """The logarithms of the probabilities, exact also where those are tiny."""
        odds = self.decision_function(X)
        if odds.ndim == 1:
            return np.stack([log_expit(-odds), log_expit(odds)], axis=1)
        return log_softmax(odds if self.joint_ else log_expit(odds), axis=1)

    @by_blocks
    def predict(self, X: ArrayLike) -> NDArray:
        """The most probable class, of shape (n,)."""
        odds = self.decision_function(X)
        return self.classes_[(odds > 0).astype(int) if odds.ndim == 1 else odds.argmax(axis=1)]

    @by_blocks
    def scores(self, X: ArrayLike) -> Array:
        """The scores that links act on: of shape (n,) for two classes, else (n, n_classes)."""
        check_is_fitted(self)
        inputs = validate_data(self, X, reset=False, dtype=np.float64, accept_sparse="csr")
        if (largest := float(max(inputs.max(), -inputs.min()))) > SIZES[1]:
            raise ValueError(f"expected inputs of at most {SIZES[1]}, got {largest:.3g}")
        scores = centred_scores(inputs, self.coef_, self.centre_).T
        return scores[:, 0] if len(self.coef_) == 1 else scores

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
