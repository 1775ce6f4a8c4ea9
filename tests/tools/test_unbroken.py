import pytest
from small_book import small_book
from unbroken import unbroken

NB = "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("1.85 ± .77 % of all", f"1.85{NB}±{NB}.77{NB}% of all"),
        (" %", f"{NB}%"),  # after a number that a cell has glued
        ("± ", f"±{NB}"),  # before one
        ("1,000 × 20 rows", f"1,000{NB}×{NB}20 rows"),
        ("a mean of 3 nats", "a mean of 3 nats"),
    ],
)
def test_what_stays_on_a_line(typed, kept):
    assert unbroken(typed) == kept


def test_prose_is_changed_and_code_is_not(tmp_path):
    (tmp_path / "index.rst").write_text("Title\n=====\n\nA part of 5 %, and ``5 %``.\n")
    small_book(tmp_path, "unbroken").build()
    page = (tmp_path / "html" / "index.html").read_text()
    assert f"A part of 5{NB}%" in page
    assert "5</span> <span" in page or "5 %</code>" in page
