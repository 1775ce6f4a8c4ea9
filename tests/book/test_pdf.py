import unicodedata

import notebooks
import pdf
import pytest
from bs4 import BeautifulSoup
from pypdf import PdfReader

HEAD = """<head><link rel="stylesheet" href="../_static/a.css"><link rel="icon" href="i.svg">
<script>window.MathJax = {}</script><script src="../_static/other.js"></script></head>"""
ONE = """<h1 id="top">One<a class="headerlink">#</a></h1>
<a href="#top">1</a><a href="two.html#top">2</a><a href="two.html">3</a>
<a href="../genindex.html">4</a><a href="https://a.org/">5</a><img src="../_images/a.svg">
<h2>Where \\(x\\) is</h2><details class="sd-dropdown"><summary>Proof</summary>It is.</details>
<details class="hide"><summary>Show</summary>code</details><button>Copy</button>
<div class="tag_hide-cell"><details class="hide"><summary>Show</summary>solved</details></div>"""
TWO = """<h1 id="top">Two</h1><div class="cell_output"><div id="slider"><button>Go</button></div>
<script>document.getElementById("slider")</script></div>
<div class="cell"><div class="output"><div class="claim" id="claim-x"><p class="claim-head">
<span>holds</span> W&amp;N, (1)</p><p>The box.</p></div></div>
<div class="output">A table.</div></div>
<section id="evidence"><h2>Evidence</h2>A grid.</section><div class="made-page">How.</div>"""


@pytest.fixture
def volume(tmp_path):
    (tmp_path / "book").mkdir()
    for name, body in {"one": ONE, "two": TWO}.items():
        page = f"<html>{HEAD}<body><article class='bd-article'>{body}</article></body></html>"
        (tmp_path / "book" / f"{name}.html").write_text(page)

    def made(evidence):
        pages = [("", "book/one"), ("Part", "book/two")]
        text, headings = pdf.assemble(tmp_path, pages, "All", evidence)
        return BeautifulSoup(text, "html.parser"), headings

    return made


def test_pages_are_those_of_the_table_of_contents_the_volume_to_read_has_what_is_argued():
    every, read = ([name for _, name in pdf.chapters(evidence)] for evidence in (True, False))
    assert every == [file.rpartition(".")[0] for file in notebooks.toc_files()]
    assert [name for name in every if name in read] == read
    assert pdf.chapters(False)[1] == ("Learning the loss", "book/learning/proper_losses")
    assert {"book/learning/laplace", "book/guide/ten_minutes"} < {*read}
    assert {"book/guide/cluster", "book/reference/scorecard"} < {*every} - {*read}


def test_links_lead_inside_the_document_and_sliders_find_their_places(volume):
    soup, _ = volume(True)
    links = [a["href"] for a in soup.article.find_all("a")]
    assert links == ["#book/one--top", "#book/two--top", "#book/two--", "https://a.org/"]
    for link in links[:-1]:
        assert len(soup.find_all(id=link[1:])) == 1
    assert soup.img["src"] == "_images/a.svg"
    assert [link["href"] for link in soup.find_all("link")] == ["_static/a.css"]
    slider = soup.select_one(".cell_output > div")
    assert slider.button and f'getElementById("{slider["id"]}")' in str(soup.find_all("script"))


def test_one_volume_has_everything_the_other_the_argument(volume):
    soup, headings = volume(True)
    text = soup.get_text()
    for shown in ("It is.", "solved", "The box.", "A grid.", "How."):
        assert shown in text
    assert not any(hidden in text for hidden in ("code", "Show", "Copy"))
    assert all(details.has_attr("open") for details in soup.find_all("details"))
    assert headings == ["One", "Where x is", "Part", "Two", "Evidence"]
    assert [h["aria-level"] for h in soup.select("article h1")] == ["1", "2"]
    soup, headings = volume(False)
    last = soup.find_all("article")[-1]
    assert last.get_text(" ", strip=True).endswith("A table. Checked: holds W&N, (1).")
    assert headings == ["One", "Where x is", "Part", "Two"]


def test_a_report_has_a_volume_of_its_own():
    reports = [volume for volume in pdf.volumes() if volume.file.startswith("report-")]
    assert len(reports) == 2
    for volume in reports:
        name = volume.file.removesuffix(".pdf").replace("-", "_")
        assert volume.pages == [("", f"book/reference/{name}")]


def test_a_printed_report_has_about_eight_pages(browser):
    for volume in (volume for volume in pdf.volumes() if volume.file.startswith("report-")):
        printed = PdfReader(pdf.print_volume(volume, pdf.HTML, browser))
        assert 6 <= len(printed.pages) <= 10
        extracted = "".join(page.extract_text() for page in printed.pages)
        text = unicodedata.normalize("NFKC", extracted)  # two letters may be one sign
        for part in ("Scope", "Method", "Results", "What differed", "What was easy"):
            assert part in text
        for part in ("What was hard", "Effort and cost", "Advice to whoever repeats it"):
            assert part in text
