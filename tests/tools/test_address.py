"""The repository's address: one command writes it wherever it has to stand."""

import shutil
from types import SimpleNamespace

import address
import pytest
from repository_buttons import show

OURS = "https://github.com/someone/companion"


@pytest.fixture
def tree(tmp_path):
    """The files that name the address, as they are."""
    for name in address.LINES:
        shutil.copy(address.ROOT / name, tmp_path)
    return tmp_path


def test_all_places_name_the_same_address_or_none():
    assert len(set(address.addresses(address.ROOT))) == 1


def test_one_command_writes_it_everywhere_and_again(tree):
    before = address.addresses(tree)
    for url in (OURS, "https://github.com/another/name", OURS):
        address.write(tree, url)
        found = address.addresses(tree)
        assert found == [url] * len(before)
    for name in address.LINES:
        assert OURS in (tree / name).read_text("utf-8")
        lines = (tree / name).read_text("utf-8").splitlines()
        assert len(lines) == len((address.ROOT / name).read_text("utf-8").splitlines())


def test_a_place_that_is_forgotten_is_seen(tree):
    address.write(tree, OURS)
    citation = tree / "CITATION.cff"
    citation.write_text(citation.read_text("utf-8").replace("someone", "nobody"), "utf-8")
    assert len(set(address.addresses(tree))) == 2


@pytest.mark.parametrize("url", ["", "github.com/a/b", "https://github.com/a", f"{OURS}/", "x"])
def test_what_is_no_address_is_refused(tree, url):
    with pytest.raises(ValueError, match="expected https://github.com/OWNER/REPOSITORY, got"):
        address.write(tree, url)


@pytest.mark.parametrize("known", [False, True])
def test_the_book_has_buttons_where_there_is_an_address(tree, known):
    if known:
        address.write(tree, OURS)
    options = {}
    show(SimpleNamespace(confdir=tree), SimpleNamespace(html_theme_options=options))
    assert options.get("repository_url") == (OURS if known else None)
    shown = {name for name in options if "button" in name}
    buttons = {"use_repository_button", "use_issues_button", "launch_buttons"}
    assert shown == (buttons if known else set())
