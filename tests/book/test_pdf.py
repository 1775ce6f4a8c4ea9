"""The parts of `make pdf` that need no browser: the order of the pages, one document of them."""

import notebooks
import pdf
import pytest
from bs4 import BeautifulSoup
from pypdf import PdfReader, PdfWriter

PAGE = """<html><head>
<link rel="stylesheet" href="../_static/a.css"><link rel="icon" href="../_static/i.svg">
<script>window.MathJax = {{}}</script><script src="../_static/other.js"></script>
</head><body><article class="bd-article"><h1 id="top">{title}<a class="headerlink">#</a></h1>
{body}</article></body></html>"""


@pytest.fixture
def html(tmp_path):
    """Return the folder of a built book without pages."""
    folder = tmp_path / "html"
    (folder / "book").mkdir(parents=True)
    return folder


@pytest.fixture
def document(html):
    """Return one document of two small pages, and its headings."""
    one = (
        '<a href="#top">1</a><a href="two.html#top">2</a><a href="two.html#only">3</a>'
        '<a href="two.html">4</a><a href="../genindex.html">5</a><a href="https://a.org/">6</a>'
        '<img src="../_images/a.svg"><h2>Where \\(x\\) is</h2>'
    )
    two = (
        '<p id="only"></p><details class="sd-dropdown"><summary>Proof</summary>It is.</details>'
        '<details class="hide"><summary>Show</summary>code</details>'
        '<div class="tag_hide-cell"><details class="hide"><summary>Show</summary>solved</details>'
        "</div><button>Copy</button>"
    )
    (html / "book" / "one.html").write_text(PAGE.format(title="One", body=one))
    (html / "book" / "two.html").write_text(PAGE.format(title="Two", body=two))
    text, headings = pdf.assemble(html, [("", "book/one"), ("Part", "book/two")], "All")
    return BeautifulSoup(text, "html.parser"), headings


def test_chapters_are_those_of_the_table_of_contents_in_order():
    files = [file.rpartition(".")[0] for file in notebooks.toc_files()]
    assert [name for _, name in pdf.chapters()] == files
    assert pdf.chapters()[0] == ("", "book/index")
    assert pdf.chapters()[1][0] == "Learning the loss"


def test_links_lead_inside_the_document(document):
    soup, _ = document
    links = [a["href"] for a in soup.article.find_all("a")]
    assert links == ["#book/one--top", "#book/two--top", "#only", "#book/two--", "https://a.org/"]
    for link in links[:-1]:
        assert len(soup.find_all(id=link[1:])) == 1
    assert soup.img["src"] == "html/_images/a.svg"


def test_folded_text_is_open_and_hidden_code_is_gone(document):
    text = document[0].get_text()
    assert "It is." in text and "solved" in text
    assert "code" not in text and "Show" not in text and "Copy" not in text
    assert all(details.has_attr("open") for details in document[0].find_all("details"))


def test_a_slider_that_two_pages_have_is_found_by_its_script_on_both(html):
    slider = (
        '<div class="cell_output"><div id="slider"><button>Go</button></div>'
        '<script>document.getElementById("slider")</script></div>'
    )
    for name in ("one", "two"):
        (html / "book" / f"{name}.html").write_text(PAGE.format(title=name, body=slider))
    text, _ = pdf.assemble(html, [("", "book/one"), ("Part", "book/two")], "All")
    for article in BeautifulSoup(text, "html.parser").find_all("article"):
        own = article.select_one(".cell_output > div")
        assert own["id"] != "slider" and own.button
        assert f'getElementById("{own["id"]}")' in article.script.string


def test_the_volume_to_read_leaves_the_evidence_to_the_other(html):
    box = (
        '<div class="claim claim-holds" id="claim-x"><p class="claim-head"><span>holds</span>'
        " W&amp;N, (1)</p><p>The box.</p></div>"
    )
    body = (
        "<p>The argument.</p><details class='sd-dropdown'><summary>Proof</summary>It is.</details>"
        f"<div class='cell'><div class='output'>{box}</div><div class='output'>A table.</div></div>"
        "<section id='evidence'><h2>Evidence</h2>A grid.</section><div class='made-page'>How.</div>"
    )
    (html / "book" / "one.html").write_text(PAGE.format(title="One", body=body))
    text, headings = pdf.assemble(html, [("", "book/one")], "All", evidence=False)
    said = BeautifulSoup(text, "html.parser").article.get_text(" ", strip=True)
    assert said == "One The argument. A table. Checked: holds W&N, (1)."
    assert headings == ["One"]
    text, headings = pdf.assemble(html, [("", "book/one")], "All")
    assert all(word in text for word in ("The box.", "It is.", "A grid.", "How."))
    assert headings == ["One", "Evidence"]


def test_what_is_looked_up_is_not_in_the_volume_to_read():
    names = [name for _, name in pdf.to_read(pdf.chapters())]
    assert "book/learning/laplace" in names and "book/reference/notation" in names
    assert "book/guide/ten_minutes" in names and "book/guide/cluster" not in names
    assert "book/reference/scorecard" not in names
    assert {name for _, name in pdf.chapters()} > set(names)


def test_headings_and_contents(document):
    soup, headings = document
    assert headings == ["One", "Where x is", "Part", "Two"]
    assert [a["href"] for a in soup.nav.find_all("a")] == ["#book/one--", "#book/two--"]
    assert [h["aria-level"] for h in soup.select("article h1")] == ["1", "2"]


def test_only_style_and_formulas_are_loaded(document):
    soup, _ = document
    assert [link["href"] for link in soup.find_all("link")] == ["html/_static/a.css"]
    assert [script.string for script in soup.find_all("script")] == ["window.MathJax = {}"]


def test_the_outline_gets_the_headings(tmp_path):
    writer = PdfWriter()
    for _ in range(2):
        writer.add_blank_page(100, 100)
    top = writer.add_outline_item(title="1. 1. One", page_number=0)
    writer.add_outline_item(title="inner", page_number=1, parent=top)
    writer.add_outline_item(title="Two", page_number=1)
    writer.write(tmp_path / "a.pdf")
    assert pdf.finish(tmp_path / "a.pdf", ["1. One", "In", "Two"], "All", "Us") == 2
    reader = PdfReader(tmp_path / "a.pdf")
    assert [reader.outline[0].title, reader.outline[1][0].title] == ["1. One", "In"]
    assert reader.metadata.title == "All"
    with pytest.raises(ValueError, match="shorter"):
        pdf.finish(tmp_path / "a.pdf", ["1. One"], "All", "Us")


def test_no_browser_is_said_plainly(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert pdf.main() == 1
    assert "apt install chromium" in capsys.readouterr().err
