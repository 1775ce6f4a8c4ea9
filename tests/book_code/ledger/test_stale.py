"""The list of stale rows names stores, columns and values that there are."""

from pathlib import Path

import pytest

from bayesloss_book.ledger.stale import CHANGED_PAGES, STALE
from paperledger.configuration import configuration
from paperledger.ledger.seeds import code_of
from paperledger.stores.stale import is_stale
from paperledger.stores.tables import read

RESULTS = Path(__file__).parents[3] / "data" / "results"


@pytest.mark.parametrize("name", STALE)
def test_each_has_such_rows(name):
    rows, _ = read(RESULTS / f"{name}.csv")
    found = [row for row in rows if is_stale(name, row)]
    for column, values in STALE[name].where.items():
        assert {row[column] for row in found} <= set(values)
    assert found


def test_the_pages_are_those_whose_code_has_changed():
    pages = configuration().pages
    rows, _ = read(RESULTS / "verdicts_by_seed.csv")
    codes = {page: code_of(page, pages) for page in {row["page"] for row in rows}}
    changed = {row["page"] for row in rows if row["code"] != codes[row["page"]]}
    assert changed == set(CHANGED_PAGES)


def test_other_stores_have_none():
    assert not is_stale("auto_mpg", {"method": "linkgistic"})
