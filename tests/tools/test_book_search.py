import book_search
import notebooks
import pytest
from small_book import small_book
from sphinx.errors import ExtensionError

LOGO = notebooks.BOOK / "_static" / "logo.svg"


@pytest.mark.parametrize("left", ["nothing", "the logo"])
def test_a_build_that_failed_leaves_the_folder_that_the_next_one_needs(tmp_path, left):
    """In the place of `_static` lay the logo, which the theme copies whatever has happened."""
    (tmp_path / "index.rst").write_text("Title\n=====\n")
    static = tmp_path / "html" / "_static"
    if left == "the logo":
        static.parent.mkdir()
        static.write_text("<svg/>")
    app = small_book(
        tmp_path,
        "book_search",
        html_theme="sphinx_book_theme",
        html_theme_options={"logo": {"image_light": str(LOGO), "image_dark": str(LOGO)}},
    )

    def fail(*_):
        raise ValueError("a page that cannot be read")

    app.connect("source-read", fail)
    with pytest.raises(ExtensionError, match="a page that cannot be read"):
        app.build()
    assert static.is_dir()


def test_readers_words_lead_to_a_place_of_the_book(caplog):
    """A section's phrases go with it; a place that is none fails the build, which takes -W."""
    entries = [
        {"kind": "section", "url": "book/guide/install.html"},
        {"kind": "claim", "url": "book/guide/install.html"},
    ]
    book_search.add_words(entries, {"guide/install": ["pip"], "guide/gone": ["conda"]})
    assert entries[0]["asked"] == ["pip"]
    assert "asked" not in entries[1]
    assert "expected places of the book, got 'guide/gone'" in caplog.text
