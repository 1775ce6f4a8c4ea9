import notebooks
from built_pages import HTML, built

from paperledger.ledger.claims import ledger


def chips():
    for page in notebooks.pages():
        for chip in built(page).select(".bd-article a.chip"):
            yield HTML / f"book/{page}.html", chip


def test_chips_lead_to_boxes_and_say_the_verdict():
    found = list(chips())
    assert len(found) >= 7
    for path, chip in found:
        file, _, anchor = chip["href"].partition("#")
        target = path if not file else (path.parent / file).resolve()
        assert f'id="{anchor}"' in target.read_text("utf-8"), chip
        verdict = ledger()[anchor.removeprefix("claim-")].verdict
        assert chip.select_one(".claim-verdict").get_text() == verdict


def test_a_place_of_the_print_names_its_paper():
    """The book has tables and theorems of its own."""
    places = ("Figure ", "Lemma ", "Section ", "Table ", "Theorem ", "(")
    titles = [chip.get_text().strip() for _, chip in chips()]
    named = [title for title in titles if title.startswith(("W&N ", "LHG "))]
    assert len(named) >= 20
    assert not [title for title in titles if title.startswith(places)]
