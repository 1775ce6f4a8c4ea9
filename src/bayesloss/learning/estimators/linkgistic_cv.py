r"""Linkgistic regression that chooses its penalty by scores that the weights have not seen.

Cross-validation would refit on every fold for every C. Links, however, are fitted to approximate
leave-one-out scores (:mod:`bayesloss.learning.weights.leave_one_out`), which already give

    loss(C) = -mean_n log p(y_n | x_n^(-n)),

with x_n^(-n) the score of case n under weights fitted without it, or without its group, and p the
posterior mean under a link fitted to all these scores: a smooth function of one variable can hardly
overfit. From the strongest penalty to the weakest, each fit has the fixed link and starts at the
one before; a link with one stiff prior, or the given one, scores it. Only at the chosen C is all
fitted.

In a joint model of K classes, scores are shifted by the Newton step of one class at a time. Only
differences of the classes' weights matter, so the others take back a share 1/K of a common step,
exact if all classes are alike. The loss is that of a softmax on the best common scale.
"""

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval
from torch import Tensor

from bayesloss.learning.data.estimator_base import all_or_nothing
from bayesloss.learning.data.hermite import moved
from bayesloss.learning.estimators.linkgistic import LinkgisticClassifier
from bayesloss.learning.estimators.linkgistic_fit import Problems, Settings
from bayesloss.learning.links.em import fit_links
from bayesloss.learning.links.link_model import LinkModel
from bayesloss.learning.links.multinomial import common_scale, fit_softmax
from bayesloss.learning.links.tables import enough_nodes, expected_log_probabilities
from bayesloss.learning.weights.leave_one_out import LeaveOneOut
from bayesloss.learning.weights.linear_scores import LinearScores
from bayesloss.learning.weights.weight_search import WeightFit, fit_fixed_link
from bayesloss.proper_losses import ProperLoss

_RANGE = (1e-4, 1e4)  # of C, as in scikit-learn
_STIFF = 3  # the place, in the family, of the prior that scores the path
_PATIENCE = 2  # how many weaker penalties in a row are tried that are no better


