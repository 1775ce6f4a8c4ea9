"""Sphinx extension: the role ``{claim}``, a chip in the text that leads to a claim's box.

``{claim}`Theorem 8 <wn-theorem-8>` `` shows these words and the ledger's verdict. In a browser
evidence.js opens the box beneath the paragraph; without scripts the chip is a link. What the
print numbers, as in ``{claim}`(14) <wn-equation-14>` ``, gets the name of its paper.
Sphinx's ``{ref}`` would not say the verdict.
"""

import html

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import ReferenceRole

from paperledger.ledger.claims import badge, ledger
from paperledger.ledger.in_order import NUMBERED

logger = logging.getLogger(__name__)


class ClaimChip(ReferenceRole):
    """The chip of a claim of the ledger."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the chip; an id that the ledger lacks is a warning, and fails the build."""
        claim = ledger().get(self.target)
        if claim is None or not self.has_explicit_title:
            said = f"expected {{claim}}`words <id of a claim>`, got {self.rawtext}"
            logger.warning(said, location=self.get_location())
            return [nodes.Text(self.title)], []
        here = self.env.app.builder.get_relative_uri(self.env.docname, f"book/{claim.page}")
        named = self.title
        if named.startswith("(") or NUMBERED.match(named):  # this book has theorems of its own
            named = f"{claim.paper} {named}"
        said = f"{html.escape(named)} {badge(claim.verdict)}"
        chip = f'<a class="chip" href="{here}#claim-{claim.id}">{said}</a>'
        return [nodes.raw("", chip, format="html")], []


def setup(app: Sphinx) -> None:
    """Add the role."""
    app.add_role("claim", ClaimChip())
