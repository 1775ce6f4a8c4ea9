"""The link of the paper's linkgistic regression, as its user chooses it (W&N section 4.2)."""

from numbers import Integral, Real
from typing import Any, ClassVar, get_args

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from bayesloss.learning.sources.priors import PriorName
from bayesloss.proper_losses import ProperLoss


class PaperLink(BaseEstimator):
    """The link of W&N's recipe, for the parameter ``link`` of a LinkgisticClassifier.

    Its posterior is Laplace's approximation, given the scores of the training data, and EM takes
    turns between it and the weights (:mod:`bayesloss.learning.links.em`). With few rows a column
    such links are overconfident. The defaults are those of the paper's experiments, which leave c
    open.

    Parameters
    ----------
    prior : {"isgp", "gp"}, default="isgp"
        The prior of nu: an integrated squared Gaussian process, whose curves all increase, or a
        Gaussian process, whose curves may also decrease.
    loss : ProperLoss, default=None
        Its canonical link, onto all real numbers, takes probabilities to nu. None for the log loss.
    n_basis : int or None, default=None
        Basis functions of nu, even, at most 4096; None for 64 if ``a`` is given, else 32.
    a : float or None, default=1.2
        Smoothness of nu, above 1: the larger, the smoother. None chooses it for each link by the
        evidence, and under "isgp" also how far nu strays from a straight line
        (:class:`~bayesloss.learning.sources.priors.CentredISGP`), or is 1.2 under "isgp" with a
        given ``variance``.
    c : float or None, default=None
        nu is learned for scores from -1/c to 1/c, one period of the kernel. None makes this twice
        as wide as the scores of a logistic regression; if ``a`` is None, too, a few far-out scores
        do not count, and the link is constant beyond the period, with a warning.
    variance : float or None, default=None
        Under "isgp" the prior mean of the slope of nu; None for 1. Under "gp" the prior variance of
        nu; None for the mean square of a logistic regression's scores.
    gamma : float, default=0.01
        Prior precision of the intercept of nu.
    n_samples : int or None, default=64
        Random draws that represent the posterior. None for 64 fixed, evenly spread points, more
        exact than some thousand random draws.
    random_state : int, RandomState or None, default=0
        Of the draws.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesloss import LinkgisticClassifier, PaperLink
    >>> LinkgisticClassifier(link=PaperLink(prior="gp"), C=np.inf)
    LinkgisticClassifier(C=inf, link=PaperLink(prior='gp'))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "prior": [StrOptions(set(get_args(PriorName)))],
        "loss": [ProperLoss, None],
        # An E-step factorises matrices with as many rows.
        "n_basis": [Interval(Integral, 2, 4096, closed="both"), None],
        "a": [Interval(Real, 1, None, closed="neither"), None],
        "c": [Interval(Real, 0, None, closed="neither"), None],
        "variance": [Interval(Real, 0, None, closed="neither"), None],
        "gamma": [Interval(Real, 0, None, closed="neither")],
        "n_samples": [None, Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        prior: PriorName = "isgp",
        loss: ProperLoss | None = None,
        n_basis: int | None = None,
        a: float | None = 1.2,
        c: float | None = None,
        variance: float | None = None,
        gamma: float = 0.01,
        n_samples: int | None = 64,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.prior = prior
        self.loss = loss
        self.n_basis = n_basis
        self.a = a
        self.c = c
        self.variance = variance
        self.gamma = gamma
        self.n_samples = n_samples
        self.random_state = random_state