class LinkgisticClassifierCV(LinkgisticClassifier):
    """Linkgistic regression that chooses its penalty by approximate leave-one-out log loss.

    Like scikit-learn's ``LogisticRegressionCV``, but without folds and refits. All else is as in
    :class:`LinkgisticClassifier`; links are always fitted to leave-one-out scores.

    Parameters
    ----------
    Cs : int or array-like of float, default=10
        Inverse penalties to choose from, or how many, evenly spaced in logarithm from 1e-4 to 1e4.
    prior, loss, n_basis, a, c, variance, gamma, multi_class, class_weight : optional
    tol, max_iter, n_samples, device, verbose, random_state : optional
        As for :class:`LinkgisticClassifier`.

    Attributes
    ----------
    C_ : float
        The value of the least loss, for all classes. If it is an end of ``Cs_``, try values beyond.
    Cs_, scores_ : ndarray of shape (n_Cs,)
        All values, ascending, and minus the leave-one-out log loss of each, in nats per case,
        averaged over one-vs-rest classes; NaN if not tried, since two in a row were no better.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from bayesloss import LinkgisticClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LinkgisticClassifierCV(Cs=5).fit(scale(X), y)
    >>> model.Cs_.tolist(), 0.01 <= model.C_ <= 1
    ([0.0001, 0.01, 1.0, 100.0, 10000.0], True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: allowed
        for name, allowed in LinkgisticClassifier._parameter_constraints.items()
        if name not in ("C", "leave_one_out")
    } | {"Cs": [Interval(Integral, 1, None, closed="left"), "array-like"]}

    leave_one_out = True

    def __init__(
        self,
        *,
        Cs: int | ArrayLike = 10,
        prior: str = "isgp",
        loss: ProperLoss | None = None,
        n_basis: int | None = None,
        a: float | None = None,
        c: float | None = None,
        variance: float | None = None,
        gamma: float = 0.01,
        multi_class: str = "joint",
        class_weight: dict[Any, float] | str | None = None,
        tol: float = 1e-4,
        max_iter: int = 30,
        n_samples: int | None = None,
        device: str = "cpu",
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.Cs = Cs
        self.prior = prior
        self.loss = loss
        self.n_basis = n_basis
        self.a = a
        self.c = c
        self.variance = variance
        self.gamma = gamma
        self.multi_class = multi_class
        self.class_weight = class_weight
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
        """Choose the penalty, and fit weights and links.

        Parameters, errors and warnings are as for :meth:`LinkgisticClassifier.fit`, with a
        ValueError also if a value of ``Cs`` is not positive.
        """
        self._validate_params()
        self.Cs_ = _strengths(self.Cs)
        with all_or_nothing(self):
            problems = self._read(X, y, sample_weight, groups)
            losses = self._path(problems)
            self.scores_ = -losses
            self.C_ = float(self.Cs_[np.nanargmin(losses)])
            self._fit_at(problems, self.C_)
        return self

    def _path(self, problems: Problems) -> NDArray[np.float64]:
        """The mean held-out log loss at each C, of shape (n_Cs,)."""
        losses_of = _joint_losses if self.joint_ else _losses
        settings, fit = Settings.of(self), None
        means = np.full(len(self.Cs_), np.nan)
        for i, C in enumerate(self.Cs_):
            data = problems.at(C)
            losses, fit = losses_of(data, problems.groups, settings, fit)
            means[i] = float(data.weight @ losses) / data.total
            if i - np.nanargmin(means) == _PATIENCE:
                break
        return means


def _losses(
    data: LinearScores, groups: Tensor | None, settings: Settings, before: WeightFit | None
) -> tuple[Tensor, WeightFit]:
    """Held-out losses with a link for each class, and the fit with the fixed link."""
    weight, priors, loss = data.weight.cpu(), settings.priors, settings.likelihood.loss
    tol = settings.model.tol
    fixed, _ = fit_fixed_link(data, loss, tol, before)
    model = LinkModel(
        settings.likelihood,
        lambda x: priors.first(x, weight, member=_STIFF),
        settings.noise,
        ordered=not settings.chance,
    )
    out = LeaveOneOut(data, settings.seed, groups)
    fit = fit_links(data, model, tol=tol, max_iter=0, leave_one_out=out, fixed=fixed)
    losses = torch.zeros_like(data.weight)
    tables = [
        expected_log_probabilities(q.prior, loss, draws, enough_nodes(q.prior))
        for q, draws in zip(fit.posteriors, fit.draws, strict=True)
    ]
    for table, x, y in zip(moved(tables, losses.device), fit.seen, data.labels, strict=True):
        losses -= table(x, y)[0] / len(data.labels)
    return losses, fixed


def _joint_losses(
    data: LinearScores, groups: Tensor | None, settings: Settings, before: WeightFit | None
) -> tuple[Tensor, WeightFit]:
    """The same for one model of all classes."""
    fit, _ = fit_softmax(data, settings.model.tol, before)
    p = torch.softmax(fit.scores, dim=0)
    slopes = list(zip(-p, 1 - p, strict=True))
    alone = LeaveOneOut(data, 0, groups).held_out_scores(fit.scores, slopes)
    seen = torch.lerp(alone, fit.scores, 1 / len(data.labels))
    scale = common_scale(seen, torch.zeros_like(fit.offset), data)
    return -(data.labels * torch.log_softmax(scale * seen, dim=0)).sum(0), fit


def _strengths(Cs: int | ArrayLike) -> NDArray[np.float64]:
    if isinstance(Cs, Integral):
        return np.geomspace(*_RANGE, int(Cs))
    values = np.sort(np.asarray(Cs, dtype=np.float64))
    if values.ndim != 1 or len(values) == 0 or not (values > 0).all():
        raise ValueError(f"expected a number of Cs, or positive values of C, got Cs={Cs!r}")
    return values
