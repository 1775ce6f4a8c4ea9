import re

import citation
import notebooks
import pdf
import pytest

from bayesloss import __version__

BUILT = notebooks.ROOT / "_build" / "html" / "book" / "reference" / "cite.html"


@pytest.mark.built
def test_the_page_cites_the_version_with_its_date_and_both_papers():
    text = re.sub(r"<[^>]+>", "", BUILT.read_text("utf-8"))
    assert f"Version {__version__}, 20" in text
    for entry in ("@misc{bayesloss,", "@inproceedings{walder2020all,", "lacoste2011approximate,"):
        assert entry in text
    assert "{{" not in text.replace("{{The", "").replace("{{bayesloss", "")  # nothing is left open


def test_an_entry_is_taken_as_it_stands_and_a_missing_one_is_refused():
    bibliography = "@book{a,\n  title = {One}\n}\n\n@book{b,\n  title = {Two}\n}\n"
    assert citation.paper_entry(bibliography, "b") == "@book{b,\n  title = {Two}\n}"
    with pytest.raises(ValueError, match="expected an entry c in the bibliography, got none"):
        citation.paper_entry(bibliography, "c")


def test_pdfs_are_those_of_make_pdf_linked_where_there_is_an_address():
    assert {volume.file for volume in pdf.volumes()} == set(citation.PDFS)
    assert "make pdf" in citation.pdfs("")
    linked = citation.pdfs("https://github.com/o/r")
    assert re.findall(r"\((\S+)\)", linked) == [
        f"https://github.com/o/r/releases/latest/download/{file}" for file in citation.PDFS
    ]
