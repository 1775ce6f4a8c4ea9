"""The checks that settle the claims of the ledger: verdicts from what was measured on a page.

Each raises :class:`LedgerMismatch` when its verdict is not the one in the ledger: neither the page
nor the ledger can change alone. Where papermill gave the page other parameters it warns instead,
with :class:`LedgerWarning`, and so does :func:`prose`.

An outcome is a pair: a truth value, or many that must all be true, and the evidence. Where it says
that numbers agree, :func:`within` and :func:`within_errors` give both. :func:`every` is ``all`` for
check cells: of nothing it is not true.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from IPython import get_ipython
from numpy.typing import ArrayLike, NDArray

from paperledger.ledger.claims import TRUE, Finding, answer, ledger

Outcome = tuple[ArrayLike, str]


class LedgerMismatch(AssertionError):
    """What was measured does not give the verdict that stands in the ledger."""


class LedgerWarning(UserWarning):
    """With other parameters the page does not give what stands there."""


def check_formula(
    id: str,
    *,
    truth: ArrayLike,
    printed: ArrayLike,
    corrected: ArrayLike | None = None,
    tolerance: float,
    by: str,
    note: str = "",
) -> Finding:
    """Compare a printed formula, and a corrected one, with an independent truth, ``by`` some route.

    *Holds*, *holds as corrected* or *fails*; the tolerance is a multiple of the largest truth.
    """
    forms = {"as printed": printed} | ({} if corrected is None else {"corrected": corrected})
    gaps = {name: _gap(values, truth, relative=True) for name, values in forms.items()}
    agrees = {name: gap <= tolerance for name, gap in gaps.items()}
    verdict = "holds" if agrees["as printed"] else "fails"
    if not agrees["as printed"] and agrees.get("corrected"):
        verdict = "holds as corrected"
    rows = []
    for name, ok in agrees.items():
        found = f"within {_short(tolerance)}" if ok else _size(gaps[name], part=True)
        rows.append(_row(f"the formula {name}", found, by, ok))
    return _settle(Finding(id, verdict, rows, note, "formula"))


def check_statement(
    id: str,
    outcomes: Mapping[str, Outcome],
    *,
    corrected: Mapping[str, Outcome] | None = None,
    instead: Mapping[str, Outcome] | None = None,
    note: str = "",
) -> Finding:
    """Check a statement by what must be the case if it is right: pairs of truth and evidence.

    ``corrected`` says the claim as we would correct it, if that leaves its message, and ``instead``
    what is true in its place, if its message is false. Verdicts as for :func:`check_formula`.
    """
    second = corrected if instead is None else instead
    rows = _outcome_rows(outcomes, "" if second is None else "If it is right as printed")
    verdict = "holds" if _all_ok(rows) else "fails"
    if second is None:
        return _settle(Finding(id, verdict, rows, note))
    if corrected is not None and instead is not None:
        raise ValueError(f"{id}: expected one of corrected and instead, got both")
    others = _outcome_rows(second, "True instead" if instead else "If it is right as corrected")
    if instead and not _all_ok(others):
        verdict = "fails, and what is said to be true instead is not"
    elif corrected and verdict == "fails" and _all_ok(others):
        verdict = "holds as corrected"
    return _settle(Finding(id, verdict, rows + others, note))


def check_numbers(
    id: str,
    measured: Mapping[Any, float],
    printed: Mapping[Any, float],
    *,
    tolerance: float | Mapping[Any, float],
    pattern: Mapping[str, Outcome] | None = None,
    digits: int = 3,
    note: str = "",
) -> Finding:
    """Compare our numbers with printed ones, each or all with a tolerance in their unit.

    *Reproduced*, *not reproduced*, or *in pattern* if ours show what the numbers are said to.
    """
    if not measured or set(measured) != set(printed):
        odd = sorted(set(measured) ^ set(printed))
        raise ValueError(f"{id}: expected the same keys in measured and printed, got alone {odd}")
    rows = []
    for key, value in measured.items():
        allowed = tolerance[key] if isinstance(tolerance, Mapping) else tolerance
        expected = f"{printed[key]:.{digits}g}\u00a0±\u00a0{allowed:.2g}"
        ok = bool(abs(value - printed[key]) <= allowed)
        rows.append(_row(str(key), f"{value:.{digits}g}", expected, ok))
    shows = "What the numbers are said to show"
    seen = [] if pattern is None else _outcome_rows(pattern, shows)
    if _all_ok(rows):
        verdict = "reproduced"
    elif seen and _all_ok(seen):
        verdict = "reproduced in pattern"
    else:
        verdict = "not reproduced"
    return _settle(Finding(id, verdict, rows + seen, note, "numbers"))


def check_setting(
    id: str, outcomes: Mapping[str, float], *, tolerance: float, digits: int = 3, note: str = ""
) -> Finding:
    """Show how a result depends on a setting that the paper leaves open.

    *Under-specified* if readings spread it by more than the tolerance, else *holds*.
    """
    values = list(outcomes.values())
    if len(values) < 2 or not np.isfinite(values).all():
        raise ValueError(f"{id}: expected a number under each of two readings, got {outcomes}")
    middle = float(np.median(values))
    half = tolerance / 2
    expected = f"{middle:.{digits}g} ± {half:.2g}"
    rows = [
        _row(reading, f"{value:.{digits}g}", expected, bool(abs(value - middle) <= half))
        for reading, value in outcomes.items()
    ]
    verdict = "under-specified" if max(values) - min(values) > tolerance else "holds"
    return _settle(Finding(id, verdict, rows, note, "setting"))


def within(
    values: ArrayLike, truth: ArrayLike, tolerance: float, how: str = "", *, relative: bool = False
) -> tuple[bool, str]:
    """Whether values agree with the truth, and the evidence: an outcome of a check.

    The tolerance is absolute, or a multiple of the largest truth. What is not a number does not
    agree. The evidence begins with ``how``, as in "5 data sets, off by up to 0.3".
    """
    gap = _gap(values, truth, relative)
    scale = " of the largest" if relative else ""
    if gap <= tolerance:
        return True, _joined(how, f"to {_short(tolerance)}{scale}")
    return False, _joined(how, f"off by up to {_size(gap, relative)}{scale}")


def within_errors(
    estimate: ArrayLike, truth: ArrayLike, how: str = "", *, error: ArrayLike, times: float = 4
) -> tuple[bool, str]:
    """Whether an estimate agrees with the truth by its standard error: an outcome of a check.

    Differences up to ``times`` standard errors count as chance; an error of zero asks for equality
    to rounding. The evidence begins with ``how``, as in "9,000 draws, within 4 standard errors".
    """
    found, expected = _compared(estimate, truth)
    error = np.asarray(_detached(error), dtype=float)
    if error.shape not in ((), found.shape) or not np.all((error >= 0) & np.isfinite(error)):
        raise ValueError(f"expected a standard error, or one for each estimate, got {error}")
    rounding = 1e-12 * np.abs(expected).max()
    excess = np.maximum(np.abs(found - expected) - rounding, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        furthest = np.where((excess == 0) & (error == 0), 0, excess / error).max()
    if furthest <= times:
        return True, _joined(how, f"within {times:g} standard errors")
    return False, _joined(how, f"off by up to {_size(furthest)} standard errors")


def prose(ok: ArrayLike, what: str) -> None:
    """Check what a page says in passing; all must be true, or it is a LedgerMismatch."""
    if not every(ok, what):
        _refuse(f"the page says: {what}; it is not so")


def every(values: ArrayLike | Iterable[ArrayLike], what: str = "every") -> bool:
    """Whether all are true, of one thing or more: arrays, tensors and Series, too."""
    found = np.asarray(list(values) if isinstance(values, Iterator) else values)
    if found.size == 0:
        raise ValueError(f"{what}: expected something to be checked, got nothing")
    kinds = {type(value) for value in found.ravel().tolist()}
    if not kinds <= {bool, np.bool_}:
        raise TypeError(f"{what}: expected truth values, got {sorted(k.__name__ for k in kinds)}")
    return bool(found.all())


def _row(what: str, measured: str, expected: str, ok: bool) -> dict[str, Any]:
    return {"what": what, "measured": measured, "expected": expected, "ok": ok}


def _outcome_rows(outcomes: Mapping[str, Outcome], group: str = "") -> list[dict[str, Any]]:
    if not outcomes:
        raise ValueError(f"{group or 'outcomes'}: expected something to be checked, got nothing")
    head = {"group": group} if group else {}
    return [
        _row(what, evidence, TRUE, every(ok, what)) | head
        for what, (ok, evidence) in outcomes.items()
    ]


def _all_ok(rows: Sequence[Mapping[str, Any]]) -> bool:
    return all(row["ok"] for row in rows)


def _compared(values: ArrayLike, truth: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    found, expected = (np.asarray(_detached(given), dtype=float) for given in (values, truth))
    if found.size == 0:
        raise ValueError("expected values to compare, got none")
    if expected.ndim and found.shape != expected.shape:
        raise ValueError(f"expected the truth's shape {expected.shape}, got {found.shape}")
    return found, expected


def _detached(values: ArrayLike) -> ArrayLike:
    """A tensor without what it was computed from, which NumPy would refuse."""
    return values.detach() if hasattr(values, "detach") else values


def _gap(values: ArrayLike, truth: ArrayLike, relative: bool) -> float:
    """The largest difference, or that as a part of the largest truth; NaN if any is."""
    found, expected = _compared(values, truth)
    gap = float(np.abs(found - expected).max())
    scale = float(np.abs(expected).max())
    if relative and scale == 0:
        raise ValueError("expected a truth other than zero for a relative tolerance")
    return gap / scale if relative else gap


def _short(tolerance: float) -> str:
    return f"{tolerance:g}".replace("e-0", "e-")


def _size(gap: float, part: bool = False) -> str:
    """A difference to one digit or two, so that it is the same on every machine."""
    if gap < 0.01:
        return f"{gap:.0e}".replace("e-0", "e-")
    if part:
        return f"{gap:.0%}"
    return f"{gap:.2g}" if gap < 100 else f"{gap:,.0f}"


def _joined(how: str, found: str) -> str:
    return f"{how}, {found}" if how else found


def _settle(finding: Finding) -> Finding:
    if finding.id not in ledger():
        raise LedgerMismatch(f"the ledger has no claim {finding.id!r}")
    stands: str = ledger()[finding.id].verdict
    if stands != finding.verdict:
        failed = [
            f"{row['what']}: {row['measured']} ({row['expected']}: {answer(row)})"
            for row in finding.rows
            if not row["ok"]
        ]
        _refuse(
            f"{finding.id}: the ledger says {stands!r}, the check gives {finding.verdict!r}"
            + ("; what does not agree: " + "; ".join(failed) if failed else "")
        )
    return finding


def _refuse(what: str) -> None:
    shell = get_ipython()
    cells = [] if shell is None else shell.user_ns.get("In", [])
    # Did papermill put a cell with parameters behind the page's own?
    if not any(cell.startswith("# Parameters\n") for cell in cells):
        raise LedgerMismatch(what)
    warnings.warn(what, LedgerWarning, stacklevel=2)
