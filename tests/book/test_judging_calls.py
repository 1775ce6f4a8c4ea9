import notebooks
import pytest
from built_pages import built
from judging_calls import split


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ('x = 1\ncheck_formula("a", truth=x)', "x = 1"),
        ('x = 1\n# its size\ndisplay([check_numbers("a", x)])', "x = 1"),
        ("def f():\n    return 1\n\n\ncheck_setting(f())\nprint(f())", "def f():\n    return 1"),
        ("x = 1\nprint(x)", ""),  # nothing is judged
        ('check_formula("a", truth=1)', ""),  # nothing is computed
        ('from math import pi\n\ncheck_formula("a", truth=pi)', ""),
        ("def f(x):\n    return check_setting(x)\n\n\nf(1)", ""),  # only said how
        (
            'x = f"""\ncheck_formula()\n"""\ncheck_formula("a", truth=x)',
            'x = f"""\ncheck_formula()\n"""',
        ),
    ],
)
def test_split(source, shown):
    before, after = split(source)
    assert before == shown
    lines = [line for line in (before + "\n" + after).splitlines() if line]
    assert lines == [line for line in source.splitlines() if line]


def test_mathematics_stands_beside_what_it_shows():
    cells = [
        cell
        for page in notebooks.pages()
        for cell in built(page).select(".cell:has(> .mathematics)")
    ]
    assert len(cells) > 150
    for cell in cells:
        mathematics, fold = cell.select(":scope > .mathematics, :scope > details.hide")
        assert not any(
            f"check_{kind}(" in mathematics.get_text() for kind in ("formula", "numbers")
        )
        assert "check_" in fold.get_text() and "How it is judged" in fold.get_text()
        assert cell.select(".claim")
