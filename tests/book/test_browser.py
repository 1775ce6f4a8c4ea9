"""The book as a browser shows it: opened from disk, with the network cut.

One visit of a page serves every check, because loading is what takes long. Links, anchors and
alternative texts need no browser; test_built.py sees to them.
"""

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import browser as tools
import notebooks
import pytest
from axe_playwright_python.base import AXE_SCRIPT

HTML = notebooks.ROOT / "_build" / "html"

# All but the redirection to the front page.
PAGES = sorted(
    path.relative_to(HTML).as_posix()
    for path in HTML.rglob("*.html")
    if "_static" not in path.parts and path != HTML / "index.html"
)

LIMIT = 6_000_000  # bytes that one page loads
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1300, "height": 900}
# Where axe sees what the theme puts around all pages at desktop width; on a phone most is hidden.
FRAMED = {"book/index.html", "book/guide/cluster.html", "search.html", "genindex.html"}


# ------------------------------------------------------------------------------- what is asked


class Visitor:
    """A tab that goes from page to page, and what was requested and said since it last did."""

    def __init__(self, context) -> None:
        self.requests: list[str] = []
        self.messages: list[str] = []  # errors and warnings
        self.tab = context.new_page()
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("websocket", lambda socket: self.requests.append(socket.url))
        self.tab.on("pageerror", lambda error: self._hear("error", f"uncaught: {error}"))
        self.tab.on("console", lambda message: self._hear(message.type, message.text))

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.messages.append(text)

    def go(self, path: Path, query: str = "", width: dict[str, int] = DESKTOP) -> "Visitor":
        self.tab.goto("about:blank")  # what the last page still says is of that
        self.tab.set_viewport_size(width)
        self.requests.clear()
        self.messages.clear()
        self.tab.goto(path.as_uri() + query)
        tools.typeset(self.tab)
        return self


def requests_that_leave(visit: Visitor) -> list[str]:
    """Return what was asked of anything but the disk."""
    inside = ("file:", "data:", "blob:")
    return [f"asks for {url}" for url in visit.requests if not url.startswith(inside)]


def weight_problems(visit: Visitor) -> list[str]:
    addresses = {url for url in visit.requests if url.startswith("file:")}
    paths = {Path(unquote(urlsplit(url).path)) for url in addresses}
    size = sum(path.stat().st_size for path in paths if path.is_file())
    return [f"loads {size / 1e6:.1f} MB"] if size > LIMIT else []


FORMULAS = r"""() => {
  const found = [];
  for (const e of document.querySelectorAll(".math")) {
    if (!e.querySelector("mjx-container")) found.push(`not rendered: ${e.textContent}`);
  }
  for (const e of document.querySelectorAll("mjx-merror, mjx-container mjx-mtext")) {
    if (e.matches("mjx-merror") || getComputedStyle(e).color === "rgb(255, 0, 0)") {
      found.push(`in error colours: ${e.closest("mjx-container").textContent}`);
    }
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const {data, parentElement} = texts.currentNode;
    if (/\\[()[\]]|\$\$|\\begin\{|\\[a-zA-Z]+\{/.test(data)
        && !parentElement.closest("script, style, pre, code, .math")) {
      found.push(`raw: ${data.trim()}`);
    }
  }
  return found;
}"""


def formula_problems(tab) -> list[str]:
    return [f"formula {text[:200]}" for text in tab.evaluate(FORMULAS)]


HEADINGS = """() => [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
  .filter(e => e.checkVisibility()).map(e => [+e.tagName[1], e.textContent.trim()])"""


def heading_problems(tab) -> list[str]:
    headings = tab.evaluate(HEADINGS)
    titles = [text for level, text in headings if level == 1]
    found = [] if len(titles) == 1 else [f"{len(titles)} titles (h1): {titles}"]
    last = 0
    for level, text in headings:
        if level > last + 1:
            found.append(f"heading {text!r} of level {level} after one of level {last}")
        last = level
    return found


