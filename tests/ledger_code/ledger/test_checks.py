from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from paperledger.ledger import checks
from paperledger.ledger.claims import VERDICTS, Claim


@pytest.fixture
def verdict_of(monkeypatch):
    def put(verdict: str) -> str:
        entry = Claim("wn-x", "W&N", "table", "somewhere", "One is one.", "part/page", verdict)
        monkeypatch.setattr(checks, "ledger", lambda: {"wn-x": entry})
        return "wn-x"

    return put


@pytest.mark.parametrize(
    ("printed", "corrected", "verdict"),
    [
        ([1.0, 2.0], None, "holds"),
        ([1.0, 3.0], [1.0, 2.0], "holds as corrected"),
        ([1.0, 3.0], None, "fails"),
        ([1.0, np.nan], None, "fails"),
    ],
)
def test_formula(verdict_of, printed, corrected, verdict):
    given = {"truth": [1.0, 2.0], "printed": printed, "corrected": corrected}
    finding = checks.check_formula(verdict_of(verdict), **given, tolerance=1e-10, by="hand")
    assert finding.verdict == verdict
    for other in set(VERDICTS) - {verdict}:
        with pytest.raises(checks.LedgerMismatch, match=verdict):
            checks.check_formula(verdict_of(other), **given, tolerance=1e-10, by="hand")


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
    finding = checks.check_statement(verdict_of(verdict), outcomes, corrected=corrected)
    assert finding.verdict == verdict


def test_what_is_true_instead_must_be_true(verdict_of):
    false = {"a <= b": (False, "a = 2, b = 1")}
    true = {"a > b": (True, "a = 2, b = 1")}
    finding = checks.check_statement(verdict_of("fails"), false, instead=true)
    assert [head for head, _ in finding.groups()] == ["If it is right as printed", "True instead"]
    with pytest.raises(checks.LedgerMismatch, match="true instead is not"):
        checks.check_statement(verdict_of("fails"), false, instead={"a > b": (False, "")})
    with pytest.raises(checks.LedgerMismatch, match="holds"):
        checks.check_statement(verdict_of("fails"), true, instead=true)
    with pytest.raises(ValueError, match="one of corrected and instead"):
        checks.check_statement(verdict_of("fails"), false, instead=true, corrected=true)


@pytest.mark.parametrize(
    ("measured", "pattern", "verdict"),
    [
        ({"a": 1.05, "b": 2.0}, None, "reproduced"),
        ({"a": 1.2, "b": 2.0}, {"p": (True, "")}, "reproduced in pattern"),
        ({"a": 1.2, "b": 2.0}, {"p": (False, "")}, "not reproduced"),
        ({"a": 1.2, "b": 2.0}, None, "not reproduced"),
        ({"a": 0.8, "b": 2.0}, None, "not reproduced"),  # too small is as far off as too large
        ({"a": np.nan, "b": 2.0}, None, "not reproduced"),
    ],
)
def test_numbers(verdict_of, measured, pattern, verdict):
    printed = {"a": 1.0, "b": 2.0}
    finding = checks.check_numbers(
        verdict_of(verdict), measured, printed, tolerance=0.1, pattern=pattern
    )
    assert finding.verdict == verdict


@pytest.mark.parametrize(
    ("second", "verdict"), [(1.05, "holds"), (1.12, "under-specified"), (0.88, "under-specified")]
)
def test_setting(verdict_of, second, verdict):
    finding = checks.check_setting(
        verdict_of(verdict), {"one": 1.0, "other": second}, tolerance=0.1
    )
    assert finding.verdict == verdict
    # Both readings are as far from their middle, on either side of it.
    assert [row["ok"] for row in finding.rows] == [verdict == "holds"] * 2


def test_numbers_with_a_tolerance_each(verdict_of):
    measured = {"a": 0.7, "b": 2.0}
    printed = {"a": 1.0, "b": 2.2}
    finding = checks.check_numbers(
        verdict_of("not reproduced"), measured, printed, tolerance={"a": 0.4, "b": 0.1}
    )
    assert {row["what"]: row["ok"] for row in finding.rows} == {"a": True, "b": False}


def test_unknown_claim_is_refused():
    with pytest.raises(checks.LedgerMismatch, match="no claim 'wn-nonsense'"):
        checks.check_statement("wn-nonsense", {"a": (True, "1")})


