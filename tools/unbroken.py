"""Sphinx extension: a line does not end between a number and its % or its ±."""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

_SPACE = re.compile(r" (?=[%±×])|(?<=[±×]) ")
_NO_BREAK = "\N{NO-BREAK SPACE}"
_AS_TYPED = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw)


def unbroken(text: str) -> str:
    """Text whose spaces before %, and around ± and ×, end no line."""
    return _SPACE.sub(_NO_BREAK, text)


class KeepNumbersWhole(SphinxPostTransform):
    """Put such spaces into prose, tables and what is glued into them, but not into code."""

    default_priority = 900  # after MyST-NB has put in what cells have glued

    def run(self, **_: object) -> None:
        """Change the document's texts."""
        for text in list(self.document.findall(nodes.Text)):
            kept = unbroken(text)
            if kept != text and not isinstance(text.parent, _AS_TYPED):
                text.parent.replace(text, nodes.Text(kept))


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the transform."""
    app.add_post_transform(KeepNumbersWhole)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
