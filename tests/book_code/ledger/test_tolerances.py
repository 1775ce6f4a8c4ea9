import fnmatch
import math
import random
import shutil
from pathlib import Path

import pytest

from bayesloss_book.ledger.tolerances import ELSEWHERE, TIMES
from paperledger.stores.tables import read
from paperledger.stores.tolerances import Within, first_fitting
from paperledger.stores.verify import RTOL, allowed

RESULTS = Path(__file__).resolve().parents[3] / "data" / "results"
STORES = sorted(path.stem for path in RESULTS.glob("*.csv"))


def stored(name):
    rows, provenance = read(RESULTS / f"{name}.csv")
    cells = [{column: row[column] for column in provenance["columns"]} for row in rows]
    return rows, cells


def measures_of(row, cell):
    return [name for name in row if name not in cell and name != "seconds"]


def test_tolerances_are_finite_and_fit_measures_that_there_are():
    """Of a table that stores share, each pattern is the first that fits in one of them."""
    unused = {}
    for name, patterns in [*ELSEWHERE.items(), *TIMES.items()]:
        for within in patterns.values():
            assert math.isfinite(within.relative) and math.isfinite(within.absolute)
            assert within.relative < 1
        left = unused.setdefault(id(patterns), set(patterns))
        rows, cells = stored(name)
        some = slice(None, None, max(1, len(rows) // 100))
        for row, cell in zip(rows[some], cells[some], strict=True):
            for measure in measures_of(row, cell):
                fits = (p for p in patterns if fnmatch.fnmatchcase(f"{measure} {cell}", p))
                pattern = next(fits, None)
                left -= {pattern}
                if pattern and patterns[pattern].error:
                    assert patterns[pattern].error.replace("*", measure) in row, (name, pattern)
    assert not any(unused.values()), unused


def test_every_time_has_a_tolerance():
    for path in RESULTS.glob("*.csv"):
        header = path.read_text("utf-8").partition("\n")[0].split(",")
        if any(name.endswith("_seconds") for name in header):
            assert "*_seconds *" in TIMES.get(path.stem, {}), path


def with_another_digit(value):
    """The value with its first digit one higher, or lower if it is nine."""
    if isinstance(value, bool):
        return not value
    if value == 0 or math.isnan(value):
        return type(value)(1)
    unit = 10.0 ** math.floor(math.log10(abs(value)))
    first = int(abs(value) / unit)
    changed = math.copysign(abs(value) + (unit if first < 9 else -unit), value)
    return round(changed) if isinstance(value, int) else changed


@pytest.mark.parametrize("name", STORES)
def test_a_digit_that_is_planted_is_noticed_in_each_store(name, tmp_path):
    """By the checksum wherever it is; by a cell measured again, if the checksum is made to fit.

    Elsewhere too, where tolerances are wide: in each cell by one measure at least, and by all of
    them in a store that has no tolerances.
    """
    for end in (".csv", ".provenance.json"):
        shutil.copy(RESULTS / f"{name}{end}", tmp_path)
    table = (tmp_path / f"{name}.csv").read_bytes()
    for place in random.Random(name).sample(range(len(table)), 20):
        if chr(table[place]).isdigit():
            digit = str((int(chr(table[place])) + 1) % 10).encode()
            (tmp_path / f"{name}.csv").write_bytes(table[:place] + digit + table[place + 1 :])
            with pytest.raises(ValueError, match="the table was changed"):
                read(tmp_path / f"{name}.csv")

    rows, cells = stored(name)
    within = allowed(name, ["Another One"])
    for k in random.Random(name).sample(range(len(rows)), min(10, len(rows))):
        row = rows[k]
        cell = cells[k]
        noticed = []
        for measure in measures_of(row, cell):
            planted = row | {measure: with_another_digit(row[measure])}
            tolerance = first_fitting(within, measure, cell, Within(RTOL))
            noticed.append(not tolerance.allows(measure, planted, row))
        assert any(noticed), cell
        assert within or all(noticed), cell
