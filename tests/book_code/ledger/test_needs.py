from bayesloss_book.ledger import needs
from paperledger.stores.needs import missing_data


def test_image_files_are_at_hand_in_either_folder(tmp_path, monkeypatch):
    assert set(needs.images({"data": "Fashion-MNIST, class 0", "n": 3})) == {"fashion-mnist"}
    assert set(needs.images({"a": "kmnist", "b": "mnist"})) == {"kmnist", "mnist"}
    monkeypatch.setenv("BAYESLOSS_CACHE", str(tmp_path))
    monkeypatch.delenv("BAYESLOSS_DATA", raising=False)
    cell = {"data": "mnist"}
    assert missing_data(cell) == "the files of mnist"
    (tmp_path / "mnist").mkdir()
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            assert missing_data(cell)
            (tmp_path / "mnist" / f"{part}-{kind}-ubyte.gz").touch()
    assert missing_data(cell) == ""
    monkeypatch.setenv("BAYESLOSS_CACHE", str(tmp_path / "other"))
    assert missing_data(cell)
    monkeypatch.setenv("BAYESLOSS_DATA", str(tmp_path))
    assert missing_data(cell) == ""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("BAYESLOSS_DATA", str(tmp_path / "empty"))
    assert missing_data(cell)
    monkeypatch.setenv("BAYESLOSS_CACHE", str(tmp_path))
    assert missing_data(cell) == ""
