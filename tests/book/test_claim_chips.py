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
