"""The archive of all figures: complete, described, the same to the byte each time."""

import os
from zipfile import ZipFile

import figure_pack
import notebooks
import pytest
from built_pages import HTML
from repository_buttons import figure_pack as link

PAGE = """<div class="bd-article"><figure><img src="../_images/a.svg" alt="a"><figcaption><p>
<span>Fig. 2.1 </span><span>A curve
rises.</span><a href="#a">#</a></p></figcaption></figure></div>"""


@pytest.mark.built
def test_every_figure_of_the_book_is_in_the_archive_once_with_its_caption(tmp_path):
    archive = tmp_path / "figures.zip"
    packed = figure_pack.pack(archive)
    drawn = [
        html.count('<figure class="')
        for html in (p.read_text("utf-8") for p in HTML.rglob("*.html"))
    ]
    assert len(packed) == sum(drawn) > 100
    with ZipFile(archive) as within:
        names = within.namelist()
        about = within.read("bayesloss-figures/README.md").decode()
        bodies = [within.read(name) for name in names if name.endswith(".svg")]
    assert len(set(names)) == len(names) == len(packed) + 1
    assert all(b"<svg" in body for body in bodies)
    assert "CC BY 4.0" in about
    assert all(f"* `{figure.name}`: Fig. " in about for figure in packed)


@pytest.fixture
def small(tmp_path):
    (tmp_path / "book").mkdir()
    return tmp_path


def test_it_is_the_same_to_the_byte_whenever_it_is_made(small, monkeypatch):
    monkeypatch.setattr(notebooks, "toc_files", lambda: ["book/page.ipynb"])
    (small / "book" / "page.html").write_text(PAGE, "utf-8")
    figure = small / "_images" / "a.svg"
    figure.parent.mkdir()
    archives = []
    for made in (1e9, 1.5e9):  # in 2001 and 2017
        figure.write_text("<svg/>", "utf-8")
        os.utime(figure, (made, made))
        archive = small / "figures.zip"
        figure_pack.pack(archive, small)
        archives.append(archive.read_bytes())
    assert archives[0] == archives[1]


def test_a_figure_goes_by_its_page_and_number(small):
    (small / "book" / "page.html").write_text(PAGE, "utf-8")
    (figure,) = figure_pack.figures("book/page", small)
    assert figure.name == "page/fig_2.1.svg"
    assert figure.caption == "Fig. 2.1 A curve rises."
    assert figure.file.name == "a.svg"


def test_a_caption_without_a_number_is_refused(small):
    (small / "book" / "page.html").write_text(PAGE.replace("Fig. 2.1 ", ""), "utf-8")
    with pytest.raises(
        ValueError, match="book/page: expected a caption with a number, got 'A curve"
    ):
        figure_pack.figures("book/page", small)


def test_it_is_linked_where_there_is_an_address_and_made_where_there_is_none():
    assert "make figures" in link("")
    released = f"releases/latest/download/{figure_pack.ARCHIVE.name}"
    assert link("https://github.com/o/r").endswith(f"(https://github.com/o/r/{released}).")
    release = (notebooks.ROOT / ".github/workflows/release.yml").read_text("utf-8")
    assert f"make figures && cp _build/{figure_pack.ARCHIVE.name} dist" in release