SLIDER_STATE = """slider => {
  let box = slider;
  while (!box.querySelector("svg, img")) box = box.parentElement;
  return [...box.querySelectorAll("svg, img, table")].map(e => e.outerHTML).join();
}"""


def slider_problems(tab) -> list[str]:
    """Return sliders without a name, and those that show the same after a press of a key."""
    found = []
    for slider in tab.query_selector_all("input[type=range]"):
        html = slider.evaluate("e => e.outerHTML")
        if not slider.evaluate("e => e.labels.length || e.ariaLabel"):
            found.append(f"no label names the slider {html}")
        before = slider.evaluate(SLIDER_STATE)
        value = slider.input_value()
        slider.press("Home" if slider.evaluate("e => e.value === e.max") else "End")
        if slider.evaluate(SLIDER_STATE) == before:
            found.append(f"nothing moves with the slider {html}")
        slider.fill(value)
    return found


# A box that scrolls by itself may hold what is wider.
OVERFLOW = """() => {
  const found = [], wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > wide) {
    found.push(`the page is ${document.documentElement.scrollWidth} px wide`);
  }
  const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
  const covered = e => e && e !== document.body && (scrolls(e) || covered(e.parentElement));
  for (const e of document.querySelectorAll("main article *:not(mjx-container *)")) {
    if (e.getBoundingClientRect().right > wide + 1 && e.checkVisibility() && !covered(e)) {
      return [...found, `too wide: ${e.outerHTML.slice(0, 120)}`];  // what is in it is, too
    }
  }
  return found;
}"""


# What scrolls or is cut, and how much of it: a formula or table, by the box that holds it.
CUT_OFF = """() => {
  const holds = e =>
    e === document.body || /auto|scroll|hidden/.test(getComputedStyle(e).overflowX)
      ? e : holds(e.parentElement);
  const found = [];
  for (const e of document.querySelectorAll(".bd-article :is(mjx-container, table)")) {
    if (!e.checkVisibility() || e.closest("table table")) continue;
    const box = holds(e), left = box.getBoundingClientRect().left + box.clientLeft;
    const parts = e.matches("table") ? [e] : e.querySelectorAll("mjx-math, mjx-math mjx-mtr");
    const ends = [...parts].map(part => part.getBoundingClientRect().right - left);
    const more = Math.round(Math.max(...ends) - box.clientWidth);
    const cue = getComputedStyle(box).maskImage !== "none";
    if (more > 2) found.push([more, cue, e.textContent.trim().replace(/\\s+/g, " ").slice(0, 80)]);
  }
  return found;
}"""


# What watches sizes, such as fit.js, is told of a new one in the next frame, and may change it.
FRAMES = """async () => {
  for (let i = 0; i < 4; i++) await new Promise(requestAnimationFrame);
}"""


def width_problems(tab) -> list[str]:
    """Say which formulas and tables do not fit, on a phone what else, and what has no cue.

    The tab is as wide as a phone afterwards.
    """
    found = []
    for width in (DESKTOP, PHONE):
        tab.set_viewport_size(width)
        tab.evaluate(FRAMES)
        found += [
            f"at {width['width']} px: {more} px of {what!r} are cut off"
            for more, cue, what in tab.evaluate(CUT_OFF)
            if width is DESKTOP or not cue
        ]
    return found + [f"at {PHONE['width']} px: {problem}" for problem in tab.evaluate(OVERFLOW)]


