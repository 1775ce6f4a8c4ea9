from pathlib import Path

import empty_environments
import pytest
import student_notebooks
from nbformat.v4 import new_code_cell, new_notebook, new_output

WHEEL = Path("/folder/bayesloss-1-py3-none-any.whl")


def executed(source, error=None):
    outputs = (
        [] if error is None else [new_output("error", ename=error, evalue="why", traceback=[])]
    )
    return new_notebook(cells=[new_code_cell(source, execution_count=1, outputs=outputs)])


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import bayesloss_book", "ModuleNotFoundError"),
        ("x = ...\nassert x == y", "NameError"),
        ("assert x == 1", "AssertionError"),
    ],
)
def test_an_error_is_told_with_its_cell(source, error):
    (said,) = empty_environments.errors(executed(source, error))
    assert said == f"{error}: why, in\n{source}"


def test_a_cell_that_was_not_reached_is_told():
    assert empty_environments.errors(new_notebook(cells=[new_code_cell("x = 1")]))


def test_a_starter_may_fail_as_long_as_nothing_is_filled_in():
    assert not empty_environments.errors(executed("x = ...\nassert x == 1", "AssertionError"))
    assert not empty_environments.errors(executed("x = 1"))


def test_what_is_installed_is_what_the_notebooks_say():
    commands = {page: empty_environments.command(page, WHEEL) for page in empty_environments.PAGES}
    assert commands["course/problems_1"] == ["install", f"{WHEEL}"]
    assert commands["guide/your_own_data"][1:3] == [f"{WHEEL}[plot]", "pandas"]
    assert commands["guide/cluster"] == ["install", f"{WHEEL}[book]"]
    assert len(commands) == 11
    kinds = {student_notebooks.OF_PROBLEMS, student_notebooks.OF_PRACTICE}
    assert {student_notebooks.install(page) for page in commands} > kinds
