from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from paperledger.configuration import configuration
from paperledger.ledger import scorecard
from paperledger.ledger.claims import ledger, of_papers

BOOK = Path(__file__).resolve().parents[3] / "book"


@pytest.fixture(scope="module")
def table():
    return scorecard.claims_table(scorecard.all_findings(BOOK), scorecard.titles(BOOK), root="..")


def test_every_claim_carries_paper_and_verdict(table):
    rows = [(b["id"], b["data-paper"], b["data-verdict"]) for b in markup(table).find_all("tbody")]
    assert sorted(rows) == sorted((c.id, c.paper, c.verdict) for c in of_papers())


def test_claims_are_in_groups_by_kind_and_page_in_the_order_of_the_papers(table):
    order = list(ledger())
    titles = scorecard.titles(BOOK)
    pages = markup(table).select("details.claims details.claims")
    assert len(pages) > len({c.page for c in of_papers()})
    for group in pages:
        ids = [body["id"] for body in group.find_all("tbody")]
        assert ids == sorted(ids, key=order.index)
        (page,) = {ledger()[id].page for id in ids}
        title = group.find(class_="claims-of").get_text()
        assert title.replace("\\(", "$").replace("\\)", "$") == titles[page]
        kinds = {ledger()[id].kind for id in ids}
        assert kinds <= {"definition", "equation", "algorithm"} or not kinds & {"equation"}


def test_a_group_counts_its_verdicts(table):
    for group in markup(table).select("details.claims"):
        parts = group.summary.find_all("span", class_=False, recursive=False)
        said = [part.get_text().split(" ", 1) for part in parts]
        verdicts = [body["data-verdict"] for body in group.find_all("tbody")]
        counted = {verdict: int(count) for count, verdict in said}
        assert counted == {verdict: verdicts.count(verdict) for verdict in set(verdicts)}


def test_every_claim_links_to_its_check(table):
    links = [a["href"] for a in markup(table).find_all("a")]
    assert sorted(links) == sorted(f"../{c.page}.html#claim-{c.id}" for c in of_papers())


def test_what_this_book_adds_has_a_table_of_its_own(table):
    table_of_own = markup(
        scorecard.own_table(scorecard.all_findings(BOOK), scorecard.titles(BOOK), root="..")
    )
    shown = [(body["id"], body["data-verdict"]) for body in table_of_own.select(".own tbody")]
    own = [c for c in ledger().values() if c.paper == configuration().own]
    assert sorted(shown) == sorted((c.id, c.verdict) for c in own)
    assert len(shown) >= 8
    compared = [body.select("tr")[2:] for body in table_of_own.select("tbody")]
    assert all(compared)
    assert not table_of_own.find("form")
    assert not {id for id, _ in shown} & {body["id"] for body in markup(table).find_all("tbody")}


def test_a_median_of_our_readings_does_not_look_like_print(table):
    findings = scorecard.all_findings(BOOK)
    compared = 0
    for body in markup(table).find_all("tbody"):
        ours = findings[body["id"]][1].check == "setting"
        for line in body.select("tr:has(td:nth-child(4))"):
            said = line.find_all("td")[2].get_text()
            assert said.startswith("left open; the median of our readings is ") is ours, body["id"]
            compared += ours
    assert compared > 50


def test_filters_offer_what_occurs(table):
    offered = {o["value"] for o in markup(table).find_all("option")} - {""}
    assert offered == {v for c in of_papers() for v in (c.paper, c.kind, c.verdict)}


def test_what_is_corrected_is_counted_and_shown(table):
    graded = scorecard.corrections()["all papers"].sum()
    assert graded == scorecard.counts()["all papers"]["holds as corrected"]
    shown = {
        body["id"]: said.get_text()
        for body in markup(table).find_all("tbody")
        if (said := body.find(class_="claim-correction"))
    }
    assert shown == {c.id: c.correction for c in of_papers() if c.correction}


def test_a_quote_links_back_and_is_no_second_anchor():
    page, finding = scorecard.all_findings(BOOK)["wn-lemma-7"]
    html = scorecard.quote((page, finding), root="..")._repr_html_()
    assert f'href="../{page}.html#claim-wn-lemma-7"' in html
    assert 'id="claim-wn-lemma-7"' not in html


def markup(table):
    return BeautifulSoup(table._repr_html_(), "html.parser")


def test_counts_of_one_paper_are_part_of_those_of_all():
    by_paper = [scorecard.counts_by_kind(paper) for paper in ("W&N", "LHG")]
    whole = scorecard.counts_by_kind()
    assert (sum(table["all"] for table in by_paper) == whole["all"]).all()
    assert all(0 < table["all"].sum() < whole["all"].sum() for table in by_paper)
