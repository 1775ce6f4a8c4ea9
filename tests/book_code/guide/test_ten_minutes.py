import pytest

from bayesloss_book.guide.ten_minutes import readings
from paperledger.ledger.claims import Finding


def row(what, measured):
    return {"what": what, "measured": measured, "expected": "0 ± 1", "ok": True}


def test_readings_are_those_of_a_setting():
    finding = Finding("wn-x", "under-specified", [row("C = 1", "-0.5"), row("none", "2")])
    with pytest.raises(ValueError, match="no setting but of the check 'statement'"):
        readings(finding)
    finding = Finding("wn-x", "under-specified", finding.rows, check="setting")
    assert readings(finding).to_dict() == {"C = 1": -0.5, "none": 2.0}
