import numpy as np
import pytest

from bayesloss.calibrating.names import different_names, positions


def test_names_are_different_and_cannot_be_written_to():
    names = different_names(["b", "a"], 2, "classes")
    assert not names.flags.writeable
    with pytest.raises(ValueError, match="expected 2 different classes, got \\['a', 'a'\\]"):
        different_names(["a", "a"], 2, "classes")
    with pytest.raises(ValueError, match="expected 3 different classes"):
        different_names(["b", "a"], 3, "classes")


def test_positions_are_those_of_the_names():
    names = np.array(["b", "a", "c"])
    assert positions(names, np.array(["a", "c", "a", "b"]), "labels").tolist() == [1, 2, 1, 0]
    with pytest.raises(
        ValueError, match=r"expected labels among \['b', 'a', 'c'\], got 'd' in row 1"
    ):
        positions(names, np.array(["a", "d"]), "labels")
