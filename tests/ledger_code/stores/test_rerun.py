import pytest

from paperledger.stores import rerun
from paperledger.stores.results import run_cells
from paperledger.stores.tables import read, write

MODULE = "companion.chapter.cost"  # of a page `chapter`, or of one `chapter/cost`
SETTINGS = f"""
package = "companion"
files = "{__name__}:files"
"""


def files(cell):
    """Images are not on this machine."""
    return {"images": False} if "images" in str(cell) else {}


def measure(x, data, scale):
    return {"square": scale * x**2, "length": len(data)}


@pytest.fixture
def store(tmp_path, monkeypatch):
    (tmp_path / "paperledger.toml").write_text(SETTINGS, "utf-8")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results"
    cells = [{"x": 1.0, "data": "wine"}, {"x": 2.0, "data": "images"}]
    run_cells(measure, cells, folder, "numbers", parameters={"scale": 3.0})
    rows, provenance = read(folder / "numbers.csv")
    write(folder / "numbers.csv", [row | {"seconds": 400.0} for row in rows], provenance)
    return folder


def again(store):
    return rerun.main(["numbers", "--folder", str(store), "--into", str(store.parent / "again")])


def test_all_of_a_store_is_measured_anew_elsewhere_and_compared(store, capsys):
    before = (store / "numbers.csv").read_bytes()
    assert again(store) == 0
    assert capsys.readouterr().out == "numbers: 2 cells agree in 4 measures\n"
    assert (store / "numbers.csv").read_bytes() == before
    rows, provenance = read(store.parent / "again" / "numbers.csv")
    assert [(row["x"], row["square"]) for row in rows] == [(1.0, 3.0), (2.0, 12.0)]
    assert provenance["parameters"] == {"scale": 3.0}

    stored, origin = read(store / "numbers.csv")
    changed = [row | {"square": 12.1} if row["x"] == 2.0 else row for row in stored]
    write(store / "numbers.csv", changed, origin)
    assert again(store) == 1
    said = capsys.readouterr().out
    assert said.startswith("numbers: 1 of 4 measures are not what is stored\n") and "12.1" in said


def test_the_table_is_read_off_the_store_without_what_was_superseded(store):
    rows, provenance = read(store / "numbers.csv")
    (run,) = provenance["runs"]
    gone = run | {"cells": 2, "replaced": 2, "processor": "Another One", "commit": "0" * 40}
    provenance |= {"function": f"{MODULE}:measure", "runs": [gone, run | {"commit": "a" * 40}]}
    write(store / "numbers.csv", rows, provenance)
    table = rerun.how_to_rerun(store, ["preface", "chapter"])
    (line,) = table.to_dict("records")
    assert (line["store"], line["page"], line["rows"]) == ("numbers", "chapter", 2)
    assert (line["seconds"], line["needs"], line["commit"]) == (800.0, "files of images", "a" * 10)
    (processor,) = line["processors"]
    assert processor.startswith(run["processor"]) and "Another" not in processor
    html = rerun.shown(table, root="..")._repr_html_()
    assert '<a href="../chapter.html"><code>numbers</code></a>' in html
    assert "<td>13\u00a0min</td>" in html and f", {'a' * 10}</td>" in html
    assert rerun.how_to_rerun(store, [])["page"].tolist() == [""]
