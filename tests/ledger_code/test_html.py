from paperledger.html import HTMLTable, with_math


def test_formulas_stand_between_dollar_signs_and_all_else_is_escaped():
    found = with_math("if $a < b$ & c")
    assert found == ('if <span class="math notranslate nohighlight">\\(a &lt; b\\)</span> &amp; c')


def test_a_table_shows_html_a_text_and_perhaps_markdown():
    table = HTMLTable("<p>1</p>", "1", "*1*")
    assert (table._repr_html_(), repr(table), table._repr_markdown_()) == ("<p>1</p>", "1", "*1*")
    assert HTMLTable("<p>1</p>", "1")._repr_markdown_() is None
