import ast
import builtins
import re
import sys

import chapters
import nbformat
import notebooks
import pytest
import student_notebooks
from built_pages import HTML, built
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell
from pybtex.database import Entry, Person

import bayesloss_book
import paperledger
from paperledger.kernels import KERNEL

CHAPTERS = list(chapters.chapters())
PROBLEMS = [page for page in notebooks.pages() if student_notebooks.is_problem_set(page)]
NOTEBOOKS = CHAPTERS + PROBLEMS
QUICK = ("calibrating/decision_theory",)  # of a kernel each; `-m slow` runs all


def student(page, kind="student"):
    return nbformat.read(HTML / f"notebooks/{page}_{kind}.ipynb", as_version=4)


def sources(notebook, kind):
    return [cell.source for cell in notebook.cells if cell.cell_type == kind]


def code_problems(cells) -> list[str]:
    known = set(dir(builtins)) | {"display"}
    imported = set()
    found = []
    for place, source in enumerate(cells):
        found += [f"{len(line)} letters: {line}" for line in source.splitlines() if len(line) > 130]
        for statement in ast.parse(source).body:
            said = ast.unparse(statement)
            if re.search(r"\b(check_[fns]\w+|glue|prose)\(|\.ledger\b", said):
                found.append(f"of the ledger: {said[:80]}")
            if isinstance(statement, ast.Import | ast.ImportFrom):
                imported |= {name.asname or name.name.partition(".")[0] for name in statement.names}
                known |= imported
                found += [f"imported late: {said}"] * bool(place)
                continue
            read, bound = student_notebooks._flow(statement)
            found += [f"nothing binds {name}" for name in sorted(read - known)]
            found += [f"hides what is imported: {name}" for name in sorted(bound & imported)]
            known |= bound
    return found


def text_problems(text: str) -> list[str]:
    return re.findall(r"\{[a-z:]+\}`|^ *(?:```|:::)\{.*|\$\$ \([\w-]+\)", text, re.MULTILINE)


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_a_student_notebook_has_what_its_cells_need_and_no_checks(page):
    notebook = student(page)
    nbformat.validate(notebook)
    assert not code_problems(sources(notebook, "code"))
    assert not [each for text in sources(notebook, "markdown") for each in text_problems(text)]
    assert "## Evidence" not in "\n".join(sources(notebook, "markdown"))
    if page in PROBLEMS:  # its starters, each with a gap
        tasks = [code for code in sources(notebook, "code") if "assert" in code]
        assert len(tasks) >= 4 and all("..." in code for code in tasks)


def answers(page):
    """Each solution of a page: the code of a problem set's, and the text that is folded."""
    cells = notebooks.from_source(page).cells
    codes = [cell.source for cell in cells if "solution" in cell.metadata.get("tags", [])]
    texts = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    kind = r"^(`{3,}|:{3,})\{dropdown\} (.*)\n(?: *:.*\n|\s)*(.+)"
    folded = re.findall(kind, texts, re.MULTILINE)
    problems = student_notebooks.is_problem_set(page)
    found = [line for _, title, line in folded if problems or "olution" in title]
    return codes, [re.split(r"[{$`]", line)[0].strip() for line in found]


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_a_student_notebook_has_no_solutions(page):
    codes, texts = answers(page)
    given = "\n".join(sources(student(page), "code"))
    said = "\n".join(sources(student(page), "markdown"))
    gaps = [set(code.splitlines()) - set(given.splitlines()) for code in codes]
    assert all(gaps)
    assert not [text for text in texts if len(text) > 12 and text in said]
    assert not re.search(r"<summary>(A )?[Ss]olution", said)


@pytest.mark.parametrize("page", PROBLEMS)
def test_solutions_are_a_notebook_apart(page):
    notebook = student(page, "solutions")
    nbformat.validate(notebook)
    assert not code_problems(sources(notebook, "code"))
    codes, texts = answers(page)
    given = sources(notebook, "code")
    said = "\n".join(sources(notebook, "markdown"))
    assert not [each for text in sources(notebook, "markdown") for each in text_problems(text)]
    assert len([code for code in given if "assert" in code]) == len(codes) >= 4
    assert not [code for code in given if re.search(r"return \.\.\.|= \.\.\.", code)]
    assert texts and all(text in said for text in texts)
    (link,) = (a for a in built(page).select(".chapter-box a.notebook") if "Sol" in a.get_text())
    assert ((HTML / "book" / page).parent / link["href"]).resolve().is_file()


