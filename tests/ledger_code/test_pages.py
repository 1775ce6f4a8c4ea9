from paperledger.pages import notebooks


def test_pages_are_named_by_their_paths_and_what_is_hidden_is_none(tmp_path):
    names = ["b", "a", "part/c", "_build/seeds/1/a", ".venv/share/d", "part/.ipynb_checkpoints/c"]
    for name in names:
        path = tmp_path / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "part" / "notes.md").touch()
    found = notebooks(tmp_path)
    assert list(found) == ["a", "b", "part/c"]
    assert found["part/c"] == tmp_path / "part" / "c.ipynb"
