"""Each check gives the verdict that the evidence gives, and refuses every other."""

import numpy as np
import pytest

from bayesloss_book.ledger import checks
from bayesloss_book.ledger.checks import (
    LedgerMismatch,
    check_formula,
    check_numbers,
    check_setting,
    check_statement,
)
from bayesloss_book.ledger.claims import VERDICTS, Claim


@pytest.fixture
def verdict_of(monkeypatch):
    """Put one claim into the ledger with the verdict that a test wants to be there."""

    def put(verdict: str) -> str:
        entry = Claim("wn-x", "W&N", "table", "somewhere", "One is one.", "part/page", verdict)
        monkeypatch.setattr(checks, "ledger", lambda: {"wn-x": entry})
        return "wn-x"

    return put


@pytest.mark.parametrize(
    ("printed", "corrected", "verdict"),
    [
        ([1.0, 2.0], None, "holds"),
        ([1.0, 2.0], [9.0, 9.0], "holds"),
        ([1.0, 3.0], [1.0, 2.0], "holds as corrected"),
        ([1.0, 3.0], None, "fails"),
        ([1.0, 3.0], [1.0, 4.0], "fails"),
        ([1.0, np.nan], None, "fails"),
    ],
)
def test_formula(verdict_of, printed, corrected, verdict):
    given = {"truth": [1.0, 2.0], "printed": printed, "corrected": corrected}
    finding = check_formula(verdict_of(verdict), **given, tolerance=1e-10, by="hand")
    assert finding.verdict == verdict
    for other in set(VERDICTS) - {verdict}:
        with pytest.raises(LedgerMismatch, match=verdict):
            check_formula(verdict_of(other), **given, tolerance=1e-10, by="hand")


@pytest.mark.parametrize(
    ("outcomes", "corrected", "verdict"),
    [
        ({"a": (True, "1")}, None, "holds"),
        ({"a": (True, "1"), "b": (False, "2")}, None, "fails"),
        ({"a": (False, "1")}, {"b": (True, "2")}, "holds as corrected"),
        ({"a": (False, "1")}, {"b": (False, "2")}, "fails"),
    ],
)
def test_statement(verdict_of, outcomes, corrected, verdict):
    finding = check_statement(verdict_of(verdict), outcomes, corrected=corrected)
    assert finding.verdict == verdict


def test_what_is_true_instead_must_be_true(verdict_of):
    false, true = {"a <= b": (False, "a = 2, b = 1")}, {"a > b": (True, "a = 2, b = 1")}
    finding = check_statement(verdict_of("fails"), false, instead=true)
    assert [head for head, _ in finding.groups()] == ["If it is right as printed", "True instead"]
    with pytest.raises(LedgerMismatch, match="true instead is not"):
        check_statement(verdict_of("fails"), false, instead={"a > b": (False, "")})
    with pytest.raises(LedgerMismatch, match="holds"):
        check_statement(verdict_of("fails"), true, instead=true)
    with pytest.raises(ValueError, match="one of corrected and instead"):
        check_statement(verdict_of("fails"), false, instead=true, corrected=true)


@pytest.mark.parametrize(
    ("measured", "pattern", "verdict"),
    [
        ({"a": 1.05, "b": 2.0}, None, "reproduced"),
        ({"a": 1.05, "b": 2.0}, {"p": (False, "")}, "reproduced"),
        ({"a": 1.2, "b": 2.0}, {"p": (True, "")}, "reproduced in pattern"),
        ({"a": 1.2, "b": 2.0}, {"p": (False, "")}, "not reproduced"),
        ({"a": 1.2, "b": 2.0}, None, "not reproduced"),
        ({"a": 0.8, "b": 2.0}, None, "not reproduced"),  # too small is as far off as too large
        ({"a": 0.8, "b": 2.0}, {"p": (True, "")}, "reproduced in pattern"),
        ({"a": 0.95, "b": 2.0}, None, "reproduced"),
        ({"a": np.nan, "b": 2.0}, None, "not reproduced"),
    ],
)
def test_numbers(verdict_of, measured, pattern, verdict):
    printed = {"a": 1.0, "b": 2.0}
    finding = check_numbers(verdict_of(verdict), measured, printed, tolerance=0.1, pattern=pattern)
    assert finding.verdict == verdict


def test_numbers_want_the_same_keys(verdict_of):
    with pytest.raises(ValueError, match="same keys"):
        check_numbers(verdict_of("reproduced"), {"a": 1}, {"b": 1}, tolerance=0.1)


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        (1.05, "holds"),
        (1.5, "under-specified"),
        (1.12, "under-specified"),
        (0.88, "under-specified"),
    ],
)
def test_setting(verdict_of, second, verdict):
    outcomes = {"one": 1.0, "other": second}
    finding = check_setting(verdict_of(verdict), outcomes, tolerance=0.1)
    assert finding.verdict == verdict
    # Both readings are as far from their middle, on either side of it.
    assert [row["ok"] for row in finding.rows] == [verdict == "holds"] * 2


def test_numbers_with_a_tolerance_each(verdict_of):
    measured, printed = {"a": 0.7, "b": 2.0}, {"a": 1.0, "b": 2.2}
    finding = check_numbers(
        verdict_of("not reproduced"), measured, printed, tolerance={"a": 0.4, "b": 0.1}
    )
    assert {row["what"]: row["ok"] for row in finding.rows} == {"a": True, "b": False}


def test_unknown_claim_is_refused():
    with pytest.raises(LedgerMismatch, match="no claim 'wn-nonsense'"):
        check_statement("wn-nonsense", {"a": (True, "1")})
