"""Tests of the runner of all parts: none is left out, and what failed is told at the end."""

import sys

import pytest
import test_all as parts


def says(text, status=0):
    return [sys.executable, "-c", f"import sys; print({text!r}); sys.exit({status})"]


def test_all_parts_run_also_after_one_failed(monkeypatch, capfdbinary):
    counted = "===== \x1b[31m1 failed\x1b[0m, 41 passed, 2 skipped in 3.21s ====="
    monkeypatch.setattr(
        parts, "PARTS", {"book": says("no", 2), "unit tests": says(counted, 1), "types": says("ok")}
    )
    assert parts.main([]) == 1
    book, unit, types, end = capfdbinary.readouterr().out.decode().splitlines()[-4:]
    assert book.split()[:2] == ["book", "FAILED"]
    assert unit.startswith("unit tests") and "FAILED" in unit
    assert unit.endswith("s  1 failed, 41 passed, 2 skipped")
    assert types.split()[:2] == ["types", "passed"]
    assert end == "2 of 3 parts failed: book, unit tests"


def test_where_all_passed_it_says_so(monkeypatch, capfdbinary):
    monkeypatch.setattr(parts, "PARTS", {"types": says("fine")})
    assert parts.main(["types"]) == 0
    said = capfdbinary.readouterr().out.decode()
    assert "fine" in said and said.endswith("All checks passed.\n")


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit):
        parts.main(["nothing"])
    assert "unit tests" in capsys.readouterr().err
