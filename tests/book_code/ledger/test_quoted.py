"""What the print has is found from any folder."""

import pytest

from bayesloss_book.calibrating.asymmetric_losses import table_4
from bayesloss_book.learning.auto_mpg import table_1
from bayesloss_book.learning.learned_losses import summary
from bayesloss_book.ledger.quoted import quoted
from paperledger.ledger.claims import ledger


def test_it_is_what_the_ledger_has(tmp_path, monkeypatch):
    of_clone = ledger()["wn-table-1"].printed
    monkeypatch.chdir(tmp_path)
    assert quoted("wn-table-1") == of_clone


@pytest.mark.parametrize("table", [table_1, table_4, summary])
def test_printed_tables_are_there_in_a_folder_of_no_companion(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert table.printed().notna().to_numpy().any()
