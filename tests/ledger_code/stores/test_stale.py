"""Rows that are to be made anew, by columns and by the companion's list."""

from paperledger.stores.stale import Stale, is_stale, stale_rows

STALE = {"numbers": Stale("abc", "why", {"x": (4,)})}


def test_rows_are_told_by_all_columns():
    stale = Stale("abc", "why", {"method": ("a", "b"), "size": (1,)})
    assert stale.has({"method": "a", "size": 1})
    assert not stale.has({"method": "a", "size": 2})
    assert Stale("abc", "why").has({"method": "a"})
    assert str(stale) == "of commit abc, to be made anew"


def test_the_companions_list(tmp_path, monkeypatch):
    (tmp_path / "paperledger.toml").write_text(f'stale = "{__name__}:STALE"\n', "utf-8")
    monkeypatch.chdir(tmp_path)
    assert is_stale("numbers", {"x": 4})
    assert not is_stale("numbers", {"x": 5})
    assert not is_stale("others", {"x": 4})
    assert stale_rows("others") is None


def test_without_a_list_nothing_is_stale(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not is_stale("numbers", {"x": 4})
