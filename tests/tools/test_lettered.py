import pytest
from lettered import by_page
from small_book import small_book


def test_each_page_counts_its_kinds_for_itself():
    numbers = {
        "chapter": {"figure": {"first": (2, 1)}},
        "one": {"figure": {"a": (1,), "b": (2,)}, "theorem": {"c": (1,)}},
        "other": {"figure": {"d": (3,)}},
    }
    assert by_page(numbers) == {
        "one": {"figure": {"a": ("A", 1), "b": ("A", 2)}, "theorem": {"c": ("A", 1)}},
        "other": {"figure": {"d": ("B", 1)}},
    }


def test_there_are_letters_for_all():
    pages = {str(k): {"figure": {"x": (k,)}} for k in range(27)}
    with pytest.raises(ValueError, match="at most 26 pages without a number, got 27"):
        by_page(pages)


FIGURE = ".. _{0}:\n\n.. figure:: x.png\n\n   A caption.\n\n"


def test_a_book_with_and_without_numbers(tmp_path):
    """As Sphinx writes them: in captions, and where a figure is referred to."""
    (tmp_path / "index.rst").write_text(
        "Book\n====\n\n.. toctree::\n   :numbered:\n\n   chapter\n\n"
        ".. toctree::\n\n   one\n   other\n"
    )
    (tmp_path / "chapter.rst").write_text(
        "Chapter\n=======\n\n" + FIGURE.format("first") + "See :numref:`third`.\n"
    )
    (tmp_path / "one.rst").write_text("One\n===\n\n" + FIGURE.format("second"))
    (tmp_path / "other.rst").write_text(
        "Other\n=====\n\n" + FIGURE.format("third") + FIGURE.format("fourth")
    )
    small_book(tmp_path, "lettered", numfig=True).build()
    page = {name: (tmp_path / "html" / f"{name}.html").read_text() for name in ("chapter", "other")}
    assert "Fig. 1.1 " in page["chapter"]
    assert "Fig. B.1" in page["chapter"]  # the reference
    assert "Fig. B.1 " in page["other"] and "Fig. B.2 " in page["other"]
