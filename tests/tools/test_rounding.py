import nbformat
import pytest
import rounding
from nbformat.v4 import new_code_cell, new_notebook


def test_what_might_turn_is_told_once_a_place():
    runs = [[("cell 1", ".1f", [0.249999, 0.2]), ("cell 2", None, [1e-3])] for _ in range(2)]
    assert not rounding.near(runs)
    runs[1][0] = ("cell 1", ".1f", [0.250001, 0.2])
    assert rounding.near(runs) == ["cell 1, printed as '.1f': 0.249999, spread 2e-06: 0.2 or 0.3"]
    assert rounding.near([runs[0], runs[1][:1]])[1] == "cell 2, compared: not on each processor"


@pytest.mark.parametrize(
    ("how", "values", "turns"),
    [
        (".1f", [0.0, 1e-9], True),  # 0.0 or -0.0
        ("z.1f", [0.0, 1e-9], False),
        (".3g", [9.994, 9.99401], False),
        (".3g", [9.9949, 9.99488], True),  # 9.99 or 10
        (".1%", [0.1235, 0.123501], True),
        (">8", [0.5, 0.5], False),
        (">8", [0.5, 0.5 + 1e-16], True),
        (None, [1.0, 1.05], False),
        (None, [1.0, 1.2], True),
        (".2f", [float("nan")] * 2, False),
    ],
)
def test_ten_times_the_spread_is_room_enough(how, values, turns):
    assert bool(rounding.near([[("cell 1", how, [value])] for value in values])) == turns


def test_a_page_is_recorded(tmp_path, monkeypatch):
    cell = """import numpy as np, pandas as pd
value, two = 1.2345678, np.array([1.26, 2.5])
print(f"{value:.2f} {value:>8}", "{:.1f}".format(value), round(value, 3))
print(two.round(1), np.round(two, decimals=1), round(value))
assert value < 2
value > 1
pd.DataFrame({"a": two, "b": ["x", "y"], "c": two}).round({"a": 1, "b": 0})"""
    page = new_notebook(cells=[new_code_cell(cell)])
    page.metadata["kernelspec"] = {"name": "python3", "display_name": "p", "language": "python"}
    monkeypatch.setattr("notebooks.from_source", lambda *_: nbformat.from_dict(page))
    monkeypatch.setattr("notebooks.notebook_path", lambda *_: tmp_path / "page.ipynb")
    found = rounding.run("page", {"MKL_CBWR": "AVX2"}, tmp_path / "found")
    assert [(how, len(values)) for _, how, values in found] == [
        (".2f", 1),
        (">8", 1),
        (".1f", 1),
        ("z.3f", 1),
        ("z.1f", 2),
        ("z.1f", 2),
        ("z.0f", 1),
        (None, 1),
        ("z.1f", 2),
    ]
    assert found[0] == ("cell 1, line:3", ".2f", [1.2345678])
    assert found[-2][2] == [1.2345678 - 2]
