"""What a reader stumbles over: a paragraph without a verb, a sentence that has lost its end.

No language checker is in the lock, so there are two rules. A paragraph has a word that the book
uses as a verb, or a formula that states something, or it ends with a colon. A sentence that begins
with a condition has a comma.
"""

import re

import notebooks

# Forms that the rule for verbs does not find.
IRREGULAR = set(
    re.findall(
        "[a-z]+",
        """
is are was were be been has have had do does did can could will would may might must shall
should say says said see sees saw take takes took give gives gave make makes made find finds
found hold holds held come comes came go goes went know knows knew lie lies stand stands rise
rises rose fall falls fell draw draws drew tell tells think begin begins keep keeps put let get
gets pay pays cost costs win wins lose loses choose bend grow grows show shows mean means read
run runs lead leads need needs ask asks matter contain contains settles depends
""",
    )
)


def formula(found):
    """A formula in words: one that says how two things compare is a sentence with its verb."""
    states = re.search(r"[=<>:]|\\(le|ge|in|to|sim|approx|mapsto|propto)\b", found[0])
    return " X is X " if states else " X "


def paragraphs(source):
    """The paragraphs of a page, without code."""
    source = re.sub(r"\A---\n.*?\n---\n", "", source, flags=re.S)
    source = re.sub(r"^```(\{code-cell\}|python).*?^```$", "", source, flags=re.S | re.M)
    source = re.sub(r"\s*\$\$(.*?)\$\$( \(.*?\))?\s*|\$([^$]*)\$", formula, source, flags=re.S)
    source = re.sub(r"\{[a-z:]+\}`([^`<]*?)\s*(<[^`]*>)?`", r"\1", source)
    source = re.sub(r"^(\(.*?\)=|#.*)$", "", source, flags=re.M)
    blocks = (block.strip() for block in re.split(r"\n\s*\n|^[`:]{3,}.*$", source, flags=re.M))
    return [block for block in blocks if re.match(r"[A-Z*(“\"]", block)]


def verbs(texts):
    words = set(re.findall(r"[a-z]+", " ".join(texts).lower()))

    def forms(word, ending):
        return {word + ending, word.removesuffix("e") + ending, word + word[-1:] + ending}

    regular = {w for w in words if forms(w, "ing") & words and forms(w, "ed") & words}
    return regular.union(*({w + "s", w + "es", *forms(w, "ed")} for w in regular), IRREGULAR)


def unfinished(paragraph):
    """Sentences that begin with a condition and have no comma after it."""
    sentences = re.split(r"(?<=[.?!:;])\s+(?=[A-Z])", paragraph)
    return [
        s for s in sentences if re.match(r"(If|Although|Because|Whenever)\b(?!.*[,;:–])", s, re.S)
    ]


PROSE = {
    page: paragraphs((notebooks.BOOK / f"{page}.md").read_text("utf-8"))
    for page in notebooks.pages()
}
VERBS = verbs(text for texts in PROSE.values() for text in texts)


def has_verb(paragraph):
    return paragraph.endswith(":") or not VERBS.isdisjoint(re.findall("[a-z]+", paragraph.lower()))


def test_sentences_are_whole():
    found = [(page, p[:80]) for page, texts in PROSE.items() for p in texts if not has_verb(p)]
    found += [(page, s) for page, texts in PROSE.items() for p in texts for s in unfinished(p)]
    assert not found


def test_lost_words_are_seen():
    """The second is a sentence that the book had."""
    assert not has_verb("A posterior over links, on new data.")
    assert unfinished("If the link maps onto $\\R$ path of $\\nu$ has a finite log likelihood.")
    assert not unfinished("If it rains, it pours. We ask why. It pours.")