# Colours take axe long, so it looks at one text of each look that it has not passed elsewhere. A
# link's look is also that of the text around it.
LOOKS = """passed => {
  const grounds = e => {  // up to the first that nothing shines through
    const colour = e ? getComputedStyle(e).backgroundColor : "rgb()";
    return colour.startsWith("rgb(") ? colour
      : (colour === "rgba(0, 0, 0, 0)" ? "" : colour) + grounds(e.parentElement);
  };
  const around = link => {
    let block = link.parentElement;
    while (getComputedStyle(block).display.startsWith("inline")) block = block.parentElement;
    const links = [...block.querySelectorAll("a")].map(e => e.textContent.length);
    const inside = links.reduce((a, b) => a + b, 0), outside = block.textContent.length - inside;
    const {textDecorationLine, borderBottomStyle} = getComputedStyle(link);
    const {color, fontWeight} = getComputedStyle(block);
    return outside > inside && [textDecorationLine, borderBottomStyle, color, fontWeight].join();
  };
  const found = new Map();
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    if (!e.checkVisibility({visibilityProperty: true})) continue;
    const {color, fontSize, fontWeight, opacity} = getComputedStyle(e);
    const size = parseFloat(fontSize), large = size >= 24 || (size > 18.6 && fontWeight >= 700);
    const link = e.closest("a");
    const look = [color, large, opacity, grounds(e), link && around(link)].join();
    if (!found.has(look)) found.set(look, link ?? e);
  }
  return [...found].filter(([look]) => !passed.includes(look));
}"""
# Of the words of code, those with such a text.
KEEP = """looks => {
  const kept = new Set(looks.flat().map(([, element]) => element));
  for (const e of document.querySelectorAll("pre span")) {
    if (!kept.has(e)) e.replaceWith(...e.children);
  }
}"""
# What remains when colours are looked at: those texts, what they stand in, and what it stands in.
ALONE_WITH = """looks => {
  const kept = new Set();
  for (let [, e] of looks.flat()) {
    while (getComputedStyle(e).display.startsWith("inline")) e = e.parentElement;
    e.querySelectorAll("*").forEach(part => kept.add(part));
    for (; e; e = e.parentElement) kept.add(e);
  }
  for (const e of document.body.querySelectorAll("*")) if (!kept.has(e)) e.remove();
}"""
AXE = """async ([looks, rules]) => {
  const options = {preload: false, resultTypes: ["violations"], ...rules};
  const included = looks ? {include: looks.map(([, element]) => element)} : document;
  const result = await axe.run(included, options);
  return result.violations.flatMap(rule => rule.nodes.map(
    node => [rule.id, rule.impact, node.html.slice(0, 200), node.failureSummary]));
}"""
COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}
REST = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
REST["rules"] = {rule: {"enabled": False} for rule in COLOURS["runOnly"]}
PASSED: set[str] = set()  # looks of texts with enough contrast


# Of parts that differ in words and addresses alone, such as the rows of a table, axe sees two.
THIN = """() => {
  document.querySelectorAll("mjx-container").forEach(e => e.outerHTML = "<span>x</span>");
  const named = [...document.querySelectorAll("[for], [aria-describedby], [aria-labelledby], "
    + "[aria-controls], [aria-owns]")].flatMap(e => [...e.attributes]
    .filter(a => /^(for|aria-(desc|labelledby|con|owns))/.test(a.name)).map(a => a.value));
  const form = e => e.tagName + !e.textContent.trim() + named.includes(e.id) + [...e.attributes]
    .filter(a => !/^(id|href|src|data-.*)$/.test(a.name)).map(a => `${a.name}=${a.value}`)
    + `<${[...e.children].map(form)}>`;
  for (const box of document.querySelectorAll("table, tbody, ul, ol, dl")) {
    const seen = {};
    for (const e of [...box.children]) {
      const one = form(e);
      seen[one] = (seen[one] ?? 0) + 1;
      if (seen[one] > 2) e.remove();
    }
  }
}"""


