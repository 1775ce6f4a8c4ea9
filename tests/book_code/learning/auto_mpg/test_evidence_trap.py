import pytest

from bayesloss_book.learning.auto_mpg import evidence_trap


def test_a_small_cell_can_be_measured(monkeypatch):
    """With four basis functions; the truth is at least the bound, up to its own error."""
    anneal = evidence_trap.annealed_importance_sampling
    short = {"n_chains": 64, "n_temperatures": 40}
    monkeypatch.setattr(
        evidence_trap, "annealed_importance_sampling", lambda *a, **k: anneal(*a, **(k | short))
    )
    found = evidence_trap.measure(path="slice", a=4.0, seed=0, n_basis=4)
    assert found["bound"] < found["annealed"] + 4 * found["annealed_error"]
    assert found["error_laplace"] == pytest.approx(found["error_exact"], rel=0.05)
