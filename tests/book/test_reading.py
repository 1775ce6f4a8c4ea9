"""What a chapter asks of a reader: words, pictures and code, as Read shows them.

A chapter is held to it once its evidence has a section of its own.
"""

from functools import cache

import browser as tools
import notebooks
import pytest

HTML = notebooks.ROOT / "_build" / "html"
SCREEN = {"width": 1300, "height": 900}

CHAPTERS = [
    page
    for page in notebooks.pages()
    if '<section id="evidence">' in (HTML / f"book/{page}.html").read_text("utf-8")
]

# Formulas count as no words: MathJax's characters are none. Nor do the contents of boxes and
# proofs that are folded, and not the exercises' solutions. The box under the title is not the
# chapter's text; test_course.py holds it to its own length.
MEASURE = """() => {
  const INLINE = "a:not(.chip), em, strong, code, span:not(.math)";
  const article = document.querySelector(".bd-article");
  const shown = (e) => e.checkVisibility() && !e.closest("#evidence");
  const words = [...article.querySelectorAll(
    ":is(p, li, figcaption, h1, h2, h3, dt, dd, .output pre)")]
    .filter((e) => shown(e) && !e.closest("mjx-container, .made, .chapter-box"))
    .flatMap((e) => [...e.childNodes]
      .filter((n) => n.nodeType === 3 || n.matches?.(INLINE))
      .map((n) => n.textContent))
    .join(" ").match(/[\\p{L}\\p{N}][\\p{L}\\p{N}'’,.-]*/gu) ?? [];
  const pictures = [...article.querySelectorAll("figure img, .cell_output svg, input[type=range]")]
    .filter(shown);
  const code = [...article.querySelectorAll(".cell_input pre")].filter(shown)
    .flatMap((e) => e.textContent.trim().split("\\n")).filter((line) => line.trim());
  const top = (e) => e.getBoundingClientRect().top + scrollY;
  return {
    words: words.length,
    figures: pictures.filter((e) => !e.matches("input")).length,
    first: pictures.length ? Math.round(Math.min(...pictures.map(top))) : null,
    code: code.length,
  };
}"""


@pytest.fixture(scope="module")
def measure(browser):
    """Tell a chapter's words, figures, lines of code, and where its first figure is."""
    tab = browser.new_page(viewport=SCREEN, offline=True)

    @cache
    def told(page):
        tab.goto((HTML / f"book/{page}.html").as_uri())
        tools.typeset(tab)
        return tab.evaluate(MEASURE)

    yield told
    tab.close()


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_chapter_can_be_read_to_its_end(measure, page):
    found = measure(page)
    assert found["words"] <= 2000, found
    assert found["figures"] >= 3, found
    assert 10 <= found["code"] <= 40, found


def test_a_picture_asks_the_question(measure):
    late = [page for page in CHAPTERS if measure(page)["first"] > SCREEN["height"]]
    assert 4 * len(late) <= len(CHAPTERS), late