def axe_problems(tab) -> list[str]:
    """Return axe's serious and critical findings; contrast is looked at in light and in dark.

    The thousands of elements inside formulas are MathJax's, those of code are Pygments', of which
    colour alone matters; both go before: call this last.
    """
    tab.add_style_tag(content="* { transition: none !important }")  # no colours on their way
    tab.evaluate(THIN)
    found = []
    looks = {}
    for mode in ("dark", "light"):
        tab.evaluate("mode => { document.documentElement.dataset.theme = mode; }", mode)
        looks[mode] = tab.evaluate_handle(LOOKS, sorted(PASSED))
    tab.evaluate(KEEP, list(looks.values()))
    tab.evaluate(AXE_SCRIPT)
    found += [("either", *finding) for finding in tab.evaluate(AXE, [None, REST])]
    tab.evaluate(ALONE_WITH, list(looks.values()))
    for mode in ("light", "dark"):
        if new := looks[mode].evaluate("looks => looks.map(([look]) => look)"):
            tab.evaluate("mode => { document.documentElement.dataset.theme = mode; }", mode)
            bad = tab.evaluate(AXE, [looks[mode], COLOURS])
            PASSED.update([] if bad else new)
            found += [(mode, *finding) for finding in bad]
    return [
        f"axe, {mode}: {rule}: {html}: {why}"
        for mode, rule, impact, html, why in found
        if impact in ("serious", "critical")
    ]


# Formulas count as no words: MathJax's characters are none. Nor do the contents of boxes and
# proofs that are folded, and not the exercises' solutions. The box under the title is not the
# chapter's text; test_course.py holds it to its own length.
READING = """() => {
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
  return [words.length, pictures.filter((e) => !e.matches("input")).length, code.length,
    pictures.length ? Math.round(Math.min(...pictures.map(top))) : null];
}"""
# Chapters whose first picture or slider is below the first screen: a quarter of all at most.
LATE = {"book/beyond/loss_ep.html", "book/guide/when_to_use.html"}


def reading_problems(tab, page: str) -> list[str]:
    """Say where a chapter, as Read shows it, asks too much or shows too little.

    It is held to it once its evidence has a section of its own.
    """
    if not tab.locator("section#evidence").count():
        return []
    words, figures, code, first = tab.evaluate(READING)
    found = [f"{words} words, at most 2000"] * (words > 2000)
    found += [f"{figures} figures, at least 3"] * (figures < 3)
    found += [f"{code} lines of code, not 10 to 40"] * (not 10 <= code <= 40)
    late = first > DESKTOP["height"] and page not in LATE
    return found + [f"the first picture is at {first} px"] * late


def everything(visit: Visitor, framed: bool = True) -> list[str]:
    """Return all that is wrong with a page, with what it hides unfolded.

    The last to look is axe, on a phone where what frames the page does not matter.
    """
    tab = visit.tab
    tab.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    tab.evaluate("document.querySelectorAll('.toggle-button').forEach(e => e.click())")
    if tab.locator("input[name=mode]").count():
        tab.locator("input[name=mode]:checked").press("ArrowRight")  # to "Check", laid out once
    found = [
        *formula_problems(tab),
        *heading_problems(tab),
        *slider_problems(tab),
        *width_problems(tab),
    ]
    if framed:
        tab.set_viewport_size(DESKTOP)
    # Before axe takes parts away that the page's scripts may look for.
    found += [*requests_that_leave(visit), *visit.messages, *weight_problems(visit)]
    return found + axe_problems(tab)


# ------------------------------------------------------------------------------------ the book


@pytest.fixture(scope="module")
def visitor(browser):
    """One tab for all tests: its process has compiled the scripts."""
    with browser.new_context(viewport=DESKTOP, offline=True, color_scheme="light") as context:
        yield Visitor(context)


@pytest.fixture
def visit(visitor):
    """Open a page; what it remembers, such as that one checks, is forgotten when the test ends."""
    yield visitor.go
    visitor.tab.evaluate("localStorage.clear()")


@pytest.mark.parametrize("page", PAGES)
def test_page_in_a_browser(visit, page):
    visited = visit(HTML / page)
    assert not reading_problems(visited.tab, page) + everything(visited, page in FRAMED)


