"""The checks that settle the claims of the ledger.

On its page a claim is checked by one of these functions, which derives the verdict from what was
measured:

- :func:`check_formula`: a printed formula against an independent truth
  (*holds*, *holds as corrected* or *fails*);
- :func:`check_statement`: a statement broken down into what can be true or false
  (the same three);
- :func:`check_numbers`: printed numbers against ours
  (*reproduced*, *reproduced in pattern* or *not reproduced*);
- :func:`check_setting`: a setting that the paper leaves open
  (*under-specified* if the result depends on it, *holds* if not).

Each raises :class:`LedgerMismatch` when its verdict is not the one in the ledger: neither the page
nor the ledger can change alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bayesloss_book.ledger.claims import TRUE, Finding, answer, ledger

__all__ = [
    "LedgerMismatch",
    "check_formula",
    "check_numbers",
    "check_setting",
    "check_statement",
]


class LedgerMismatch(AssertionError):
    """What was measured does not give the verdict that stands in the ledger."""


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
    """Compare a printed formula, and a corrected one, with an independent truth.

    Parameters
    ----------
    id : str
    truth, printed, corrected : array-like
        Values at the same points. Without a corrected form the printed one holds or fails.
    tolerance : float
        The largest difference that counts as none, as a multiple of the largest truth.
    by : str
        How the truth was computed, such as "quadrature".
    note : str
        What the reader should take from it.

    Raises
    ------
    LedgerMismatch
        If the verdict is not the ledger's.
    """
    forms = {"as printed": printed} | ({} if corrected is None else {"corrected": corrected})
    agrees = {name: _agree(values, truth, tolerance) for name, values in forms.items()}
    verdict = "holds" if agrees["as printed"] else "fails"
    if not agrees["as printed"] and agrees.get("corrected"):
        verdict = "holds as corrected"
    rows = [
        {
            "what": f"the formula {name}",
            "measured": f"within {tolerance:.0e}" if ok else _gap(forms[name], truth),
            "expected": by,
            "ok": ok,
        }
        for name, ok in agrees.items()
    ]
    return _settle(Finding(id, verdict, rows, note, "formula"))


def check_statement(
    id: str,
    outcomes: Mapping[str, tuple[bool, str]],
    *,
    corrected: Mapping[str, tuple[bool, str]] | None = None,
    instead: Mapping[str, tuple[bool, str]] | None = None,
    note: str = "",
) -> Finding:
    """Check a statement by what it says in particular.

    Parameters
    ----------
    id : str
    outcomes : mapping
        From what must be the case, if the claim is right, to whether it is, and the evidence.
    corrected : mapping, optional
        The same for the claim as we would correct it, if that leaves its message.
    instead : mapping, optional
        The same for what is true in its place, if its message is false.
    note : str
        What the reader should take from it.

    Raises
    ------
    ValueError
        If there is both a corrected form and something else that is true instead.
    LedgerMismatch
        If the verdict is not the ledger's, or what is true instead is not.
    """
    verdict = "holds" if all(ok for ok, _ in outcomes.values()) else "fails"
    second = corrected if instead is None else instead
    if second is None:
        return _settle(Finding(id, verdict, _outcome_rows(outcomes), note))
    if corrected is not None and instead is not None:
        raise ValueError(f"{id}: expected one of corrected and instead, got both")
    rows = _outcome_rows(outcomes, "If it is right as printed")
    rows += _outcome_rows(second, "True instead" if instead else "If it is right as corrected")
    if instead and not all(ok for ok, _ in instead.values()):
        verdict = "fails, and what is said to be true instead is not"
    elif corrected and verdict == "fails" and all(ok for ok, _ in corrected.values()):
        verdict = "holds as corrected"
    return _settle(Finding(id, verdict, rows, note))


def check_numbers(
    id: str,
    measured: Mapping[str, float],
    printed: Mapping[str, float],
    *,
    tolerance: float | Mapping[str, float],
    pattern: Mapping[str, tuple[bool, str]] | None = None,
    digits: int = 3,
    note: str = "",
) -> Finding:
    """Compare our numbers with printed ones.

    Parameters
    ----------
    id : str
    measured, printed : mapping of str to float
        With the same keys.
    tolerance : float or mapping of str to float
        The largest difference that counts as agreement, in the unit of the numbers.
    pattern : mapping, optional
        What the numbers are said to show, whether ours show it, and the evidence.
    digits : int
        Significant digits shown.
    note : str
        What the reader should take from it.

    Raises
    ------
    ValueError
        If the keys differ.
    LedgerMismatch
        If the verdict is not the ledger's.
    """
    if set(measured) != set(printed):
        odd = sorted(set(measured) ^ set(printed))
        raise ValueError(f"{id}: expected the same keys in measured and printed, got alone {odd}")
    rows = []
    for key, value in measured.items():
        allowed = tolerance[key] if isinstance(tolerance, Mapping) else tolerance
        rows.append(
            {
                "what": key,
                "measured": f"{value:.{digits}g}",
                "expected": f"{printed[key]:.{digits}g}\u00a0±\u00a0{allowed:.2g}",
                "ok": bool(abs(value - printed[key]) <= allowed),
            }
        )
    seen = pattern or {}
    if all(row["ok"] for row in rows):
        verdict = "reproduced"
    elif seen and all(ok for ok, _ in seen.values()):
        verdict = "reproduced in pattern"
    else:
        verdict = "not reproduced"
    rows += _outcome_rows(seen, "What the numbers are said to show")
    return _settle(Finding(id, verdict, rows, note, "numbers"))


def check_setting(
    id: str,
    outcomes: Mapping[str, float],
    *,
    tolerance: float,
    digits: int = 3,
    note: str = "",
) -> Finding:
    """Show how a result depends on a setting that the paper leaves open.

    Parameters
    ----------
    id : str
    outcomes : mapping of str to float
        The result under each reading of the paper.
    tolerance : float
        The spread of the results that would count as no dependence.
    digits : int
        Significant digits shown.
    note : str
        What the reader should take from it.

    Raises
    ------
    LedgerMismatch
        If the verdict is not the ledger's.
    """
    values = list(outcomes.values())
    middle = float(np.median(values))
    spread = max(values) - min(values)
    rows = [
        {
            "what": reading,
            "measured": f"{value:.{digits}g}",
            "expected": f"{middle:.{digits}g} ± {tolerance / 2:.2g}",
            "ok": bool(abs(value - middle) <= tolerance / 2),
        }
        for reading, value in outcomes.items()
    ]
    verdict = "under-specified" if spread > tolerance else "holds"
    return _settle(Finding(id, verdict, rows, note, "setting"))


def _outcome_rows(
    outcomes: Mapping[str, tuple[bool, str]], group: str = ""
) -> list[dict[str, Any]]:
    head = {"group": group} if group else {}
    return [
        {"what": what, "measured": evidence, "expected": TRUE, "ok": bool(ok)} | head
        for what, (ok, evidence) in outcomes.items()
    ]


def _agree(values: ArrayLike, truth: ArrayLike, tolerance: float) -> bool:
    scale = float(np.abs(np.asarray(truth, dtype=float)).max())
    return bool(np.allclose(values, truth, rtol=0, atol=tolerance * scale))


def _gap(values: ArrayLike, truth: ArrayLike) -> str:
    """The largest difference as a part of the largest truth, to one digit."""
    reference = np.asarray(truth, dtype=float)
    gap = np.abs(np.asarray(values, dtype=float) - reference).max() / np.abs(reference).max()
    return f"{gap:.0e}" if gap < 0.01 else f"{gap:.0%}"


def _settle(finding: Finding) -> Finding:
    if finding.id not in ledger():
        raise LedgerMismatch(f"the ledger has no claim {finding.id!r}")
    stands: str = ledger()[finding.id].verdict
    if stands != finding.verdict:
        failed: Sequence[str] = [
            f"{row['what']}: {row['measured']} ({row['expected']}: {answer(row)})"
            for row in finding.rows
            if not row["ok"]
        ]
        raise LedgerMismatch(
            f"{finding.id}: the ledger says {stands!r}, the check gives {finding.verdict!r}"
            + ("; what does not agree: " + "; ".join(failed) if failed else "")
        )
    return finding
