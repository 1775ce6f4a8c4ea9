import subprocess
import sys

from failures import LONGEST, failures

TESTS = """
import pytest


def test_right():
    pass


def test_wrong():
    assert 1 == 2, "one is " + "not " * 100 + "two"


@pytest.fixture
def broken():
    raise OSError("no such thing")


def test_without(broken):
    pass
"""


def test_each_failure_and_error_of_pytest_is_named_and_nothing_else(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    subprocess.run(
        [*command, "--color=yes", "--junitxml=units.xml"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    wrong, without = failures(tmp_path)
    assert wrong.startswith("units: test_some::test_wrong: AssertionError: one is not not")
    assert len(wrong) <= LONGEST + len("units: test_some::test_wrong: ")
    assert without.startswith("units: test_some::test_without: ")
    assert "no such thing" in without
    assert "\n" not in wrong + without


def test_colours_of_a_terminal_go(tmp_path):
    (tmp_path / "notebooks.xml").write_text(
        '<testsuite><testcase classname="book.page.ipynb" name="Cell 9">'
        '<failure message="#x1B[91mCell\n failed#x1B[0m"/></testcase></testsuite>'
    )
    assert list(failures(tmp_path)) == ["notebooks: book.page.ipynb::Cell 9: Cell failed"]


def test_nothing_is_said_without_reports(tmp_path):
    assert not list(failures(tmp_path))