def test_with_other_parameters_it_warns(verdict_of, monkeypatch):
    """As papermill gives them; the finding has the verdict that comes out."""
    cells = ["", "seed = 0", "import math"]
    monkeypatch.setattr(checks, "get_ipython", lambda: SimpleNamespace(user_ns={"In": cells}))
    outcome = {"a": (False, "1")}
    with pytest.raises(checks.LedgerMismatch, match="'holds'"):
        checks.check_statement(verdict_of("holds"), outcome)
    with pytest.raises(checks.LedgerMismatch, match="says: one is two"):
        checks.prose(1 == 2, "one is two")
    checks.prose(np.array([True]), "one is one")
    cells.insert(2, "# Parameters\nseed = 1\n")
    with pytest.warns(
        checks.LedgerWarning, match="wn-x: the ledger says 'holds', the check gives 'fails'"
    ):
        assert checks.check_statement(verdict_of("holds"), outcome).verdict == "fails"
    with pytest.warns(checks.LedgerWarning, match="says: one is two"):
        checks.prose(1 == 2, "one is two")


FRAME = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})


@pytest.mark.parametrize(
    ("ok", "verdict"),
    [
        (np.bool_(True), "holds"),
        (np.array([True, True]), "holds"),
        (np.array([[True, True], [True, False]]), "fails"),
        (torch.tensor([True, False]), "fails"),
        (FRAME["a"] > 1, "fails"),
        (FRAME < 4, "fails"),
        (FRAME.astype(object) > 0, "holds"),
        ([True, np.bool_(False)], "fails"),
        (np.array([1.0, np.nan]) > 0, "fails"),
        (np.array([True, np.bool_(True)], dtype=object), "holds"),
    ],
)
def test_true_is_true_everywhere(verdict_of, ok, verdict):
    finding = checks.check_statement(verdict_of(verdict), {"a": (ok, "1")})
    assert [row["ok"] for row in finding.rows] == [verdict == "holds"]
    assert type(finding.rows[0]["ok"]) is bool  # the page stores it as JSON


@pytest.mark.parametrize(
    "ok", [np.nan, 1, "no", pd.Series([True, None]), torch.tensor([1.0]), None]
)
def test_what_is_no_truth_value_is_refused(verdict_of, ok):
    with pytest.raises(TypeError, match="a <= b: expected truth values"):
        checks.check_statement(verdict_of("holds"), {"a <= b": (ok, "1")})


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ((x > 1 for x in (1, 2)), False),
        ((np.array(row) > 0 for row in ([1, 2], [3, 0])), False),
        ((torch.tensor(x) > 0 for x in (1, 2)), True),
        (torch.ones(2, 3) > 0, True),
    ],
)
def test_every(values, answer):
    assert checks.every(values) is answer


@pytest.mark.parametrize("values", [[], (x > 0 for x in ()), np.ones((0, 3)) > 0])
def test_every_refuses_nothing(values):
    with pytest.raises(ValueError, match="links: expected something to be checked, got nothing"):
        checks.every(values, "links")


@pytest.mark.parametrize("outcomes", [{}, {"a": 1.0}, {"a": 1.0, "b": np.nan}])
def test_a_setting_wants_two_readings_and_numbers(verdict_of, outcomes):
    with pytest.raises(ValueError, match="expected a number under each of two readings"):
        checks.check_setting(verdict_of("holds"), outcomes, tolerance=1.0)


def test_a_pattern_of_nothing_is_refused(verdict_of):
    with pytest.raises(ValueError, match="said to show: expected something to be checked"):
        checks.check_numbers(
            verdict_of("reproduced"), {"a": 1.0}, {"a": 1.0}, tolerance=0.1, pattern={}
        )


@pytest.mark.parametrize("ok", [[], FRAME["a"][:0] > 0, torch.ones(0) > 0])
def test_nothing_does_not_pass(verdict_of, ok):
    good = {"a": (True, "1")}
    with pytest.raises(ValueError, match="a <= b: expected something"):
        checks.check_statement(verdict_of("holds"), {"a <= b": (ok, "1")})
    with pytest.raises(ValueError, match="corrected: expected something"):
        checks.check_statement(verdict_of("fails"), {"a": (False, "1")}, corrected={})
    with pytest.raises(ValueError, match="a <= b: expected something"):
        checks.check_statement(verdict_of("holds"), good, corrected={"a <= b": (ok, "1")})
    with pytest.raises(ValueError, match="same keys"):
        checks.check_numbers(verdict_of("reproduced"), {}, {}, tolerance=0.1)


