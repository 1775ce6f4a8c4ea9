import html
import re

import descriptions
import notebooks
import pytest
from docutils import nodes

HTML = notebooks.ROOT / "_build" / "html"


@pytest.mark.built
def test_every_page_of_the_book_has_a_description_of_its_own():
    found = {}
    for file in notebooks.toc_files():
        page = (HTML / file).with_suffix(".html").read_text("utf-8")
        (said,) = re.findall(r'<meta name="description" content="([^"]*)"', page)
        assert f'<meta property="og:description" content="{said}"' in page
        found[file] = html.unescape(said)
    assert all(40 <= len(said) <= descriptions.LONGEST for said in found.values())
    assert not [said for said in found.values() if "\\" in said or "{" in said]
    assert len(set(found.values())) == len(found)


def test_a_description_ends_with_a_word():
    assert descriptions.shortened("short") == "short"
    long = descriptions.shortened("word, " * 60)
    assert long.endswith("word…") and len(long) <= descriptions.LONGEST


def test_it_is_the_first_paragraph_that_is_no_note_with_formulas_as_text():
    document = nodes.section()
    note = nodes.container("", nodes.paragraph("", "A note that is long enough, but is a note."))
    said = nodes.paragraph("", "The source of a loss increases, and is called ")
    said += nodes.math("", r"\nu_{0}")
    document += [note, nodes.paragraph("", "Short."), said]
    expected = "The source of a loss increases, and is called nu_0"
    assert descriptions.description(document) == expected
