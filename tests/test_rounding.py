"""The tool that finds printed numbers near an edge of rounding: `tools/rounding.py`."""

import json

import nbformat
import numpy as np
import pytest
import rounding
from jupytext import writes
from nbformat.v4 import new_code_cell, new_notebook

from bayesloss_book.kernels import KERNEL


@pytest.mark.parametrize("how", [".0f", ".2f", "+.3f", ",.1f", ".1%", ".3g", ".2e", ".8g"])
def test_the_edge_is_where_the_digits_change(how):
    values = np.exp(np.random.default_rng(0).normal(size=200) * 4)
    room = rounding.edge(values, how)
    for value, far in zip(values, room, strict=True):
        assert format(value, how) == format(value + 0.999 * far, how)
        assert format(value, how) == format(value - 0.999 * far, how)
        beyond = 1.001 * far + 1e-13 * value
        assert {format(value + beyond, how), format(value - beyond, how)} != {format(value, how)}


def test_zero_has_no_sign_to_lose_and_a_small_number_has():
    assert rounding.edge(np.array([0.0]), ".1f") == 0.5 / 10
    assert rounding.edge(np.array([1e-9]), ".1f") == pytest.approx(1e-9)
    assert rounding.edge(np.array([1e-9]), "z.1f") == pytest.approx(0.05)


def test_what_is_near_is_told_once_a_place():
    runs = [[("cell 1", ".1f", [0.249999, 0.2]), ("cell 2", None, [1e-3])] for _ in range(2)]
    assert not rounding.near(runs)
    runs[1][0] = ("cell 1", ".1f", [0.250001, 0.2])
    (told,) = rounding.near(runs)
    assert told.startswith("cell 1, printed as '.1f': 0.249999, spread 2e-06")
    assert rounding.near([runs[0], runs[1][:1]])[1] == "cell 2, compared: not on each processor"


def test_a_page_is_recorded(tmp_path, monkeypatch):
    cell = """import numpy as np
value, two = 1.2345678, np.array([1.26, 2.5])
print(f"{value:.2f} {value:>8}", "{:.1f}".format(value), round(value, 3))
print(two.round(1), np.round(two, 1))
assert value < 2
value > 1"""
    page = new_notebook(cells=[new_code_cell(cell)])
    page.metadata["kernelspec"] = {"name": "python3", "display_name": "p", "language": "python"}
    (tmp_path / "page.md").write_text(writes(page, "md:myst"))
    monkeypatch.setattr("notebooks.from_source", lambda *_: nbformat.from_dict(page))
    monkeypatch.setattr("notebooks.BOOK", tmp_path)
    monkeypatch.setitem(KERNEL, "extra_arguments", [])
    monkeypatch.setenv("PYTHONPATH", str(rounding.Path(rounding.__file__).parent), prepend=":")
    rounding.record("page", str(tmp_path / "found"))
    found = [json.loads(line) for line in (tmp_path / "found").read_text().splitlines()]
    assert [(how, len(values)) for _, how, values in found] == [
        (".2f", 1),
        (">8", 1),
        (".1f", 1),
        ("z.3f", 1),
        ("z.1f", 2),
        ("z.1f", 2),
        (None, 1),
    ]
    assert found[0] == ["cell 1, line:3", ".2f", [1.2345678]]
    assert found[-1][2] == [1.2345678 - 2]