def test_most_chapters_begin_with_a_picture():
    chapters = [p for p in PAGES if '<section id="evidence">' in (HTML / p).read_text("utf-8")]
    assert set(chapters) > LATE and 4 * len(LATE) <= len(chapters)


def test_the_front_page_follows_the_system_and_its_search_leads_to_a_page(visit):
    visited = visit(HTML / "book/index.html")
    tab = visited.tab
    tab.emulate_media(color_scheme="dark")  # the theme follows
    tab.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    tab.emulate_media(color_scheme="light")
    tab.keyboard.press("Control+K")
    tab.keyboard.type("Bregman")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/search.html?q=Bregman*")
    tab.locator("#search-results li a").first.click()
    tab.wait_for_url(re.compile(r"/book/.+\.html"))
    assert "Bregman" in tab.locator("article").inner_text()
    assert not requests_that_leave(visited) + visited.messages


# What a reader types, and the place that must come first.
SEARCHES = {
    "Theorem 8": "learning/laplace.html#(theorem-8.*|claim-wn-theorem-8)",
    '"Theorem 8"': "learning/laplace.html#(theorem-8.*|claim-wn-theorem-8)",
    "Table 2": "learning/learned_losses.html#claim-wn-table-2",
    "loss-EM": "calibrating/loss_em.html",
    "Table 3, line 7": "calibrating/gp_classification.html#claim-lhg-table-3",
    "W&N equation (13)": "learning/linkgistic.html#claim-wn-equation-13",
    "LHG Figure 1": "calibrating/decision_theory.html#claim-lhg-figure-1",
    "Bregman": "learning/proper_losses.html#def-bregman",
    "expectation propagation": "beyond/loss_ep.html",
    "Platt": "(beyond/calibration|guide/calibration_methods).html.*",
    "LinkCalibrator": "reference/api.*#bayesloss[a-z_.]*.LinkCalibrator",
    "LHG (5)": "calibrating/decision_theory.html#claim-lhg-equation-5",
    "equation 11": "learning/laplace.html#claim-wn-equation-11",
    "linkgistc": "learning/linkgistic.html",
    "plant": "calibrating/decision_theory.html#.*plant",
    "Nystrom": "learning/nystrom.html",
    # what a newcomer types
    "how do I use my own data": "guide/your_own_data.html",
    "cost matrix": "guide/scores_and_costs.html#cost-matrix.*",
    "xgboost scores": "guide/scores_and_costs.html.*",
    "calibrate boosting": "guide/scores_and_costs.html.*",
    "two costs": "guide/scores_and_costs.html",
    "install": "guide/install.html",
    "rerun notebook": "guide/install.html#run-a-notebook-again",
    "xgboost": "guide/scores_and_costs.html.*",
    "glossary": "reference/glossary.html",
    "jupyterlab": "guide/change_a_number.html.*",
    "course": "course/plan.html",
    "cite": "reference/cite.html",
    "calibration": "(beyond/calibration|guide/calibration_methods).html",
    "when to use": "guide/when_to_use.html",
    "save model": "guide/your_own_data.html#save-and-load-again",
    "choose a threshold": "guide/scores_and_costs.html#cost-matrix.*",
    "imbalanced classes": "guide/your_own_data.html#words.*",
    "missing values": "guide/your_own_data.html#words.*",
    "active learning": "guide/scores_and_costs.html#which-labels-next",
    "which calibrator": "guide/calibration_methods.html",
    "lecture slides": "course/plan.html",
    "download pdf": "reference/cite.html",
    # the words of several phrases together
    "horsepower mpg": "learning/auto_mpg.html",
    "why is fitting slow": "learning/em_cost.html",
}


def first_found(tab, query):
    tab.locator(".bd-search-container [name=q]").fill(query)
    return tab.locator("#search-results li a").first.get_attribute("href").removeprefix("book/")


