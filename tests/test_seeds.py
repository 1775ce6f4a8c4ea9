"""Tests of the runs with other seeds: what moves is told, and a page that stops."""

import notebooks
import pytest
import seeds

from bayesloss_book.ledger.claims import ledger

PAGE = "learning/isgp"


@pytest.fixture
def runs(monkeypatch):
    """Put runs in the place of a page's, by seed."""

    def put(by_seed):
        monkeypatch.setattr(seeds, "run", lambda name, seed: by_seed[seed])

    return put


def test_the_committed_seed_is_read():
    assert seeds.committed_seed(notebooks.from_source("calibrating/gp_regression")) == 2
    assert seeds.committed_seed(notebooks.from_source("reference/scorecard")) is None


def test_what_moves_is_told(runs, capsys):
    same = {"wn-theorem-5": ledger()["wn-theorem-5"].verdict}
    said = "the page says: one is two; it is not so"
    runs(
        {
            1: seeds.Run(same, [], ""),
            2: seeds.Run({"wn-theorem-5": "fails"}, [said], ""),
            3: seeds.Run(same, [said], "KeyError: 'x'"),
        }
    )
    assert seeds.main([PAGE, "--seeds", "0", "1"]) == 0  # 0 is the page's own
    assert "1 verdicts  as committed" in capsys.readouterr().out
    assert seeds.main([PAGE, "--seeds", "1", "2", "3"]) == 1
    out = capsys.readouterr().out
    assert "otherwise with 2 of 3 seeds" in out
    assert f"wn-theorem-5: fails, not {same['wn-theorem-5']}  (seed 2)" in out
    assert f"{said}  (seed 2, 3)" in out
    assert "stopped: KeyError: 'x'  (seed 3)" in out
    assert seeds.main([PAGE, "--seeds", "3"]) == 1


@pytest.mark.slow
def test_a_page_is_run_to_its_end_or_to_where_it_stops(tmp_path, monkeypatch):
    monkeypatch.setattr(seeds, "OUTPUT", tmp_path / "out")
    (tmp_path / "page.md").write_text(
        "---\nkernelspec:\n  name: python3\n  display_name: Python 3\n  language: python\n"
        "jupytext:\n  text_representation:\n    extension: .md\n    format_name: myst\n---\n"
        "```{code-cell}\n:tags: [parameters]\nseed = 0\n```\n"
        "```{code-cell}\nfrom bayesloss_book.ledger.checks import check_statement, prose\n"
        "prose(seed == 0, 'zero')\n"
        "check_statement('wn-theorem-5', {'zero': (seed == 0, 'seen')})\n```\n"
        "```{code-cell}\n1 // (2 - seed)\n```\n"
    )
    said = ["the page says: zero; it is not so"]
    moved = {"wn-theorem-5": "fails"}
    assert seeds.run("page", 1, tmp_path) == seeds.Run(moved, said, "")
    stopped = "ZeroDivisionError: integer division or modulo by zero"
    assert seeds.run("page", 2, tmp_path) == seeds.Run(moved, said, stopped)
