import ast

import notebooks
import pytest

from paperledger.parameters import (
    LARGEST_SEED,
    SEED,
    SHARED,
    check_parameters,
    one_of,
    real,
    row,
    several,
    whole,
)

PROBLEMS = several(row(one_of("steps", "cubic"), whole(2), SEED), among=(("steps", 2, 0),))


@pytest.mark.parametrize(
    ("name", "value", "rule", "said"),
    [
        ("n_random", 49, whole(50), "expected a whole number of at least 50, got 49"),
        ("n_random", "many", whole(50), "expected a whole number of at least 50, got 'many'"),
        ("n_random", 60.0, whole(50), "expected a whole number of at least 50, got 60.0"),
        ("n_random", None, whole(50), "expected a whole number of at least 50, got None"),
        ("n_random", True, whole(0), "expected a whole number of at least 0, got True"),
        ("size", 1201, whole(100, 1200), "expected a whole number from 100 to 1,200, got 1201"),
        ("share", 1, real(0.1, 0.9), "expected a number from 0.1 to 0.9, got 1"),
        ("share", float("nan"), real(0.1, 0.9), "expected a number from 0.1 to 0.9, got nan"),
        ("start", 4, one_of(1, 2), "expected one of 1, 2, got 4"),
        ("sizes", 3, several(whole(1)), "each a whole number of at least 1, got 3"),
        ("sizes", [], several(whole(1)), "expected a tuple or list of 1 or more, each a whole"),
        ("sizes", [3, 4], several(whole(1), least=3), "expected a tuple or list of 3 or more"),
        ("shares", (1, 2), several(real(1), among=(1, 3)), "among them 1, 3, got (1, 2)"),
        ("sizes", [3, 0], several(whole(1)), "each a whole number of at least 1, got [3, 0]"),
        ("problems", [["step", 5, 0]], PROBLEMS, "each (one of 'steps', 'cubic'; a whole number"),
        ("problems", [["steps", 5]], PROBLEMS, "got [['steps', 5]]"),
        ("scale", "large", None, "expected one of 'quick', 'paper', got 'large'"),
        ("seed", -1, None, "expected a whole number from 0 to 4,294,967,295, got -1"),
        ("seed", "0", None, "expected a whole number from 0 to 4,294,967,295, got '0'"),
        ("n_jobs", 0, None, "expected a number of workers other than 0"),
        ("n_jobs", 1.5, None, "got 1.5"),
        ("results", "../../data/results", None, "--cwd FOLDER"),
        ("results", 3, None, "expected the folder of stored results, got 3"),
        ("book", "..", None, "--cwd FOLDER"),
    ],
)
def test_the_message_names_the_parameter_and_what_was_expected(
    name, value, rule, said, tmp_path, monkeypatch
):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")  # not the folder of a page
    rules = {} if rule is None else {name: rule}
    with pytest.raises(ValueError, match=f"^parameter {name}: ") as raised:
        check_parameters({name: value}, **rules)
    assert said in str(raised.value)


def test_all_wrong_parameters_are_named_at_once():
    with pytest.raises(ValueError, match="parameter seed: .*\nparameter n: "):
        check_parameters({"seed": -1, "n": 0, "scale": "quick"}, n=whole(1))


def test_what_a_page_can_work_with_passes():
    rules = {"n": whole(1, 3), "share": real(0.1, 0.9), "problems": PROBLEMS}
    given = {"n": 3, "share": 0.5, "problems": (["steps", 2, 0], ("cubic", 9, LARGEST_SEED))}
    check_parameters(given | {"seed": 0, "n_jobs": -1, "scale": "paper"}, **rules)
    check_parameters({"not_a_parameter": object()}, **rules)


@pytest.mark.parametrize("page", notebooks.pages())
def test_a_page_checks_all_its_parameters_and_has_allowed_ones(page, monkeypatch):
    monkeypatch.chdir(notebooks.notebook_path(page).parent)
    cells = [c for c in notebooks.from_source(page).cells if c.cell_type == "code"]
    (place,) = (n for n, c in enumerate(cells) if "parameters" in c.metadata.get("tags", []))
    check = cells[place + 1]
    assert check.metadata["tags"] == ["remove-cell"]
    given = {}
    for statement in ast.parse(cells[place].source).body:
        if isinstance(statement, ast.Assign):
            try:
                given[statement.targets[0].id] = ast.literal_eval(statement.value)
            except (AttributeError, ValueError):
                continue  # of what is computed from parameters
    call = ast.parse(check.source).body[-1].value
    assert call.func.id == "check_parameters"
    own = {keyword.arg for keyword in call.keywords}
    assert given.keys() - SHARED.keys() == own
    exec(check.source, dict(given))
