"""The repository's address: one command writes it wherever it has to stand."""

import shutil
from types import SimpleNamespace

import address
import pytest
from chapters import _offer
from docutils import nodes
from repository_buttons import binder, show

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
    config = SimpleNamespace(html_theme_options=options, myst_substitutions={})
    show(SimpleNamespace(confdir=tree), config)
    assert ("make figures" in config.myst_substitutions["figure_pack"]) == (not known)
    assert options.get("repository_url") == (OURS if known else None)
    shown = {name for name in options if "button" in name}
    buttons = {"use_repository_button", "use_issues_button", "launch_buttons"}
    assert shown == (buttons if known else set())


def test_binder_opens_the_notebook_that_the_book_has():
    there = binder(OURS, "notebooks/learning/isgp_student.ipynb")
    path = "lab%2Ftree%2F_build%2Fhtml%2Fnotebooks%2Flearning%2Fisgp_student.ipynb"
    assert there == f"https://mybinder.org/v2/gh/someone/companion/HEAD?urlpath={path}"
    made = (address.ROOT / ".binder" / "postBuild").read_text("utf-8")
    assert "jupyter-book build ." in made  # which writes the student notebooks


@pytest.mark.parametrize("known", ["", OURS])
def test_a_box_has_a_button_to_open_its_notebook_or_says_how(known):
    options = {"repository_url": known} if known else {}
    app = SimpleNamespace(config=SimpleNamespace(html_theme_options=options))
    offer = _offer(app, "book/learning/isgp", nodes.Text("Save: "))
    assert ("mybinder.org" in offer.astext()) == bool(known)
    assert ("make lab opens it" in offer.astext()) == (not known)