def test_the_solutions_of_a_set_run_as_they_stand():
    code = "\n".join(sources(student("course/problems_1", "solutions"), "code"))
    exec(compile(code, "solutions", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["Savage, Leonard J."], "Savage"),
        (['Riihim{\\"a}ki, Jaakko', "Vehtari, Aki"], "Riihimäki and Vehtari"),
        (["A, X.", "B, Y.", "de la C, Z."], "A, B and de la C"),
        (["A, X.", "B, Y.", "C, Z.", "D, W."], "A et al."),
    ],
)
def test_citations_name_their_authors(names, said):
    entry = Entry("article", persons={"author": [Person(name) for name in names]})
    assert student_notebooks.authors(entry) == said


def test_a_student_notebook_cites_authors_and_ends_with_the_works():
    *others, last = sources(student("learning/isgp"), "markdown")
    text = "\n".join(others)
    assert "(Walder and Nock, 2020)" in text and "(Riihimäki and Vehtari, 2010)" in text
    assert last.startswith("## Works cited\n\n* ")
    assert "Riihimäki and Aki Vehtari. Gaussian processes with monotonicity" in last
    for page in NOTEBOOKS:
        said = "\n".join(sources(student(page), "markdown"))
        assert "[cite" not in said and "{cite" not in said and r"{\"" not in said
        assert "**Proof .**" not in said


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_a_student_notebook_says_what_its_imports_need(page):
    notebook = student(page)
    command = student_notebooks.install(page)
    assert f"`{command}`" in notebook.cells[0].source
    code = "\n".join(sources(notebook, "code"))
    modules = set(re.findall(r"^ *(?:from|import) (\w+)", code, re.MULTILINE))
    brought = {"bayesloss", "numpy", "scipy", "sklearn", "torch"} | sys.stdlib_module_names
    if command == student_notebooks.OF_PRACTICE:
        brought |= {"joblib", "matplotlib", "pandas"}  # scikit-learn brings joblib
    if command == student_notebooks.OF_CHAPTERS:
        brought |= {"bayesloss_book", *bayesloss_book.NEEDED, "paperledger", *paperledger.NEEDED}
        brought |= {"dask", "sympy"}  # PyTorch brings the latter
    assert modules <= brought
    assert "../../data" not in code


def test_sections_say_what_may_be_changed():
    cells = [c for page in CHAPTERS for c in sources(student(page), "code") if "Change this" in c]
    assert len(cells) > 60
    assert not [cell for cell in cells if not re.search(r"^# \w+(, \w+)* = ", cell, re.MULTILINE)]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[] if page in QUICK else pytest.mark.slow) for page in CHAPTERS],
)
def test_a_student_notebook_runs_in_an_empty_folder(page, tmp_path):
    notebook = student(page)
    given = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, resources=given, **KERNEL).execute()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["x = y"], "nothing binds y"),
        (["x = 1", "import math"], "imported late: import math"),
        (["import rows", "rows = 1"], "hides what is imported: rows"),
        (["glue('n', 1)"], "of the ledger"),
        (["from paperledger.ledger.claims import ledger"], "of the ledger"),
        (["x = '" + "a" * 200 + "'"], "206 letters"),
    ],
)
def test_guard_sees_bad_code(cells, said):
    assert any(said in problem for problem in code_problems(cells))
    assert not code_problems(["import math\n\nx = math.pi", "f = lambda z: z + x\nf(x)"])


def test_guard_sees_what_is_left_of_myst():
    assert text_problems("{doc}`isgp`") and text_problems("$$ (eq-a)")
    assert text_problems("```{dropdown} A") and not text_problems("a $b$ `c`\n```python\nd\n```")