def test_the_right_place_is_found_first(visit):
    """The page searches as one types, takes quotes as they stand, and has claims by verdict."""
    visited = visit(HTML / "search.html")
    tab = visited.tab
    status = visited.tab.locator("#search-status")
    found = {query: first_found(tab, query) for query in SEARCHES}
    assert not {q: at for q, at in found.items() if not re.fullmatch(SEARCHES[q], at)}
    first_found(tab, "linkgistc")
    assert "“linkgistic”" in status.inner_text()
    counts = []
    for query in ("table 2", '"table 2"'):
        first_found(tab, query)
        counts.append(int(re.search(r"(\d+) places", status.inner_text())[1]))
    assert 0 < counts[1] < counts[0]
    tab.locator("[name=verdict]").select_option("fails")
    assert first_found(tab, "theorem 8") == "learning/laplace.html#claim-wn-theorem-8"
    assert set(tab.locator("#search-results .claim-verdict").all_inner_texts()) == {"fails"}
    assert not requests_that_leave(visited) + visited.messages


def test_what_is_found_leads_somewhere():
    script = (HTML / "_static" / "search_index.js").read_text(encoding="utf-8")
    entries = json.loads(script.removeprefix("const SEARCH_INDEX = ").rstrip(";\n"))
    assert {entry["kind"] for entry in entries} == {"section", "claim", "api"}
    anchors = {}
    for entry in entries:
        page, _, place = entry["url"].partition("#")
        if page not in anchors:
            html = (HTML / page).read_text(encoding="utf-8")
            anchors[page] = set(re.findall(r'id="([^"]+)"', html))
        assert not place or place in anchors[page], entry["url"]


def evidence(tab):
    """How many boxes are shown, and how many chips that open one."""
    return [
        tab.locator(f".bd-article {what}:visible").count()
        for what in (".claim[id]", ".chip[aria-controls]")
    ]


def test_reading_folds_the_evidence_checking_shows_it_and_terms_say_their_meaning(visit):
    tab = visit(HTML / "book/learning/toy_regression.html").tab
    term = tab.locator("a.term").first
    tip = tab.locator(".term-tip")
    assert not tip.is_visible()
    for show in (term.hover, term.focus):
        show()
        assert tip.is_visible() and tip.inner_text().startswith("posterior: ")
        tab.keyboard.press("Escape")
        assert not tip.is_visible()
    told = tab.locator(f"#{term.get_attribute('aria-describedby')}")
    assert told.text_content().startswith("posterior: ")
    boxes = tab.locator(".bd-article .claim[id]").count()
    assert evidence(tab) == [0, boxes]
    assert tab.locator("details.hide:visible, details.made:visible").count() == 0
    chip = tab.locator(".chip[aria-controls]").first
    in_text = tab.locator("a.chip[aria-controls]").count()
    chip.press("Enter")
    assert chip.get_attribute("aria-expanded") == "true"
    assert evidence(tab) == [1, boxes]
    chip.click()
    assert evidence(tab) == [0, boxes]
    tab.locator("input[name=mode]:checked").press("ArrowRight")  # the keyboard suffices
    assert evidence(tab) == [boxes, in_text]
    assert tab.locator("details.hide:visible").count() > 0
    tab.reload()
    assert evidence(tab) == [boxes, in_text]  # it is remembered
    tab.locator("input[name=mode]:checked").press("ArrowLeft")
    assert evidence(tab) == [0, boxes]
    assert not axe_problems(tab)


def test_notebooks_are_saved_from_disk(visit):
    visited = visit(HTML / "book/guide/your_own_data.html")
    for button, source in {
        "a.notebook": HTML / "notebooks/guide/your_own_data_student.ipynb",
        ".made-page a.download": notebooks.notebook_path("guide/your_own_data"),
    }.items():
        with visited.tab.expect_download() as download:
            visited.tab.locator(button).click()
        assert download.value.suggested_filename == source.name
        assert download.value.path().read_bytes() == source.read_bytes()
        visited.tab.locator("input[name=mode]:checked").press("ArrowRight")  # the other is there
    assert not requests_that_leave(visited) + visited.messages


