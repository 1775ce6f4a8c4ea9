import pytest

from bayesloss_book.references.multiplications import Counted


def test_numbers_count_themselves():
    Counted.steps = 0
    value = (Counted(3) * Counted(2) + Counted(4) / Counted(2) - Counted(1)).sqrt()
    assert float(value) == pytest.approx(7**0.5) and Counted.steps == 3