@pytest.mark.filterwarnings("ignore:invalid value")  # infinite less infinite
@pytest.mark.parametrize(
    ("values", "truth", "tolerance", "relative", "outcome"),
    [
        ([1.0, 2.0 + 1e-8], [1.0, 2.0], 1e-6, False, (True, "to 1e-6")),
        ([0.7, 2.0], [1.0, 2.0], 1e-10, False, (False, "off by up to 0.3")),
        ([1.0, 2.0 + 3e-8], [1.0, 2.0], 1e-10, False, (False, "off by up to 3e-8")),
        (np.array([[1.0, -3e4]]), 1.0, 0.5, False, (False, "off by up to 30,001")),
        (-1e-11, 0, 1e-10, False, (True, "to 1e-10")),
        (
            torch.tensor([100.0, 0.5]),
            torch.tensor([101.0, 0.5]),
            0.02,
            True,
            (True, "to 0.02 of the largest"),
        ),
        ([100.0, 75.0], [100.0, 50.0], 0.02, True, (False, "off by up to 25% of the largest")),
        ([100.0, 50.1], [100.0, -50.0], 2, True, (True, "to 2 of the largest")),
        (pd.Series([1.0, np.nan]), [1.0, 2.0], 9.0, False, (False, "off by up to nan")),
        ([np.inf], [np.inf], 9.0, False, (False, "off by up to nan")),
    ],
)
def test_within(values, truth, tolerance, relative, outcome):
    assert checks.within(values, truth, tolerance, relative=relative) == outcome
    said = checks.within(values, truth, tolerance, "two places", relative=relative)
    assert said == (outcome[0], f"two places, {outcome[1]}")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("estimate", "truth", "error", "times", "outcome"),
    [
        ([1.0, 2.0], [1.3, 2.0], 0.1, 4, (True, "within 4 standard errors")),
        ([2.0, 1.5], [2.0, 1.0], [9.0, 0.1], 4, (False, "off by up to 5 standard errors")),
        ([1.5, 2.0], [1.0, 2.0], [0.2, 0.0], 4.5, (True, "within 4.5 standard errors")),
        ([1.0, 2.0 + 1e-15], [1.0, 2.0], [0.2, 0.0], 4, (True, "within 4 standard errors")),
        ([1.0, 2.0 + 1e-9], [1.0, 2.0], [0.2, 0.0], 4, (False, "off by up to inf standard errors")),
        (torch.tensor(1.0), 0, torch.tensor(0.5), 1.5, (False, "off by up to 2 standard errors")),
        ([np.nan, 2.0], [1.0, 2.0], 0.1, 4, (False, "off by up to nan standard errors")),
    ],
)
def test_within_errors(estimate, truth, error, times, outcome):
    assert checks.within_errors(estimate, truth, error=error, times=times) == outcome
    said = checks.within_errors(estimate, truth, "9 draws", error=error, times=times)
    assert said == (outcome[0], f"9 draws, {outcome[1]}")


def test_tensors_may_carry_gradients():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert checks.within(2 * x, x + x, 1e-10) == (True, "to 1e-10")
    assert checks.within_errors(x, x.mean(), error=x.std())[0]
    assert not checks.within(x, 2.0, 0.5)[0]


@pytest.mark.parametrize(
    ("values", "truth", "message"),
    [([], [], "got none"), ([1.0], [1.0, 2.0], "shape"), ([[1.0], [2.0]], [1.0, 2.0], "shape")],
)
def test_only_like_is_compared(values, truth, message):
    with pytest.raises(ValueError, match=message):
        checks.within(values, truth, 1.0)
    with pytest.raises(ValueError, match=message):
        checks.within_errors(values, truth, error=1.0)


def test_what_cannot_be_a_measure_of_error_is_refused():
    with pytest.raises(ValueError, match="other than zero"):
        checks.within([0.0], [0.0], 1e-10, relative=True)
    for error in (-0.1, np.nan, np.inf, [0.1, 0.1, 0.1]):
        with pytest.raises(ValueError, match="a standard error"):
            checks.within_errors([1.0, 2.0], 1.0, error=error)
