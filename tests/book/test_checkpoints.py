"""The questions of each chapter, which ask before they show, and the lectures that ask them."""

import re

import chapters
import notebooks
import pytest
from bs4 import BeautifulSoup
from built_pages import HTML, built

ASKED = [page for page in notebooks.pages() if page.startswith(chapters.ASKED)]
# In the plan the lectures of ninety minutes, and the one that gives an overview.
LECTURES = ["decisions", "proper losses and links", "calibration", "loss-em", "overview"]


def question_problems(section) -> list[str]:
    """What is wrong with the questions of a chapter."""
    questions = section.select("details")
    found = [f"{len(questions)} questions, expected 3"] * (len(questions) != 3)
    for number, question in enumerate(questions, start=1):
        asked = question.select_one("summary").get_text(" ", strip=True)
        answer = question.select_one(".sd-summary-content").get_text(" ", strip=True)
        found += [f"the answer is shown: {asked}"] * question.has_attr("open")
        found += [f"no question {number}: {asked}"] * (not asked.startswith(f"{number}. "))
        found += [f"asks nothing: {asked}"] * ("?" not in asked)
        found += [f"{len(asked.split())} words ask: {asked}"] * (len(asked.split()) > 40)
        found += [f"{len(answer.split())} words answer: {asked}"] * (len(answer.split()) > 85)
        measured = re.findall(r"\d[\d.,]* ?±|\d ?(?:%|nats|millinats)", answer)
        found += [f"a result is typed in: {one}" for one in measured]
    return found


@pytest.mark.parametrize("page", ASKED)
def test_a_chapter_has_three_questions_and_leads_to_them(page):
    label = chapters.asked_at(page)
    section = built("course/checkpoints").find(id=label).find_parent("section")
    if section.find("h3") is None:
        section = built("course/checkpoints").find(id=label)
    assert not question_problems(section)
    link = section.select_one("p > a[href]")
    assert link["href"] == f"../{page}.html"
    (box,) = built(page).select(".chapter-box")
    assert box.select_one(f"a[href$='course/checkpoints.html#{label}']")


def test_no_chapter_is_left_out():
    assert len(ASKED) == 27
    assert len(built("course/checkpoints").select(".bd-article details")) == 3 * len(ASKED)


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ("<details open><summary>1. Why?</summary>{}</details>", "the answer is shown"),
        ("<details><summary>2. Why?</summary>{}</details>", "no question 1"),
        ("<details><summary>1. Because.</summary>{}</details>", "asks nothing"),
        ("<details><summary>1. Why?</summary>{} 3 ± 1</details>", "1 questions, expected 3"),
    ],
)
def test_guard_sees_a_bad_question(html, said):
    answer = '<div class="sd-summary-content">It saves 3 ± 1 of them.</div>'
    section = BeautifulSoup(html.format(answer), "html.parser")
    problems = question_problems(section)
    assert any(said in problem for problem in problems)
    assert any("a result is typed in: 3 ±" in problem for problem in problems)


def lectures() -> dict[str, list]:
    """The rows of each lecture's table, and what stands after it."""
    parts = built("course/plan").find(id="four-lectures-of-ninety-minutes").select("section")
    return {part.find("h3").get_text(): part for part in parts}


def test_lectures_fill_their_minutes_and_say_what_to_show_and_to_ask():
    found = lectures()
    assert len(found) == len(LECTURES)
    for (title, part), name in zip(found.items(), LECTURES, strict=True):
        assert name in title.lower()
        rows = [row.find_all("td") for row in part.select("tbody tr")]
        times = [list(map(int, row[0].get_text().split("–"))) for row in rows]
        begins = [begin for begin, _ in times]
        ends = [end for _, end in times]
        assert begins == [0, *ends[:-1]]
        assert ends[-1] == 90 if name != "overview" else 50 <= ends[-1] <= 60
        shown = [row for row in rows if "Show" in row[1].get_text()]
        assert len(shown) >= len(rows) - 1 and all(row[1].select("a[href]") for row in shown)
        asked = part.select("td:nth-child(3) a[href*='checkpoints.html#ask-']")
        assert len(asked) >= 3
        assert part.select("a[href^='problems']")
        sliders = [link["href"] for link in part.select("td a") if "slider" in str(link.previous)]
        assert sliders
        for place in sliders:
            assert "type='range'" in (HTML / "book/course" / place).read_text("utf-8")


def test_lectures_name_questions_by_their_numbers():
    numbers = re.compile(r"[123](?:(?:, | and )[123])*")
    for part in lectures().values():
        links = part.select("td:nth-child(3) a")
        assert all(numbers.fullmatch(link.get_text()) for link in links)
