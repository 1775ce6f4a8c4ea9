r"""Linkgistic regression: a generalised linear model whose link is learned (W&N section 4.2).

    y_n | z_n ~ Bernoulli(u(nu(x_n))),   x_n = beta . (z_n - mean z),   nu ~ an ISGP or a GP,

eq. (12), with u the inverse canonical link of a proper loss. Here are parameters and predictions.
Our own fit is a calibrated logistic regression, repeated
(:mod:`bayesloss.learning.estimators.calibrated_fit`); the paper's is an EM algorithm
(:mod:`bayesloss.learning.estimators.paper_fit`).
"""

from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from bayesloss.arrays import Array, Numbers, untensored
from bayesloss.learning.data.estimator_base import all_or_nothing, by_blocks
from bayesloss.learning.data.inputs import centred_scores
from bayesloss.learning.estimators.calibrated_fit import MultiClass, fit_calibrated_links
from bayesloss.learning.estimators.linkgistic_fit import LinkgisticFit, warn_of_unsettled
from bayesloss.learning.estimators.moved_parameters import with_moved_parameters
from bayesloss.learning.estimators.paper_fit import Recipe, fit_paper_links
from bayesloss.learning.estimators.paper_link import PaperLink
from bayesloss.learning.estimators.penalties import strengths
from bayesloss.learning.estimators.problems import SIZES, read_problems
from bayesloss.learning.links.alternation import Limits
from bayesloss.learning.sources.priors import GP
from bayesloss.threads import on_one_thread
from bayesloss.warnings import warn_caller


