"""Scores that data would have had, had the weights not seen them.

Weights fitted to few data per column separate the training labels too well, and a link fitted to
training scores is overconfident. So links are fitted to leave-one-out scores, by one Newton step,

    x_n - h_n s_n / (1 - h_n d_n),   h_n = z_n . H^-1 z_n,   H = sum_m d_m z_m z_m^T + 1/C,

where s_n is the slope of the log probability of the label of n in the score, d_n its expected
curvature, and inputs are centred. It is exact for a linear link and Gaussian noise.

The centre is that of the data left, too. So the mean of the slopes, which is not zero where the
link was fitted to other scores than these, moves no weights, and s_n stands for s_n less that mean.
With the centre held it would move each score, and where columns outnumber rows all of them by more
than they vary: the link would lose the base rate. (What the others' slopes feel of the centre's
move, by x_n / (n - 1), is neglected.)

A datum of weight w is left out whole, with w h_n for h_n; so are equal rows, see
:mod:`bayesloss.learning.data.inputs`, but of rows that are alike by nature only
1 + (w - 1) rho. A group g is left out whole, too. With its inputs Z_g, W and D the diagonal
matrices of its weights and weighted curvatures, and H_g = Z_g H^-1 Z_g^T, its scores become

    x_g - H_g (I - D H_g)^-1 W s_g = x_g - G G^T W s_g,   G = U V (I - Lambda)^-1/2,

where U U^T = H_g and U^T D U = V Lambda V^T, a matrix no larger than the number of columns.

A costly H is formed anew only when curvatures have changed by a tenth. Until then its average rise
scales h_n / (1 - h_n d_n), which a datum's own curvature does not affect, or G G^T.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bayesloss.learning.data.inputs import DenseInputs, SparseInputs, agreement
from bayesloss.learning.weights.coordinates import factor_of, inverse_root, sampled_hessian
from bayesloss.learning.weights.linear_scores import LinearScores, Slopes, mean_curvature
from bayesloss.learning.weights.sketched_leverages import sketched_leverages

_MANY = 4096  # data in a block of which exact leverages are computed
_FEW = 1024  # sparse data, at most, that are made dense where there are more columns
_SKETCH = 64  # random directions in which leverages are first estimated, to a sixth or so
_LARGE = 0.05  # share of its own score that a datum makes up, above which it is computed exactly
_LARGEST = 0.99  # of such shares: one Newton step is not to be trusted farther
_CELLS = 2**23  # numbers in a block of groups, or in the roots of problems that are formed together
_NARROW = 1e-4  # share of the penalty in H, at least, where single precision does for the rest
_MODERATE = 1e15  # squares of what is smaller stay within single precision's range
_DRAWN = 4096  # data that H is estimated from, where there are more, and
_DRAWN_BY_COLUMN = 8  # so many a column at least: leverages come out to 5 per cent or so
_CHEAP = 2**28  # products, below which leverages are computed in every round
_STALE = 0.1  # a change of the curvatures after which H is formed anew
_DAMPING = 1e-2  # without a penalty, added to the diagonal of H in units in which that is 1

# For groups of each size m: their members, (B, m), and G, (B, m, r).
GroupFactors = list[tuple[Tensor, Tensor]]
ByProblem = Mapping[int, Tensor]


@dataclass(frozen=True)
class Influence:
    """How a problem's data affect their own scores; the curvatures are those in H."""

    curvature: Float[Tensor, " n"]
    penalty_share: Float[Tensor, ""]
    copies: Float[Tensor, " n"]  # of its own that a datum is left out with
    leverage: Float[Tensor, " n"] | GroupFactors  # h_n / (1 - h_n d_n), or G
    shift: Float[Tensor, " n"] | None = None  # the scores less those without each datum


