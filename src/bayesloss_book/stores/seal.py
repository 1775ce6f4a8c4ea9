"""The two files of a store, which seal each other: ``python -m bayesloss_book.stores.seal``.

A table, ``<name>.csv``, and ``<name>.provenance.json``, whose last entry is the seal::

    "seal": {"header": [...], "table": sha256 of the table, "provenance": sha256 of the rest}

The sum of the provenance is taken over all that stands before it, the table's sum included, and the
file must be as JSON writes it, to the letter: so no character of either file can be changed without
being found when the store is next read. That is against accidents and quiet edits; who changes a
number and then makes a new seal is found by ``make verify``, which measures again, and by git.

A write puts both files beside the old ones, whole and on the disk, and then renames the provenance
and the table. The first rename decides: a run that is killed before it has stored nothing, and one
that is killed after it has stored all, for the table is still found under its temporary name.

As a command it seals the stores of a folder that have no seal, those that older code wrote. It does
not mend a broken seal.
"""

import argparse
import contextlib
import csv
import hashlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

Row = dict[str, Any]

_TYPES = {"str": (str,), "int": (int,), "float": (float,), "bool": (bool,)}

# The sum of each table that this process has read, by its path: `tools/notebooks.py` asks.
tables_read: dict[str, str] = {}

# What a provenance must have, and each of its runs.
_PROVENANCE = {
    **dict.fromkeys(("experiment", "function"), (str,)),
    **dict.fromkeys(("parameters", "columns"), (dict,)),
    "threads": (int,),
    "runs": (list,),
}
_RUN = {
    **dict.fromkeys(("start", "end", "processor", "platform"), (str,)),
    **dict.fromkeys(("cells", "n_jobs"), (int,)),
    "seconds": (int, float),
    "commit": (str, type(None)),
    "versions": (dict,),
}


def is_stored(table: Path) -> bool:
    """Tell whether there is a table, be it under the name that a killed write left it."""
    return table.exists() or is_half_done(table)


def is_half_done(table: Path) -> bool:
    """Tell whether a write was killed between its two renames: the table is still to come."""
    temporary, provenance = _temporary(table), _beside(table)
    try:
        return _sum(temporary.read_bytes()) in provenance.read_text("utf-8")
    except (OSError, ValueError):
        return False


def read(table: Path) -> tuple[list[Row], dict[str, Any]]:
    """Read the rows and their provenance, without the seal, and check every character of both."""
    if not is_stored(table):
        raise FileNotFoundError(f"expected results in {table}, got no such file; run `make paper`")
    try:
        content, text = _contents(table)
        provenance = _provenance(table, text)
        if "seal" not in provenance:
            raise ValueError(
                f"{_beside(table)}: expected a seal, got none; if older code stored these rows, "
                "`python -m bayesloss_book.stores.seal` seals them"
            )
        stamp = provenance.pop("seal")
        changed = "was changed after it was written: its seal is broken (`git diff` may show where)"
        if type(stamp) is not dict or text != _sealed(provenance, stamp):
            raise ValueError(f"{_beside(table)} {changed}")
        _, rows = _rows(table, content, provenance, stamp["header"])
        if stamp["table"] != _sum(content):
            raise ValueError(f"{table} {changed}")
        tables_read[str(table.resolve())] = stamp["table"]
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{error}. Expected whole rows in {table} and their provenance beside them: restore "
            "both files, or delete them to measure all cells anew"
        ) from error
    return rows, provenance


