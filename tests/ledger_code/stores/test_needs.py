import pytest

from paperledger.stores import needs

SETTINGS = f"""
files = "{__name__}:files"

[[extras]]
name = "more"
modules = ["no_such_module", "math"]
stores = ["wanting"]
"""


def files(cell):
    return {name: name == "here" for name in cell["names"].split()}


def test_without_a_configuration_nothing_is_needed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert needs.files({"names": "here gone"}) == {}
    assert needs.missing_data({"names": "here gone"}) == ""
    assert needs.missing_modules("wanting") == []


@pytest.fixture
def companion(tmp_path, monkeypatch):
    (tmp_path / "paperledger.toml").write_text(SETTINGS, "utf-8")
    monkeypatch.chdir(tmp_path)


def test_what_is_missing_is_told_by_the_names_that_the_companion_gives(companion):
    assert needs.files({"names": "here gone"}) == {"here": True, "gone": False}
    assert needs.missing_data({"names": "here"}) == ""
    assert needs.missing_data({"names": "lost here gone"}) == "the files of gone, lost"


def test_a_store_needs_the_modules_of_its_extra(companion):
    assert needs.missing_modules("wanting") == ["no_such_module"]
    assert needs.missing_modules("other") == []
    extra = needs.extra_of("wanting")
    assert extra is not None and extra.name == "more"
    assert needs.extra_of("other") is None