def test_the_scorecard_unfolds_what_is_asked_for_and_a_link_opens_the_box_in_view(visit):
    tab = visit(HTML / "book/reference/scorecard.html").tab
    claims = tab.locator("table.scorecard > tbody:visible")
    assert claims.count() == 0
    assert tab.evaluate("document.documentElement.scrollHeight") < 6_500
    tab.locator(".scorecard-filter [name=words]").fill("theorem 8")
    assert claims.evaluate_all("all => all.map(e => e.id)")[0] == "wn-theorem-8"
    tab.locator(".scorecard-filter [type=reset]").click()
    tab.wait_for_function("!document.querySelector('table.scorecard > tbody').checkVisibility()")
    tab.set_viewport_size(PHONE)
    tab.evaluate("location.hash = 'wn-theorem-8'")
    tab.locator("#wn-theorem-8 th a").click()  # once it is visible
    tab.wait_for_url("**/laplace.html#claim-wn-theorem-8")
    box = tab.locator("#claim-wn-theorem-8")
    box.wait_for(state="visible")
    tab.wait_for_timeout(500)  # formulas above it take their room
    for part in (".claim-head", ".math >> nth=0", "tbody"):
        area = box.locator(part).bounding_box()
        assert 0 <= area["y"] < PHONE["height"] - area["height"], part


def test_an_erratum_opens_to_its_derivation_and_the_box_that_it_quotes(visit):
    tab = visit(HTML / "book/reference/errata.html").tab
    shown = tab.locator(".claim:visible, td > p:visible:text-is('derivation')")
    assert shown.count() == 0
    tab.locator("button.chip").first.press("Enter")
    assert shown.count() == 2


def test_paper_shows_what_the_screen_shows(visit):
    """In Read the argument, with the chips in the text; in Check all boxes."""
    tab = visit(HTML / "book/learning/isgp.html").tab
    boxes = tab.locator(".bd-article .claim[id]").count()
    tab.emulate_media(media="print")
    assert tab.locator(".bd-article .claim[id]:visible").count() == 0
    assert tab.locator("a.chip:visible").count() > 0
    assert tab.locator("section#evidence:visible, .bd-article .legend:visible").count() == 0
    tab.emulate_media(media="screen")
    tab.locator("input[name=mode]:checked").press("ArrowRight")
    tab.emulate_media(media="print")
    assert tab.locator(".bd-article .claim[id]:visible").count() == boxes > 10


def test_the_keyboard_passes_formulas_by_and_code_fits_a_phone(visit):
    tab = visit(HTML / "book/learning/isgp.html", width=PHONE).tab
    assert tab.locator(".bd-article mjx-container").count() > 50
    stops = tab.locator(".bd-article mjx-container[tabindex='0']").evaluate_all(
        "formulas => formulas.filter(e => e.scrollWidth <= e.clientWidth).length"
    )
    assert stops == 0  # but what scrolls must be reached
    tab.locator("input[name=mode]:checked").press("ArrowRight")
    wide = tab.locator(".bd-article .cell_input pre:visible").evaluate_all(
        "boxes => boxes.filter(e => e.scrollWidth > e.clientWidth + 1).length"
    )
    assert wide == 0


@pytest.mark.parametrize("page", ["book/learning/isgp.html", "book/calibrating/loss_em.html"])
def test_at_most_60_tab_stops_before_the_end_of_the_first_section(visit, page):
    tab = visit(HTML / page).tab
    first = tab.locator("article section section").first.element_handle()
    stops = 0
    while True:
        tab.keyboard.press("Tab")
        behind = tab.evaluate(
            """section => !section.contains(document.activeElement)
            && Boolean(section.compareDocumentPosition(document.activeElement) & 4)""",
            first,
        )
        if behind:
            break
        stops += 1
    assert stops <= 60