def test_code_keeps_what_is_shown_and_what_it_needs():
    hidden = {"tags": ["hide-input"]}
    cells = [
        new_markdown_cell("# A"),
        new_code_cell("from paperledger.ledger.checks import within\nimport math", metadata=hidden),
        new_code_cell("x = 1  # needed\ny = within(x, 1, 0)\nz = y", metadata=hidden),
        new_code_cell("rows = []\nrows.append(x)\nunused = 2\nprint(rows)", metadata=hidden),
        new_code_cell("seen = x + 1"),
    ]
    codes, imports = student_notebooks.code_of(cells, "paperledger.ledger")
    assert codes[2:] == [
        "x = 1  # needed",
        "rows = []\nrows.append(x)\nprint(rows)",
        "seen = x + 1",
    ]
    assert imports == "import math"


def test_code_without_the_book_keeps_the_library():
    cells = [
        new_code_cell(
            "from bayesloss import LogLoss\nfrom bayesloss_book.drawing.figures import use_style"
        ),
        new_code_cell("use_style()\nloss = LogLoss()\nprint(loss)"),
    ]
    codes, imports = student_notebooks.code_of(cells, "bayesloss_book")
    assert codes == ["", "loss = LogLoss()\nprint(loss)"]
    assert imports == "from bayesloss import LogLoss"


def test_changes_reach_what_depends_on_them():
    reach = {"n": {"n"}, "seed": {"seed"}}
    assert student_notebooks.depends("x = f(n)\ny = 2", reach) == {"n"}
    assert student_notebooks.depends("print(y)", reach) == set()
    assert student_notebooks.depends("z = []\nz.append(x)\nprint(z, seed)", reach) == {"n", "seed"}


@pytest.mark.parametrize("page", chapters.chapters())
def test_a_chapter_begins_with_its_box_and_marks_a_term_once(page):
    (box,) = built(page).select(".chapter-box")
    assert box.find_previous_sibling().name == "h1"
    said = box.get_text(" ", strip=True)
    asked = "; three questions for afterwards" * page.startswith(chapters.ASKED)
    end = rf"About \d+0?5? minutes{asked} ?\. Notebook make lab opens it\.$"
    assert re.search(rf"You need .+ You will be able to .+ {end}", said)
    assert len(said.split()) <= 70
    link = box.select_one("a.notebook")["href"]
    assert ((HTML / "book" / page).parent / link).resolve().is_file()
    words = built(page).select(".bd-article a > .std-term")
    places = [word.parent["href"].partition("#term-")[2].lower() for word in words]
    assert places and len(set(places)) == len(places)
    assert all(built(page).find(id=f"about-{place}") for place in places)
    assert not built(page).select(":is(h1, h2, h3, pre, #evidence) .std-term")


def test_boxes_name_chapters_that_come_before_them():
    order = notebooks.toc_files()
    parts = ("learning", "calibrating", "beyond", "guide")
    pages = {page for page in notebooks.pages() if page.partition("/")[0] in parts}
    # The checks that a student notebook leaves out are what the second is about.
    assert set(CHAPTERS) == pages - {"guide/ten_minutes", "guide/own_companion"}
    for page, told in chapters.chapters().items():
        for before in told.get("after", []):
            assert order.index(f"book/{before}.ipynb") < order.index(f"book/{page}.ipynb") or (
                page.startswith("learning/auto_mpg")
            )


def test_the_glossary_has_its_terms_in_order_each_with_a_chapter():
    terms = list(chapters.glossary())
    assert 40 <= len(terms) <= 60 and terms == sorted(terms, key=str.lower)
    entries = built("reference/glossary").select("dl.glossary > dd")
    assert len(entries) == len(terms)
    assert all(entry.select("a.reference.internal") for entry in entries)
    assert not [m for m in chapters.glossary().values() if re.search(r"[${}`]", m)]


def test_every_idea_of_the_map_leads_to_a_chapter():
    for page in ("index", "course/plan"):
        ideas = built(page).select(".idea-map li")
        assert len(ideas) == 6 and all(idea.select("a[href]") for idea in ideas)
