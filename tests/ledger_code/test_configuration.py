import math
from pathlib import Path

import pytest

from paperledger.configuration import FILE, Configuration, Extra, configuration

ROOT = Path(__file__).resolve().parents[2]


def test_the_file_is_found_from_any_folder_below_it(tmp_path, monkeypatch):
    below = tmp_path / "pages" / "part"
    below.mkdir(parents=True)
    (tmp_path / FILE).write_text('claims = "said.yml"\n[papers]\nA = "Ann, A paper"\n', "utf-8")
    monkeypatch.chdir(below)
    found = configuration()
    assert (found.root, found.claims) == (tmp_path, tmp_path / "said.yml")
    assert (found.results, found.papers) == (tmp_path / "results", {"A": "Ann, A paper"})


def test_without_a_file_all_is_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert configuration() == Configuration(tmp_path)
    assert configuration().claims == tmp_path / "claims.yml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('claim = "said.yml"', "expected settings of .* got 'claim'"),
        ('root = "."', "expected settings of .* got 'root'"),
        ("claims = 3", "expected claims to be of type str, got 3"),
        ('seeds = "many"', "expected seeds to be of type int, got 'many'"),
        ('papers = ["A"]', r"expected papers to be of type dict, got \['A'\]"),
        ('[[extras]]\nname = "more"', "expected extras of .* got \\['name'\\]"),
    ],
)
def test_a_setting_that_there_is_not_is_refused(tmp_path, monkeypatch, text, said):
    (tmp_path / FILE).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"{FILE}: {said}"):
        configuration()


def test_a_setting_names_an_object_or_nothing(tmp_path):
    found = Configuration(tmp_path, files="math:sqrt")
    assert found.named("files") is math.sqrt
    assert found.named("times") is None


def test_extras_are_read(tmp_path, monkeypatch):
    text = '[[extras]]\nname = "more"\nmodules = ["a", "b"]\nstores = ["s"]\n'
    (tmp_path / FILE).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    assert configuration().extras == (Extra("more", ("a", "b"), ("s",)),)


def test_what_this_repository_says_is_there():
    found = configuration()
    assert found.root == ROOT
    for path in (found.claims, found.falsifiers, found.pages, found.results):
        assert path.exists()
    for setting in ("elsewhere", "times", "files"):
        assert found.named(setting) is not None
    stores = {path.stem for path in found.results.glob("*.csv")}
    assert {store for extra in found.extras for store in extra.stores} <= stores