class LeaveOneOut:
    """Scores of several problems without each datum, or without its group."""

    def __init__(
        self, data: LinearScores, seed: int = 0, groups: Int[Tensor, " n"] | None = None
    ) -> None:
        self._data = data
        self._inputs, self._centre, self._seed = data.inputs, data.centre, seed
        self._ridge = data.ridge * data.total
        n, d = data.inputs.shape
        few = n <= _FEW and n * d <= _CELLS
        self._wide = data.wide and not few and not isinstance(data.inputs, DenseInputs)
        if self._wide and not (groups is None and isinstance(data.inputs, SparseInputs)):
            what = "rows of blocks" if groups is None else "groups"
            raise ValueError(
                f"expected fewer columns where {what} are held out, got {d}: bring them to a few "
                "hundred (TruncatedSVD), or set leave_one_out=False"
            )
        if d > n and not self._wide:  # as many coordinates as data will do
            every = data.inputs.dense(torch.arange(n, device=data.centre.device))
            reduced = torch.linalg.qr((every - data.centre).T, mode="r").R.T
            self._inputs, self._centre = DenseInputs(reduced), torch.zeros_like(reduced[0])
        self._groups = None if groups is None else _by_size(groups)
        self._equal_rows = None
        if groups is None and bool((data.weight > 1).any()):
            numbers = data.inputs.equal()
            self._n_different = int(numbers.max()) + 1
            self._equal_rows = torch.from_numpy(numbers).to(data.centre.device)
        self._largest = data.inputs.largest()
        self._moderate = self._largest < _MODERATE
        columns = len(self._centre)
        generator = torch.Generator().manual_seed(seed)
        shape = (0 if self._wide else columns, _SKETCH)  # none is seen where H is wide
        directions = torch.randn(shape, dtype=data.centre.dtype, generator=generator)
        self._directions = directions.to(data.centre.device) / math.sqrt(_SKETCH)
        self._n_drawn = max(_DRAWN, _DRAWN_BY_COLUMN * columns)
        # Products that form H, and those that see all data along its root or a sketch of it.
        products = min(n, self._n_drawn) * columns**2 + n * columns * min(columns, _SKETCH)
        self._cheap = not self._wide and products < _CHEAP
        self._preference = data.leverages if not self._wide and n > self._n_drawn else None

    def held_out_scores(
        self, scores: Float[Tensor, "k n"], slopes: Sequence[Slopes]
    ) -> Float[Tensor, "k n"]:
        """The scores without each datum, or its group, from the slopes of all problems."""
        found = self.influences(dict(enumerate(slopes)))
        return torch.stack([x - found[k].shift if k in found else x for k, x in enumerate(scores)])

    def influences(
        self,
        slopes: Mapping[int, Slopes],
        before: Mapping[int, Influence] | None = None,
        strength: Sequence[float] | None = None,  # of the penalty at the last fit
        step: Sequence[float] | None = None,  # the part of the way that scores went since
    ) -> dict[int, Influence]:
        """How data affect their own scores, by both labels' slopes, in problems with curvature."""
        known = dict(before or {})
        every = [1.0] * len(self._data.labels)
        strength, step = strength or every, step or every
        # As if the penalty counted once, and all log probabilities less.
        curvatures = {k: mean_curvature(each).div_(strength[k]) for k, each in slopes.items()}
        totals = {k: self._data.weight @ curvature for k, curvature in curvatures.items()}
        changes = [self._change(known.get(k), curvatures[k], total) for k, total in totals.items()]
        both = torch.stack([torch.stack([*totals.values()]), torch.stack(changes)]).tolist()
        on_host = dict(zip(curvatures, zip(*both, strict=True), strict=True))
        new = [k for k, (total, change) in on_host.items() if total != 0 and change > _STALE]
        copies = {k: self._copies(known.get(k), self._data.labels[k], slopes[k]) for k in new}
        at_once = 1 if self._wide else max(1, _CELLS // len(self._centre) ** 2)
        form = self._form_wide if self._wide else self._form
        for some in (new[i : i + at_once] for i in range(0, len(new), at_once)):
            sums = {k: on_host[k][0] for k in some}
            known |= form({k: curvatures[k] for k in some}, sums, copies)
        found = {}
        for k, (zeros, ones) in slopes.items():
            if on_host[k][0] != 0:
                own = torch.where(self._data.labels[k] == 1, ones, zeros)
                own -= (self._data.weight @ own) / self._data.weight.sum()  # the centre moves
                shift = self._shift(known[k], totals[k], own, strength[k])
                former = before[k].shift if before and k in before else None
                if former is not None and step[k] < 1:
                    shift = torch.lerp(former, shift, step[k])
                found[k] = replace(known[k], shift=shift)
        return found

    def _shift(self, known: Influence, total: Tensor, shift: Tensor, strength: float) -> Tensor:
        """What a problem's data add to their scores, in place of the slopes of the labels."""
        share = known.penalty_share
        # By how much H rose since it was formed, on average.
        rise = share + (1 - share) * (total / (self._data.weight @ known.curvature))
        shift = shift.div_(strength * rise)
        if isinstance(known.leverage, list):
            return _grouped(known.leverage, shift.mul_(self._data.weight))
        return shift.mul_(known.leverage).mul_(known.copies)

    def _change(self, known: Influence | None, curvature: Tensor, total: Tensor) -> Tensor:
        """How far H is from the one formed, by shape and penalty's share; infinite if none is."""
        if known is None or self._cheap:
            return torch.full_like(total, math.inf)
        weight, former, share = self._data.weight, known.curvature, known.penalty_share
        former_total = weight @ former
        shape = (curvature / total).addcmul_(former, former_total.reciprocal(), value=-1)
        if self._wide:  # H costs more, and it is the data's part alone whose shape is in doubt
            share = share * (1 - share)
        return weight @ shape.abs_() + share * (total / former_total).log().abs()

    def _copies(self, known: Influence | None, labels: Tensor, slopes: Slopes) -> Tensor:
        weight = self._data.weight
        if known is not None:
            return known.copies
        if self._equal_rows is None:
            return weight
        p = -slopes[0] / (slopes[1] - slopes[0])  # the probability with a mean slope of zero
        rho = agreement(self._equal_rows, labels, weight, p * (1 - p), self._n_different)
        return torch.where(weight > 1, 1 + (weight - 1) * rho, weight)

    def _form(
        self, curvatures: ByProblem, totals: Mapping[int, float], copies: ByProblem
    ) -> dict[int, Influence]:
        roots = {k: self._root(d, totals[k]) for k, d in curvatures.items()}
        shares = {k: self._ridge * root.square().sum() / len(root) for k, root in roots.items()}
        wider = len(self._centre) > _SKETCH
        turned = [root @ self._directions if wider else root for root in roots.values()]
        most = torch.stack([each.abs().max() for each in (*roots.values(), *turned)]).tolist()
        if not all(map(math.isfinite, most)):
            raise torch.linalg.LinAlgError(
                "expected H positive definite, got one without a finite root: look for inputs or "
                "scores that are not finite"
            )
        if self._groups is not None:
            factors = self._group_factors(list(roots.values()), list(curvatures.values()))
            pairs = zip(roots, factors, strict=True)
            return {k: Influence(curvatures[k], shares[k], copies[k], each) for k, each in pairs}
        of_roots, of_turned = most[: len(roots)], most[len(roots) :]
        leverages = self._squares(torch.cat(turned, dim=1), len(roots), max(of_turned))
        if wider:
            known = torch.stack([*curvatures.values()]) * leverages
            if self._equal_rows is not None:  # what stands for several data is left out as these
                known *= torch.stack([*copies.values()]).clamp_min_(1)
            large = known > _LARGE
            rows = large.nonzero()[:, 1].split(large.sum(1).tolist())
            for at, (root, chosen) in enumerate(zip(roots.values(), rows, strict=True)):
                for some in chosen.split(_MANY):
                    leverages[at, some] = self._squares(root, 1, of_roots[at], some)[0]
        own = self._without_own
        of_each = zip(roots, leverages, strict=True)
        return {k: own(curvatures[k], shares[k], copies[k], leverage) for k, leverage in of_each}

    def _form_wide(
        self, curvatures: ByProblem, totals: Mapping[int, float], copies: ByProblem
    ) -> dict[int, Influence]:
        inputs, found = self._inputs, {}
        if not isinstance(inputs, SparseInputs):
            raise TypeError(f"expected sparse inputs, got {type(inputs).__name__}")
        for k, curvature in curvatures.items():
            mass = self._data.weight * curvature
            leverage = sketched_leverages(inputs, self._centre, mass, self._ridge, self._seed)
            # Of as many weights as data can determine, what the data do not.
            share = (1 - (mass @ leverage) / min(inputs.shape)).clamp(0, 1)
            found[k] = self._without_own(curvature, share, copies[k], leverage)
        return found

    @staticmethod
    def _without_own(
        curvature: Tensor, share: Tensor, copies: Tensor, leverage: Tensor
    ) -> Influence:
        own = (copies * curvature).mul_(leverage).clamp_max_(_LARGEST)
        return Influence(curvature, share, copies, leverage.div_(own.neg_().add_(1)))

    def _group_factors(
        self, roots: Sequence[Tensor], curvatures: Sequence[Tensor]
    ) -> list[GroupFactors]:
        width, every = len(roots[0]), torch.cat(list(roots), dim=1)
        offset = self._centre @ every
        shares = [(self._data.weight * curvature).sqrt() for curvature in curvatures]
        factors: list[GroupFactors] = [[] for _ in roots]
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

    def _squares(
        self, directions: Tensor, problems: int, largest: float, some: Tensor | None = None
    ) -> Tensor:
        rough = problems > 1 or self._preference is not None
        if rough and self._moderate and largest < _MODERATE:
            directions = directions.to(torch.float32)
        inputs = self._inputs if some is None else self._inputs.rows(some)
        return inputs.squared_lengths(directions, self._centre, problems)

    def _root(self, curvature: Tensor, total: float) -> Tensor:
        """A matrix R with R R^T = H^-1, from curvatures and their weighted sum.

        Sampling makes H^-1 too large on average (Derezinski, Bartan, Pilanci and Mahoney 2020).
        """
        mass, ridge = self._data.weight * curvature, self._ridge
        # A sample is seen in single precision where the penalty drowns that error, too.
        single = self._preference is not None and self._moderate
        single = single and ridge > _NARROW * total * self._largest**2
        H = sampled_hessian(
            self._inputs, self._centre, mass, self._n_drawn, self._preference, single=single
        )
        if self._preference is not None:
            # The weights less the trace of the ridge times the inverse, seen from a few directions.
            scaled, scale = self._penalised(H)
            turned = scale[:, None] * self._directions
            turned = torch.linalg.solve_triangular(factor_of(scaled), turned, upper=False)
            effective = (len(H) - ridge * turned.square().sum()).clamp_min(0)
            chance = mass.mul_(self._preference)
            chance.div_(chance.sum())
            unsure = chance @ (chance * -self._n_drawn).add_(1).clamp_min_(0)
            H = H / (1 - unsure * effective / self._n_drawn)
        scaled, scale = self._penalised(H)
        return scale[:, None] * inverse_root(scaled)

    def _penalised(self, H: Tensor) -> tuple[Tensor, Tensor]:
        """H plus the ridge in units in which all columns matter alike, and these units."""
        diagonal = H.diagonal() + self._ridge
        scale = torch.where(diagonal > 0, diagonal.rsqrt(), 0.0)  # a column of zeros stays one
        H = scale[:, None] * H * scale
        # Without a penalty, data that can be separated would have infinite scores without some of
        # them. The search for weights is stopped on its way there; so are these.
        H.diagonal().add_(self._ridge * scale**2 if self._ridge else _DAMPING)
        H.diagonal().masked_fill_(scale == 0, 1.0).add_(1e-12)
        return H, scale


def _by_size(groups: Int[Tensor, " n"]) -> list[Tensor]:
    order = groups.argsort(stable=True)
    sizes = groups.unique(return_counts=True)[1]
    members, kinds = order.split(sizes.tolist()), sizes.unique().tolist()
    return [torch.stack([each for each in members if len(each) == size]) for size in kinds]


def _grouped(factors: GroupFactors, slopes: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    out = torch.zeros_like(slopes)
    for members, G in factors:
        out[members] = (G @ (G.mT @ slopes[members][:, :, None]))[:, :, 0]
    return out