@on_one_thread
class LinkgisticClassifier(ClassifierMixin, BaseEstimator):
    """Logistic regression with a learned link.

    The log odds are a curve nu of the score, a weighted sum of the inputs. Curve and weights are
    learned together, and the curve has a posterior band. Inputs are not rescaled.

    It is a calibrated logistic regression, repeated: a :class:`~bayesloss.LinkCalibrator` is fitted
    to scores of rows that the weights have not seen, the weights are fitted again under its curve,
    and so on (:mod:`bayesloss.learning.links.alternation`). Folds are decided by what the rows
    hold, by neither order nor chance (:mod:`bayesloss.learning.data.folds`).

    Parameters
    ----------
    link : PaperLink or None, default=None
        None for the calibrator's curve. A :class:`~bayesloss.PaperLink` for W&N's recipe: a prior
        of nu and a loss of your choice, a posterior by Laplace's approximation, links fitted to
        training scores by EM, and each class against the rest. The recipe of their section 5 is
        ``LinkgisticClassifier(link=PaperLink(), C=np.inf)``.
    multi_class : {"auto", "joint", "ovr"}, default="auto"
        Whether more than two classes are one model (:mod:`bayesloss.learning.links.joint_link`), or
        each is fitted against the rest; "auto" for whichever gives held-out labels the less log
        loss.
    class_weight : dict, "balanced" or None, default=None
    C : float, "auto" or array-like of float, default=1.0
        Inverse strength of the L2 penalty, as in scikit-learn; ``inf`` for none, as in the paper.
        Of several values the strongest penalty that the log loss of held-out labels, with groups
        whole, under logistic regressions does not tell from the best, by one standard error of the
        difference; "auto" has ten, evenly spaced in logarithm from 1e-4 to 1e4. Warns if the best
        is the last of all.
    tol : float, default=1e-4
        The alternation ends when a round raises the log evidence of held-out labels by less, in
        nats per case, or by less than half a nat in all. Logistic regressions end when derivatives
        of the mean log likelihood are less than a tenth of it.
    max_iter : int, default=30
        The largest number of times that weights are fitted under a curve.
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
        All values, ascending, and minus the log loss of held-out labels of each, in nats per case,
        under logistic regressions; NaN if not tried, since two in a row were no better, or only one
        was given.
    centre_, intercept_ : ndarray of shape (n_features,), and (1,) or (n_classes,)
        The mean of the training inputs, and ``-coef_ @ centre_``: scores are ``X @ coef_.T +
        intercept_``. A logistic regression's intercept is this plus nu(0), ``link_.source(0.0)``.
    link_, links_ : object, list
        The link of two classes; all links. Each has ``source``, ``inverse_link`` and their bands,
        functions of scores. In a joint model ``source`` is the curve of a class, and
        ``inverse_link`` its probability where the other curves sum to zero.
    n_iter_, converged_, joint_ : int, bool, bool
        How often curves were fitted, at most ``max_iter`` + 1; whether the alternation converged;
        whether the model is joint.
    held_out_loss_ : float
        The log loss of held-out labels, in nats per case, in the round that is kept.
    history_ : dict of ndarray of shape (rounds, n_problems)
        "log_evidence" of the labels given held-out scores, in nats; NaN where there was no further
        round. A joint model is one problem.
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
        "link": [PaperLink, None],
        "multi_class": [StrOptions(set(get_args(MultiClass)))],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "C": [Interval(Real, 0, None, closed="right"), StrOptions({"auto"}), "array-like"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "device": [str],
        "verbose": ["verbose"],
    }

    @with_moved_parameters
    def __init__(
        self,
        *,
        link: PaperLink | None = None,
        multi_class: MultiClass = "auto",
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        C: Numbers | Literal["auto"] = 1.0,
        tol: float = 1e-4,
        max_iter: int = 30,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.link = link
        self.multi_class = multi_class
        self.class_weight = class_weight
        self.C = C
        self.tol = tol
        self.max_iter = max_iter
        self.device = device
        self.verbose = verbose

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit weights and links; return self.

        Warns if the alternation did not converge or, without a penalty, a class can be separated
        from the rest, so that the optimum is at infinity (ConvergenceWarning); if a few rows have
        scores far from the rest, which are left out of the fit (UserWarning).

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n, n_features)
            Sparse inputs are never made dense; Dask collections are read block by block
            (:mod:`bayesloss.learning.data.dask_inputs`).
        y, sample_weight : array-like of shape (n,)
            Labels of at least two kinds, and, optional, how many times each row counts.
        groups : array-like of shape (n,), optional
            Which rows belong together, such as one patient's: they are held out together. Without
            groups copies of a row are.

        Raises
        ------
        ValueError, RuntimeError
            If there is one class only; inputs are not finite or the largest is outside [1e-100,
            1e100]; several values of C, or groups, come with the paper's link; PyTorch cannot use
            the device, or it is not the CPU and inputs are sparse or Dask's; Dask's blocks have
            unknown sizes or do not match those of y. If Dask's workers died or ran out of memory.
        """
        self._validate_params()
        with all_or_nothing(self):
            self.Cs_ = strengths(self.C)
            if self.link is None:
                fit = self._fit_calibrated(X, y, sample_weight, groups)
            else:
                fit = self._fit_by_the_paper(self.link, X, y, sample_weight, groups)
            warn_of_unsettled(fit.unsettled, self.max_iter)
            self._keep(fit)
        return self

    def _fit_calibrated(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> LinkgisticFit:
        self.classes_, problems = read_problems(
            self, X, y, sample_weight, groups, merge_copies=True
        )
        return fit_calibrated_links(
            problems,
            self.Cs_,
            self.multi_class,
            Limits(tol=self.tol, max_iter=self.max_iter, progress=bool(self.verbose)),
        )

    def _fit_by_the_paper(
        self, link: PaperLink, X: Any, y: Any, sample_weight: Any, groups: Any
    ) -> LinkgisticFit:
        recipe = Recipe.of(link)
        if len(self.Cs_) > 1 or groups is not None:
            raise ValueError(
                "expected one value of C and no groups with a PaperLink, which holds nothing out, "
                f"got {len(self.Cs_)} values of C and "
                f"{'no groups' if groups is None else 'groups'}"
            )
        self.classes_, problems = read_problems(
            self, X, y, sample_weight, groups, merge_copies=False
        )
        return fit_paper_links(
            problems,
            float(self.Cs_[0]),
            recipe,
            tol=self.tol,
            max_iter=self.max_iter,
            progress=bool(self.verbose),
        )

    def _keep(self, fit: LinkgisticFit) -> None:
        """Take what is found of a fit."""
        self.joint_ = fit.joint
        self.C_ = fit.C
        self.scores_ = -np.array(fit.losses)
        self.held_out_loss_ = fit.held_out_loss
        self.history_ = fit.history
        self.n_iter_ = len(fit.history["log_evidence"])
        self.converged_ = not fit.unsettled
        self.links_: list[Any] = list(fit.links)
        self.__dict__.pop("link_", None)  # of an earlier fit
        if len(self.links_) == 1:
            self.link_ = self.links_[0]
        slopes = np.array([link.slope for link in self.links_])
        self.coef_ = slopes[:, None] * fit.beta.cpu().numpy()
        self.centre_ = fit.centre.cpu().numpy()

    @property
    def intercept_(self) -> Array:
        """What follows from weights and centre; it cannot be written to."""
        intercept: Array = -self.coef_ @ self.centre_
        intercept.flags.writeable = False
        return intercept

    @by_blocks
    def decision_function(self, X: ArrayLike) -> Array:
        """The log odds of each class against the rest, averaged over the posterior of nu.

        Of shape (n,) for two classes, else (n, n_classes). In a joint model, the curves at the
        mode, whose softmax are the probabilities. With a PaperLink, warns of scores so far out that
        nothing was learned there, unless the curve increases and has come within 0.01 of certainty
        before.
        """
        scores = self.scores(X).T.reshape(len(self.links_), -1)
        odds = np.stack([link.log_odds(x) for link, x in zip(self.links_, scores, strict=True)])
        if self.link is not None:
            self._warn_of_far(scores)
        return odds[0] if len(odds) == 1 else np.ascontiguousarray(odds.T)

    def _warn_of_far(self, scores: Array) -> None:
        edges = np.array([[link.edge] for link in self.links_])
        far = scores[:, (np.abs(scores) > edges).any(axis=0)]
        if not far.size:
            return
        at_edges = zip(self.links_, far.clip(-edges, edges), strict=True)
        p = expit(np.stack([link.log_odds(x) for link, x in at_edges]))
        falls = isinstance(self.links_[0].posterior.prior, GP)
        unsure = (np.where(far > 0, 1 - p, p) > 0.01) | falls
        unsure &= np.abs(far) > edges
        n_unsure = int(unsure.any(axis=0).sum())
        if n_unsure == 0:
            return
        k = int(unsure.any(axis=1).argmax())
        link = self.links_[k]
        whose = ""
        if len(edges) > 1:
            whose = f" of {self.classes_[k]}"
        warn_caller(
            f"{n_unsure} of {scores.shape[1]} inputs have a score{whose} beyond ±{link.edge:.3g}, "
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
        inputs = validate_data(
            self, untensored(X), reset=False, dtype=np.float64, accept_sparse="csr"
        )
        largest = float(max(inputs.max(), -inputs.min()))
        if largest > SIZES[1]:
            raise ValueError(f"expected inputs of at most {SIZES[1]}, got {largest:.3g}")
        scores = centred_scores(inputs, self.coef_, self.centre_).T
        return scores[:, 0] if len(self.coef_) == 1 else scores

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "leave_one_out" in state:
            raise ValueError(
                "expected a LinkgisticClassifier that this version of bayesloss has saved, got "
                "one of an earlier version, whose links are of another kind: fit it again, or "
                "load it with the version that saved it"
            )
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
