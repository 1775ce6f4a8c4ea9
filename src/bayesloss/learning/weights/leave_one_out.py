r"""Scores that data would have had, had the weights not seen them.

Weights fitted to few data per column tell the training labels apart better than they tell others.
A link fitted to the training scores takes that for the truth, and is overconfident. So links are
fitted to leave-one-out scores. One Newton step from the fit leaves a datum out:

    x_n - h_n s_n / (1 - h_n d_n),   h_n = z_n . H^-1 z_n,   H = sum_m d_m z_m z_m^T + 1/C,

where s_n is the slope of the log probability of the label of n in the score, d_n its expected
curvature, and inputs are centred. With a linear link and Gaussian noise this is exact.

Held out means held out. A datum that counts w times is left out with all its weight: w h_n stands
for h_n above. Equal rows are such a datum, see :mod:`bayesloss.learning.data.duplicates`; of rows
that are
alike by nature only so many are left out as one observation is worth, 1 + (w - 1) rho. And a group
of data is left out whole: with Z_g its inputs, W and D the diagonal matrices of its weights and its
weighted curvatures, and H_g = Z_g H^-1 Z_g^T, the scores without it are

    x_g - H_g (I - D H_g)^-1 W s_g = x_g - G G^T W s_g,   G = U V (I - Lambda)^-1/2,

where U U^T = H_g and U^T D U = V Lambda V^T, a matrix no larger than the number of columns. Lambda
is the share of what is known in each direction that only the group knows.

Sparse inputs may have so many columns that no matrix with a row for each is affordable. There h_n
comes from conjugate gradients, see :mod:`bayesloss.learning.weights.sketched_leverages`.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bayesloss.learning.data.duplicates import agreement
from bayesloss.learning.data.inputs import DenseInputs, Inputs, SparseInputs
from bayesloss.learning.weights.linear_scores import (
    LinearScores,
    Slopes,
    factor_of,
    gram,
    mean_curvature,
    sampled,
)
from bayesloss.learning.weights.sketched_leverages import sketched_leverages

__all__ = ["LeaveOneOut"]

_MANY = 4096  # data in a block of which the products are summed
_SKETCH = 64  # random directions in which leverages are first estimated, to a sixth or so
_LARGE = 0.05  # share of its own score that a datum makes up, above which it is computed exactly
_LARGEST = 0.99  # of such shares: one Newton step is not to be trusted farther
_CELLS = 2**23  # numbers in a block of groups, or in the roots that are held at a time
_NARROW = 1e-4  # share of the penalty in H, at least, where single precision does for the rest
_MODERATE = 1e15  # squares of what is smaller stay within single precision's range
_DRAWN = 4096  # data that H is estimated from, where there are more, and
_DRAWN_BY_COLUMN = 8  # so many a column at least: leverages come out to 5 per cent or so
_CHEAP = 2**28  # products, below which leverages are computed in every round
_STALE = 0.1  # a change of the curvatures after which H is formed anew
_DAMPING = 1e-2  # without a penalty, added to the diagonal of H in units in which that is 1


class LeaveOneOut:
    """Leave-one-out scores of several problems, round after round.

    Where it costs much, H is formed anew when curvatures have changed by a tenth. Until then
    h_n / (1 - h_n d_n), on which the datum's own curvature has no influence (for groups G G^T), is
    taken to fall as H rises on average: its data's part in proportion to the sum of the curvatures.
    Taken farther, that would make rounds of links and weights chase each other for ever.

    Parameters
    ----------
    data : LinearScores
    seed : int
        Of the directions of the sketch.
    groups : Tensor of int64 of shape (n,), optional
        Data of one number are left out together.

    Raises
    ------
    ValueError
        If groups, or inputs that are neither an array nor sparse, have too many columns.
    """

    def __init__(self, data: LinearScores, seed: int, groups: Tensor | None = None) -> None:
        self._data = data
        self._inputs, self._centre, self._seed = data.inputs, data.centre, seed
        n, d = data.inputs.shape
        self._wide = data.wide and not isinstance(data.inputs, DenseInputs)
        if self._wide and not (groups is None and isinstance(data.inputs, SparseInputs)):
            raise ValueError(
                "expected fewer columns where "
                + ("groups are" if groups is not None else "rows of blocks are")
                + f" held out, got {d}: bring them to a few hundred (TruncatedSVD), or set "
                "leave_one_out=False"
            )
        if d > n and not self._wide:  # as many coordinates as data will do
            every = data.inputs.dense(torch.arange(n, device=data.centre.device))
            reduced = torch.linalg.qr((every - data.centre).T, mode="r").R.T
            self._inputs, self._centre = DenseInputs(reduced), torch.zeros_like(reduced[0])
        self._groups = None if groups is None else _by_size(groups)
        self._rows = None
        if groups is None and bool((data.weight > 1).any()):
            numbers = data.inputs.equal()
            self._rows, self._n_rows = torch.from_numpy(numbers), int(numbers.max()) + 1
            self._rows = self._rows.to(data.centre.device)
        # For each problem: the curvatures of which H was formed, and the penalty's share of it; how
        # many of its copies a datum is left out with; h_n / (1 - h_n d_n) or the factors of groups.
        self._formed: dict[int, tuple[Tensor, Tensor]] = {}
        self._own: dict[int, Tensor] = {}
        self._leverage: dict[int, Tensor] = {}
        self._factors: dict[int, list[tuple[Tensor, Tensor]]] = {}
        self._shift: dict[int, Tensor] = {}  # of the scores, in the last call
        # By how much H rose since it was formed, on average; None where there is no curvature.
        self._ready: dict[int, Tensor | None] = {}
        self._largest = data.inputs.largest()
        self._moderate = self._largest < _MODERATE
        generator = torch.Generator().manual_seed(seed)
        shape = (0 if self._wide else len(self._centre), _SKETCH)  # none is seen where H is wide
        directions = torch.randn(shape, dtype=data.centre.dtype, generator=generator)
        self._directions = directions.to(data.centre.device) / math.sqrt(_SKETCH)
        columns = len(self._centre)
        self._n_drawn = max(_DRAWN, _DRAWN_BY_COLUMN * columns)
        # Products that form H, and those that see all data along its root or a sketch of it.
        products = min(n, self._n_drawn) * columns**2 + n * columns * min(columns, _SKETCH)
        self._cheap = not self._wide and products < _CHEAP
        self._preference = data.leverages() if not self._wide and n > self._n_drawn else None

    def __call__(
        self,
        problem: int,
        scores: Tensor,
        slopes: Slopes,
        strength: float = 1.0,
        step: float = 1.0,
    ) -> Tensor:
        """The scores without each datum, or its group, of shape (n,).

        Parameters
        ----------
        problem : int
        scores : Tensor of shape (n,)
        slopes : Tensor of shape (2, n), or two of shape (n,)
            Of the log probabilities of the labels 0 and 1 in the scores, where the weights were
            last fitted.
        strength : float, default=1
            How many times the penalty counted there.
        step : float, default=1
            The part of the way from the scores of the last call that the scores went to those
            where the weights were last fitted. What holds out a datum goes as far.
        """
        if problem not in self._ready:
            self.prepare({problem: slopes}, {problem: strength})
        share = self._ready.pop(problem)
        if share is None:
            return scores
        labels = self._data.labels[problem]
        shift = torch.where(labels == 1, slopes[1], slopes[0]).div_(strength * share)
        if self._groups is None:
            shift.mul_(self._leverage[problem]).mul_(self._own[problem])
        else:
            shift = _grouped(self._factors[problem], shift.mul_(self._data.weight))
        if step < 1:
            shift = torch.lerp(self._shift[problem], shift, step)
        self._shift[problem] = shift
        return scores - shift

    def prepare(
        self, slopes: Mapping[int, Slopes], strength: Mapping[int, float] | Sequence[float]
    ) -> None:
        """Form H for all problems that need it in this round.

        The host waits for the device of the data a few times, however many problems there are, and
        not at all in the calls for them that follow.

        Parameters
        ----------
        slopes : mapping of int to Tensor of shape (2, n), or two of shape (n,)
            For each problem that will be asked for next; see :meth:`__call__`.
        strength : mapping of int to float, or sequence of float
            Of their penalties.

        Raises
        ------
        torch.linalg.LinAlgError
            If an H is not positive definite.
        """
        # As if the penalty counted once, and all log probabilities less.
        curvatures = {k: mean_curvature(each).div_(strength[k]) for k, each in slopes.items()}
        totals = {k: self._data.weight @ curvature for k, curvature in curvatures.items()}
        changes = [self._change(k, curvatures[k], total) for k, total in totals.items()]
        both = torch.stack([torch.stack([*totals.values()]), torch.stack(changes)]).tolist()
        known = dict(zip(curvatures, zip(*both, strict=True), strict=True))
        self._ready.update({k: None for k, (total, _) in known.items() if total == 0})
        forming = [k for k, (total, change) in known.items() if total != 0 and change > _STALE]
        for k in forming:
            if self._groups is None and k not in self._own:
                self._own[k] = self._copies(self._data.labels[k], slopes[k])
        together = max(1, _CELLS // len(self._centre) ** 2)
        if self._wide:
            for k in forming:
                self._form_wide(k, curvatures[k])
        else:
            for some in (forming[i : i + together] for i in range(0, len(forming), together)):
                self._form({k: curvatures[k] for k in some}, {k: known[k][0] for k in some})
        for k in totals:
            if k not in self._ready:
                former, share = self._formed[k]
                part = totals[k] / (self._data.weight @ former)
                self._ready[k] = share + (1 - share) * part

    def _change(self, problem: int, curvature: Tensor, total: Tensor) -> Tensor:
        """How far H is from the one formed: its data's part by shape, the penalty's by its share.

        Infinite where there is none, or where a new one is cheap.
        """
        if problem not in self._formed or self._cheap:
            return torch.full_like(total, math.inf)
        weight, (former, share) = self._data.weight, self._formed[problem]
        former_total = weight @ former
        shape = (curvature / total).addcmul_(former, former_total.reciprocal(), value=-1)
        if self._wide:  # H costs more, and it is the data's part alone whose shape is in doubt
            share = share * (1 - share)
        return weight @ shape.abs_() + share * (total / former_total).log().abs()

    def _form(self, curvatures: Mapping[int, Tensor], totals: Mapping[int, float]) -> None:
        """H of some problems, and what it takes to hold data out, by one product with all inputs.

        Parameters
        ----------
        curvatures : mapping of int to Tensor of shape (n,)
        totals : mapping of int to float
            Their weighted sums.
        """
        roots = {k: self._root(d, totals[k]) for k, d in curvatures.items()}
        ridge = self._data.ridge * self._data.total
        for k, root in roots.items():
            self._formed[k] = curvatures[k], ridge * root.square().sum() / len(root)
        wider = len(self._centre) > _SKETCH
        turned = [root @ self._directions if wider else root for root in roots.values()]
        most = torch.stack([each.abs().max() for each in (*roots.values(), *turned)]).tolist()
        if not all(map(math.isfinite, most)):
            raise torch.linalg.LinAlgError(
                "expected H positive definite, got one without a finite root: look for inputs or "
                "scores that are not finite"
            )
        of_roots, of_turned = most[: len(roots)], most[len(roots) :]
        if self._groups is not None:
            factors = self._group_factors(list(roots.values()), list(curvatures.values()))
            self._factors.update(zip(roots, factors, strict=True))
            return
        leverages = self._squares(
            self._inputs, torch.cat(turned, dim=1), len(roots), max(of_turned)
        )
        if wider:
            # What stands for several data is seen with the weight that it is left out with.
            large = torch.stack(
                [
                    (self._own[k].clamp_min(1) if self._rows is not None else 1.0) * d * leverage
                    > _LARGE
                    for (k, d), leverage in zip(curvatures.items(), leverages, strict=True)
                ]
            )
            rows = large.flatten().nonzero()[:, 0].remainder_(len(self._inputs))
            split = rows.split(large.sum(1).tolist())
            for leverage, root, largest, chosen in zip(
                leverages, roots.values(), of_roots, split, strict=True
            ):
                for some in chosen.split(_MANY):
                    leverage[some] = self._squares(self._inputs.rows(some), root, 1, largest)[0]
        for k, leverage in zip(roots, leverages, strict=True):
            self._keep(k, leverage, curvatures[k])

    def _form_wide(self, problem: int, curvature: Tensor) -> None:
        """The same where H has too many rows, from sparse inputs."""
        inputs, mass = self._inputs, self._data.weight * curvature
        if not isinstance(inputs, SparseInputs):
            raise TypeError(f"expected sparse inputs, got {type(inputs).__name__}")
        ridge = self._data.ridge * self._data.total
        leverage = sketched_leverages(inputs, self._centre, mass, ridge, self._seed)
        # Of as many weights as data can determine, what the data do not.
        share = 1 - (mass @ leverage) / min(inputs.shape)
        self._formed[problem] = curvature, share.clamp(0, 1)
        self._keep(problem, leverage, curvature)

    def _keep(self, problem: int, leverage: Tensor, curvature: Tensor) -> None:
        """What h_n, of shape (n,), says of problem: h_n / (1 - h_n d_n)."""
        known = (self._own[problem] * curvature).mul_(leverage).clamp_max_(_LARGEST)
        self._leverage[problem] = leverage.div_(known.neg_().add_(1))

    def _copies(self, labels: Tensor, slopes: Slopes) -> Tensor:
        """How many of its copies a datum is left out with, of shape (n,)."""
        weight = self._data.weight
        if self._rows is None:
            return weight
        p = -slopes[0] / (slopes[1] - slopes[0])  # the probability with a mean slope of zero
        rho = agreement(self._rows, labels, weight, p * (1 - p), self._n_rows)
        return torch.where(weight > 1, 1 + (weight - 1) * rho, weight)

    def _group_factors(
        self, roots: Sequence[Tensor], curvatures: Sequence[Tensor]
    ) -> list[list[tuple[Tensor, Tensor]]]:
        """For each problem, and groups of each size: their data, (B, m), and G, (B, m, r)."""
        width, every = len(roots[0]), torch.cat(list(roots), dim=1)
        offset = self._centre @ every
        shares = [(self._data.weight * curvature).sqrt() for curvature in curvatures]
        factors: list[list[tuple[Tensor, Tensor]]] = [[] for _ in roots]
        for members in self._groups or ():
            size = members.shape[1]
            block = max(1, _CELLS // (2 * size * every.shape[1]))
            found = [offset.new_empty((*members.shape, min(size, width))) for _ in roots]
            for at, some in enumerate(members.split(block)):
                U = (self._inputs.dense(some.flatten()) @ every).sub_(offset)
                U = U.reshape(*some.shape, len(roots), width).permute(2, 0, 1, 3)
                if size < width:  # as many directions as there are data
                    U = torch.linalg.qr(U.mT, mode="r").R.mT
                known = torch.stack([share[some] for share in shares])[..., None] * U
                values, vectors = torch.linalg.eigh(known.mT @ known)
                rest = 1 - values.clamp(0, _LARGEST)
                U = U @ (vectors * rest.rsqrt()[..., None, :])
                for G, part in zip(found, U, strict=True):
                    G[at * block :][: len(some)] = part
            for each, G in zip(factors, found, strict=True):
                each.append((members, G))
        return factors

    def _squares(self, inputs: Inputs, directions: Tensor, problems: int, largest: float) -> Tensor:
        """The squared lengths of inputs (any, d), centred, along directions (d, problems * any).

        No number of the directions is larger than the largest in absolute value. Many directions,
        and those from a sampled H, are seen in single precision: the error of a sketch, or of the
        sample, is a million times larger.
        """
        rough = problems > 1 or self._preference is not None
        if rough and self._moderate and largest < _MODERATE:
            directions = directions.to(torch.float32)
        return inputs.squared_lengths(directions, self._centre, problems)

    def _root(self, curvature: Tensor, total: float) -> Tensor:
        """A matrix R with R R^T = H^-1, of shape (d, d), from curvatures and their weighted sum.

        From many data H is estimated, by rows drawn in proportion to their curvature and about to
        their leverage. The inverse of an estimate is too large on average: with m rows for d_eff
        weights that the data determine, as if the data's part of H were smaller by the factor
        1 - d_eff / m (Derezinski, Bartan, Pilanci and Mahoney 2020). Rows that are sure to be drawn
        add nothing to that.
        """
        mass = self._data.weight * curvature
        rows, drawn = sampled(mass, self._n_drawn, self._preference)
        ridge = self._data.ridge * self._data.total
        # A sample is seen in single precision where the penalty drowns that error, too.
        narrow = self._preference is not None and self._moderate
        narrow = narrow and ridge > _NARROW * total * self._largest**2
        H = torch.zeros((len(self._centre),) * 2, dtype=curvature.dtype, device=curvature.device)
        for chosen, root in zip(rows.split(_MANY), drawn.sqrt().split(_MANY), strict=True):
            inputs = self._inputs.dense(chosen).sub_(self._centre).mul_(root[:, None])
            H += gram(inputs.to(torch.float32) if narrow else inputs)
        if self._preference is not None:
            # The weights less the trace of the ridge times the inverse, seen from a few directions.
            factor, scale = self._factor(H, ridge)
            turned = scale[:, None] * self._directions
            turned = torch.linalg.solve_triangular(factor, turned, upper=False)
            effective = (len(H) - ridge * turned.square().sum()).clamp_min(0)
            chance = mass.mul_(self._preference)
            chance.div_(chance.sum())
            unsure = chance @ (chance * -self._n_drawn).add_(1).clamp_min_(0)
            H = H / (1 - unsure * effective / self._n_drawn)
        factor, scale = self._factor(H, ridge)
        identity = torch.eye(len(H), dtype=H.dtype, device=H.device)
        return scale[:, None] * torch.linalg.solve_triangular(factor, identity, upper=False).T

    def _factor(self, H: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
        """The Cholesky factor of H plus the ridge where its columns are scaled, and the scales."""
        diagonal = H.diagonal() + ridge
        # In units in which all columns matter alike; a column of zeros stays one.
        scale = torch.where(diagonal > 0, diagonal.rsqrt(), 0.0)
        H = scale[:, None] * H * scale
        # Without a penalty, data that can be separated would have infinite scores without some of
        # them. The search for weights is stopped on its way there; so are these.
        H.diagonal().add_(ridge * scale**2 if ridge else _DAMPING).masked_fill_(scale == 0, 1.0)
        H.diagonal().add_(1e-12)
        return factor_of(H), scale


def _by_size(groups: Tensor) -> list[Tensor]:
    """The members of all groups of one size, of shape (B, m), for each size m."""
    order = groups.argsort(stable=True)
    sizes = groups.unique(return_counts=True)[1]
    members = order.split(sizes.tolist())
    return [
        torch.stack([each for each in members if len(each) == size])
        for size in sizes.unique().tolist()
    ]


def _grouped(factors: list[tuple[Tensor, Tensor]], slopes: Tensor) -> Tensor:
    """The products G G^T with the slopes of each group, of shape (n,)."""
    out = torch.zeros_like(slopes)
    for members, G in factors:
        out[members] = (G @ (G.mT @ slopes[members][:, :, None]))[:, :, 0]
    return out