def write(table: Path, rows: Sequence[Row], provenance: dict[str, Any]) -> None:
    """Replace both files and seal them; a kill or an error leaves both as before, or both new."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    # Numbers as JSON, which tells 1, 1.0 and true apart and gives every float back exactly.
    writer.writerows(
        {n: v if isinstance(v, str) else json.dumps(v) for n, v in row.items()} for row in rows
    )
    _replace(table, text.getvalue().encode(), provenance, list(rows[0]))


def settle(table: Path) -> None:
    """Finish what a killed write left half done; only for the one process that may write."""
    if is_half_done(table):
        os.replace(_temporary(table), table)


def seal(table: Path) -> bool:
    """Seal a store that has no seal, and tell whether it had none; raises what `read` raises."""
    content, text = _contents(table)
    provenance = _provenance(table, text)
    unsealed = "seal" not in provenance
    if unsealed:
        header, _ = _rows(table, content, provenance)
        _replace(table, content, provenance, header)
    read(table)
    return unsealed


def main(arguments: list[str] | None = None) -> int:
    """Seal every store of a folder that has no seal; return the number of damaged stores."""
    parser = argparse.ArgumentParser(description="seal the stores that older code wrote")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("data/results"))
    wrong = 0
    for table in sorted(parser.parse_args(arguments).folder.glob("*.csv")):
        try:
            if seal(table):
                print(f"{table.stem}: sealed")
        except (OSError, ValueError) as error:
            wrong += 1
            print(error)
    return wrong


def _beside(table: Path) -> Path:
    return table.with_suffix(".provenance.json")


def _temporary(path: Path) -> Path:
    # Always the same name, so that the next run overwrites what a kill left behind.
    return path.with_name(f".{path.name}.tmp")


def _contents(table: Path) -> tuple[bytes, str]:
    """Return the bytes of the table and the text of the provenance, as one write left them."""
    before = None
    while True:  # more than twice only while another process writes
        text = _beside(table).read_text("utf-8")
        contents = []
        for path in (table, _temporary(table)):
            with contextlib.suppress(FileNotFoundError):  # it may get its last name meanwhile
                contents.append(path.read_bytes())
        for content in contents:
            if _sum(content) in text:
                return content, text
        if before == (before := (text, contents)):
            return table.read_bytes(), text


def _provenance(table: Path, text: str) -> dict[str, Any]:
    """Return the provenance, or raise ValueError for one of another shape."""

    def refuse(where: str, expected: object, value: object) -> NoReturn:
        raise ValueError(f"{_beside(table)}: expected {where}to be {expected}, got {value!r:.80}")

    def check(value: Any, types: Mapping[str, tuple[type, ...]], where: str) -> None:
        if type(value) is not dict:
            refuse(where, "a JSON object", value)
        for name, kinds in types.items():
            if type(value.get(name)) not in kinds:
                names = " or ".join(kind.__name__ for kind in kinds)
                refuse(f"{where}{name!r} ", names, value.get(name))

    try:
        provenance = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{_beside(table)}: expected JSON, got {error}") from error
    check(provenance, _PROVENANCE, "")
    for name, kind in provenance["columns"].items():
        if kind not in _TYPES:
            refuse(f"the type of column {name!r} ", sorted(_TYPES), kind)
    for number, run in enumerate(provenance["runs"]):
        check(run, _RUN, f"in run {number}, ")
    return provenance


def _rows(
    table: Path,
    content: bytes,
    provenance: Mapping[str, Any],
    stored: list[str] | None = None,
) -> tuple[list[str], list[Row]]:
    """Return the header and the rows, or raise ValueError with the line and the column."""
    columns: dict[str, str] = provenance["columns"]

    def refuse(line: int, message: str) -> NoReturn:
        raise ValueError(f"{table}, line {line}: {message}")

    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
    except UnicodeDecodeError as error:
        refuse(
            content.count(b"\n", 0, error.start) + 1,
            f"expected UTF-8, got {content[error.start : error.end]!r}",
        )
    seen: dict[tuple[object, ...], int] = {}
    rows = []
    try:
        header = next(reader, [])
        _refuse_other_header(table, header, columns, stored)
        for cells in reader:
            line = reader.line_num
            if len(cells) != len(header):
                refuse(line, f"expected {len(header)} columns, got {len(cells)}")
            row = {}
            for column, text in zip(header, cells, strict=True):
                kind = columns.get(column, "number")
                try:
                    row[column] = value = text if kind == "str" else json.loads(text)
                except (ValueError, RecursionError):
                    value = None
                if type(value) not in _TYPES.get(kind, (int, float, bool)):
                    refuse(line, f"column {column!r}: expected {kind}, got {text!r:.80}")
            rows.append(row)
            key = tuple(row[column] for column in columns)
            if seen.setdefault(key, line) != line:
                refuse(line, f"expected each cell once, got that of line {seen[key]}: {key}")
    except csv.Error as error:
        refuse(reader.line_num, str(error))
    stated = sum(run["cells"] - run.get("replaced", 0) for run in provenance["runs"])
    if stated != len(rows):
        refuse(
            reader.line_num,
            f"expected {stated} rows, by the runs' `cells` less those `replaced` by a later run, "
            f"got {len(rows)}",
        )
    return header, rows


def _refuse_other_header(
    table: Path, header: list[str], columns: Mapping[str, str], stored: list[str] | None
) -> None:
    if stored is not None and header != stored:
        absent = [name for name in stored if name not in header]
        foreign = [name for name in header if name not in stored]
        raise ValueError(
            f"{table}, line 1: expected the columns that were stored, got "
            + (f"{foreign} instead of {absent}" if absent or foreign else "others or another order")
        )
    if absent := [name for name in [*columns, "seconds"] if name not in header]:
        raise ValueError(f"{table}, line 1: no column {absent}")
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise ValueError(f"{table}, line 1: expected each column once, got {twice} twice")


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sealed(provenance: dict[str, Any], stamp: dict[str, Any]) -> str:
    """Return the text of a provenance with its seal, given header and sum of the table."""
    stamp = {name: stamp.get(name) for name in ("header", "table")}
    own = _sum(json.dumps(provenance | {"seal": stamp}, indent=2).encode())
    return json.dumps(provenance | {"seal": stamp | {"provenance": own}}, indent=2) + "\n"


def _replace(table: Path, content: bytes, provenance: dict[str, Any], header: list[str]) -> None:
    """Write both files so that at any moment they are as they were, or as they are to be."""
    table.parent.mkdir(parents=True, exist_ok=True)
    text = _sealed(provenance, {"header": header, "table": _sum(content)})
    files = {table: content, _beside(table): text.encode()}
    try:
        for path, new in files.items():
            with _temporary(path).open("wb") as file:
                file.write(new)
                file.flush()
                os.fsync(file.fileno())
    except OSError:  # a full disk: make room, and leave the store as it was
        for path in files:
            _temporary(path).unlink(missing_ok=True)
        raise
    for path in reversed(files):
        os.replace(_temporary(path), path)


if __name__ == "__main__":
    raise SystemExit(main())
