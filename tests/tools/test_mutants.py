"""The tool that draws faults: each changes one place, and what it draws has no other source."""

import ast
import shutil
from pathlib import Path

import mutants
import pytest

ROOT = Path(__file__).resolve().parents[2]
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
        ("-x", {"(x)"}),
        ("2", {"(3)"}),
        ("1.5", {"(3.0)"}),
        ("math.sin", {"(math.cos)"}),
        ("max(x, 1.5)", {"(max(1.5, x))"}),
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
    one = mutants.draw(tmp_path, 20, 1)
    other = mutants.draw(tmp_path, 20, 2)
    assert one == mutants.draw(tmp_path, 20, 1) != other
    assert len({(fault.file, fault.line) for fault in one}) == 20


def test_a_module_is_tested_by_its_own_tests_first_then_by_the_nearest():
    tests = mutants.test_files(ROOT, "src/bayesloss/learning/sources/basis.py")
    assert tests[0] == "tests/learning/sources/test_basis.py"
    ranks = ["sources/", "learning/", "tests/test_"]
    seen = [next((r for r in ranks if r in test), "book_code") for test in tests]
    library = [test.startswith("tests/book_code") for test in tests]
    assert library == sorted(library) and len(set(tests)) == len(tests) > 100
    assert seen.index("sources/") < seen.index("learning/") < seen.index("tests/test_")
    assert mutants.test_files(ROOT, "src/bayesloss/kernels.py")[0] == "tests/test_kernels.py"
