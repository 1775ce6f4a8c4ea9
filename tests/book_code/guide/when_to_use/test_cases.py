"""What went wrong once: that both libraries are what they are called, and what the table says."""

import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from bayesloss_book.data import DataError
from bayesloss_book.guide.when_to_use import cases, summary

ROOT = Path(__file__).resolve().parents[4]
GIT = shutil.which("git")
IN_HISTORY = (
    GIT is not None
    and subprocess.run(
        [GIT, "cat-file", "-e", cases.FIRST_WAVE], cwd=ROOT, capture_output=True, check=False
    ).returncode
    == 0
)


def test_what_is_no_case():
    known = {"case": "chance", "variant": "300 x 5", "seed": 0, "library": "now"}
    for wrong in ({"case": "luck"}, {"variant": "3 x 5"}, {"library": "second wave"}):
        with pytest.raises(ValueError, match="expected a case of"):
            cases.measure(**(known | wrong))


@pytest.mark.skipif(GIT is None, reason="no git on the path")
def test_a_first_wave_that_is_not_in_the_history():
    with pytest.raises(DataError, match="expected commit 0000000 in the history"):
        cases.measure(
            case="chance", variant="300 x 5", seed=0, library="first wave", first_wave="0000000"
        )


def test_no_git_on_the_path(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError, match="expected git on the path"):
        cases.measure(
            case="chance", variant="300 x 5", seed=0, library="first wave", first_wave="1111111"
        )


@pytest.mark.slow
@pytest.mark.skipif(not IN_HISTORY, reason="a shallow clone has no first wave")
def test_the_first_wave_is_another_library():
    """Its fits differ by chance, which today's do not; so its code it was that ran."""
    chance = {"case": "chance", "variant": "300 x 5", "seed": 0}
    assert cases.measure(library="first wave", **chance)["value"] > 1e-3
    assert cases.measure(library="now", **chance)["value"] < 1e-3


def test_before_and_after_by_hand():
    rows = [
        {"case": case, "variant": variant, "seed": seed, "library": library}
        | {"value": 0.5, "beside": 0.5, "coverage": 0.9, "warned": False}
        for case, variants in cases.CASES.items()
        for variant in variants
        for seed in range(2)
        for library in cases.LIBRARIES
    ]
    results = pd.DataFrame(rows)
    now = results["library"] == "now"
    results.loc[now & (results["variant"] == "wine"), "value"] = [0.7, 0.5]
    results.loc[now & (results["variant"] == "30 rows"), "coverage"] = [0.94, 0.96]
    found = summary.before_and_after(results).set_index("data")
    assert found.loc["wine", ["before", "now", "beside"]].tolist() == [0.5, 0.6, 0.5]
    assert not found.loc["wine", "reached"] and found.loc["iris", "reached"]
    assert found.loc["30 rows", "now"] == 0.95 and found.loc["30 rows", "reached"]
    assert found.loc["300 rows", "now"] == 0.9 and not found.loc["300 rows", "reached"]


@pytest.mark.parametrize(
    ("case", "row", "reached"),
    [
        ("copies", {"value": 1.04, "beside": 1.0}, True),
        ("copies", {"value": 1.06, "beside": 1.0}, False),
        ("smoothness", {"value": 0.502, "beside": 0.5}, True),
        ("smoothness", {"value": 0.504, "beside": 0.5}, False),
        ("far value", {"value": 1.2, "beside": 1.0, "warned": 1.0}, True),
        ("far value", {"value": 1.2, "beside": 1.0, "warned": 0.5}, False),
        ("chance", {"value": 2e-3}, False),
        ("time", {"value": 19.0}, True),
    ],
)
def test_what_is_asked(case, row, reached):
    assert bool(summary.ASKED[case][-1](pd.Series(row))) is reached
