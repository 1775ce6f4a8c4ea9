"""The two files of a store: a table, and where its rows come from.

``<name>.csv`` has a row a cell. ``<name>.provenance.json`` ends with a seal, the sha256 of the
table, so that a number that was changed is found when the store is next read; git keeps what it
was. The stores that were written before the checksum stood alone have more in their seals.

A write puts both files beside the old ones, whole and on the disk, and then renames the provenance
and the table. The first rename decides: a run that is killed before it has stored nothing, and one
that is killed after it has stored all, for the table is still found under its temporary name.
"""

import contextlib
import csv
import hashlib
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]

# What to do where a page was run in another folder than its own.
IN_ITS_FOLDER = (
    "a page runs in its own folder, with papermill by --cwd: "
    "papermill FOLDER/PAGE.ipynb out.ipynb --cwd FOLDER"
)

# The sum of each table that this process has read, by its path: whoever executes pages asks.
tables_read: dict[str, str] = {}


def is_stored(table: Path) -> bool:
    """Tell whether there is a table, be it under the name that a killed write left it."""
    return table.exists() or is_half_done(table)


def is_half_done(table: Path) -> bool:
    """Tell whether a write was killed between its two renames: the table is still to come."""
    try:
        return _sum(_temporary(table).read_bytes()) in _beside(table).read_text("utf-8")
    except (OSError, ValueError):
        return False


def settle(table: Path) -> None:
    """Finish what a killed write left half done; only for the one process that may write."""
    if is_half_done(table):
        os.replace(_temporary(table), table)


def read(table: Path) -> tuple[list[Row], dict[str, Any]]:
    """Read the rows and their provenance, without the seal, and check the table's sum."""
    if not table.parent.is_dir():
        raise FileNotFoundError(f"expected results in {table}, got no such folder; {IN_ITS_FOLDER}")
    if not is_stored(table):
        raise FileNotFoundError(
            f"expected results in {table}, got no such file; its page, executed with "
            'scale="paper", measures it'
        )
    try:
        content, text = _contents(table)
        provenance = json.loads(text)
        columns = provenance["columns"]
        seal = provenance.pop("seal")
        if seal["table"] != _sum(content):
            raise ValueError("the table was changed after it was written (see `git diff`)")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{table}: expected whole rows and their provenance beside them, got {error!r:.200}; "
            "restore both files, or delete them to measure all cells anew"
        ) from error
    tables_read[str(table.resolve())] = seal["table"]
    rows = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""))
    return [
        {n: v if columns.get(n) == "str" else json.loads(v) for n, v in row.items()} for row in rows
    ], provenance


def write(table: Path, rows: Sequence[Row], provenance: dict[str, Any]) -> None:
    """Replace both files; a kill or an error leaves both as before, or both new."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    # Numbers as JSON, which tells 1, 1.0 and true apart and gives every float back exactly.
    writer.writerows(
        {n: v if isinstance(v, str) else json.dumps(v) for n, v in row.items()} for row in rows
    )
    content = text.getvalue().encode()
    sealed = json.dumps(provenance | {"seal": {"table": _sum(content)}}, indent=2) + "\n"
    files = {table: content, _beside(table): sealed.encode()}
    table.parent.mkdir(parents=True, exist_ok=True)
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


def _contents(table: Path) -> tuple[bytes, str]:
    """The bytes of the table and the text of the provenance, as one write left them."""
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


def _beside(table: Path) -> Path:
    return table.with_suffix(".provenance.json")


def _temporary(path: Path) -> Path:
    # Always the same name, so that the next run overwrites what a kill left behind.
    return path.with_name(f".{path.name}.tmp")


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