def test_without_scripts_everything_is_shown(browser):
    with browser.new_context(java_script_enabled=False) as context:
        tab = context.new_page()
        tab.goto((HTML / "book/learning/laplace.html").as_uri())
        boxes = tab.locator(".claim[id]").count()
        assert boxes > 10
        assert tab.locator(".claim[id]:visible").count() == boxes


# ------------------------------------------------------------ the guards see what they should

THEME = """<!doctype html><html lang="en"><title>t</title><script>
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const follow = () => { root.dataset.theme = dark.matches ? "dark" : "light"; };
  dark.onchange = follow;
  follow();
</script><style>html { background: white } html[data-theme=dark] { background: black }
  a { color: #222 } html[data-theme=dark] p { color: white }</style><main><article>"""

WIDE = """<div class=bd-article style='width: min(700px, 100vw - 20px); overflow-x: auto'
  tabindex=0><table style='width: {}px'><tr><td>{}</table></div>"""


WRONG = {
    "<h1>a</h1><h3>b</h3>": "of level 3 after one of level 1",
    "<h1>a</h1>": "2 titles",
    "<span class=math>x</span>": "not rendered",
    "<p>then \\mathbb{R} follows</p>": "raw",
    "<mjx-container><mjx-mtext style='color: red'>q</mjx-mtext></mjx-container>": "error colours",
    "<div><svg></svg><input type=range></div>": "no label names",
    "<div><svg></svg><label>a<input type=range></label></div>": "nothing moves",
    "<p style='width: 500px'>a</p>": "px wide",
    WIDE.format(900, "b"): "at 1300 px: 200 px of 'b' are cut off",
    WIDE.format(600, "c"): "at 390 px: 230 px of 'c' are cut off",
    "<p style='color: #ccc'>some words</p>": "axe, light: color-contrast",
    "<a href='#b'>only in the dark</a>": "axe, dark: color-contrast",
    "<p>some words <a href='#c' style='text-decoration: none'>link</a></p>": "link-in-text-block",
    "<button></button>": "axe, either: button-name",
    "<ul><li>a<li>b<li>c<li><img src='data:,'></ul>": "axe, either: image-alt",
    "<ul><li>a<li>b<li>c<li style='color: #ddd'>pale words</ul>": "color-contrast: <li style",
    "<img src='http://127.0.0.1:9/a.png' alt=a>": "asks for http://127.0.0.1",
    "<script>console.error('oh')</script>": "oh",
    "<script>nothing()</script>": "uncaught",
}
# A page that is wide by itself would hide it, and one with a title.
ALONE = {
    "<h2>a</h2>": "0 titles",
    "<div style='overflow: hidden'><p style='width: 500px'>a</div>": "too wide",
}


@pytest.mark.parametrize("wrong", [WRONG, ALONE])
def test_guard_sees_what_is_wrong(visit, tmp_path, wrong):
    page = tmp_path / "page.html"
    page.write_text(THEME + "".join(wrong), encoding="utf-8")
    found = everything(visit(page))
    assert not [said for said in wrong.values() if not any(said in each for each in found)]


def test_guard_sees_a_heavy_page(visit, tmp_path):
    (tmp_path / "a.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>" + " " * LIMIT)
    (tmp_path / "page.html").write_text("<img src='a.svg' alt='a'>")
    assert weight_problems(visit(tmp_path / "page.html")) == ["loads 6.0 MB"]


def test_guard_lets_a_good_page_pass(visit, tmp_path):
    page = tmp_path / "page.html"
    scrolls = "<div style='overflow-x: auto' tabindex=0><p style='width: 500px'>a</div>"
    page.write_text(THEME + "<h1>a</h1><h2>b</h2><h3>c</h3><h2>d</h2>" + scrolls)
    assert everything(visit(page)) == []
