"""The tool that draws faults: each changes one place, and what it draws has no other source."""

import ast
import shutil
from pathlib import Path

import mutants
import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULE = '''"""A text with 1 + 1 in it."""

def f(x: "1 + 1", k=2):
    """Another: 2 * 3."""
    if x < 0:
        raise ValueError(f"{x + 1} is below 0")
    return -x * math.sin(k) + max(x, 1.5)
'''


def found(old: str) -> set[str]:
    return {fault.new for fault in mutants.faults("m.py", MODULE) if fault.old == old}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x < 0", {"(x <= 0)"}),
        ("-x", {"x"}),
        ("2", {"3"}),
        ("1.5", {"3.0"}),
        ("math.sin", {"math.cos"}),
        ("max(x, 1.5)", {"max(1.5, x)"}),
        ("-x * math.sin(k)", {"(-x)", "(-x / math.sin(k))"}),
        (
            "-x * math.sin(k) + max(x, 1.5)",
            {"(-x * math.sin(k))", "(-x * math.sin(k) - max(x, 1.5))"},
        ),
    ],
)
def test_kinds_of_faults(old, new):
    assert found(old) == new


def test_a_fault_changes_its_place_alone_texts_annotations_and_refusals_are_spared():
    every = list(mutants.faults("m.py", MODULE))
    assert {fault.line for fault in every} == {3, 5, 7}  # in line 3 the default alone
    assert {fault.old for fault in every if fault.line == 3} == {"2"}
    for fault in every:
        text = fault.into(MODULE)
        ast.parse(text)
        assert text == MODULE[: fault.start] + fault.new + MODULE[fault.end :] != MODULE


def test_the_same_seed_draws_the_same_faults_on_lines_of_their_own(tmp_path):
    part = "src/bayesloss/calibrating/probit"
    shutil.copytree(ROOT / part, tmp_path / part)
    one, other = mutants.draw(tmp_path, 20, 1), mutants.draw(tmp_path, 20, 2)
    assert one == mutants.draw(tmp_path, 20, 1) != other
    assert len({(fault.file, fault.line) for fault in one}) == 20


def test_a_module_is_tested_by_its_own_tests_first_then_by_those_of_its_importers(tmp_path):
    code = {
        "src/bayesloss/low.py": "",
        "src/bayesloss/learning/high.py": "from bayesloss.low import f",
        "src/bayesloss_book/page.py": "from bayesloss import low",
        "tests/test_low.py": "",
        "tests/test_defaults.py": "",
        "tests/learning/test_high.py": "",  # does not import it
        "tests/learning/test_other.py": "from bayesloss.learning.high import f",
        "tests/book_code/test_page.py": "from bayesloss_book.page import g",
        "tests/learning/test_none.py": "",
    }
    for name, text in code.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    near = ["learning/test_high", "learning/test_other", "book_code/test_page"]
    expected = [f"tests/{name}.py" for name in ("test_low", "test_defaults", *near)]
    assert mutants.test_files(tmp_path, "src/bayesloss/low.py") == expected
