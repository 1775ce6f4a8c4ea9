"""Sphinx extension: of a cell that judges, the mathematics is shown and the call is folded.

MyST-NB folds all of a cell or nothing.
"""

import ast

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from paperledger.ledger import checks

_CHECKS = frozenset(name for name in vars(checks) if name.startswith("check_"))


def split(source: str) -> tuple[str, str]:
    """Return the code before the first statement that calls a check, and from there on.

    The first is empty if there is no such statement, or nothing comes before it but imports.
    """
    statements = ast.parse(source).body
    lines = source.splitlines()
    for at, statement in enumerate(statements):
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        if not isinstance(statement, ast.FunctionDef) and not _CHECKS.isdisjoint(names):
            imports = all(isinstance(each, ast.Import | ast.ImportFrom) for each in statements[:at])
            end = 0 if imports else statements[at - 1].end_lineno or 0
            return "\n".join(lines[:end]), "\n".join(lines[end:]).strip("\n")
    return "", source


class ShowMathematics(SphinxPostTransform):
    """Take the mathematics out of the fold that holds a cell's code."""

    default_priority = 200  # after MyST-NB has folded the cells, which it does in HTML alone

    def run(self, **_: object) -> None:
        """Split the code of each folded cell that judges."""
        for fold in list(self.document.findall(HideCodeCellNode)):
            source = fold.next_node(nodes.literal_block)
            shown, folded = split(source.astext())
            if shown:
                parts = [nodes.literal_block(t, t, **source.attributes) for t in (shown, folded)]
                mathematics = nodes.container("", parts[0], **source.parent.attributes)
                mathematics["classes"] = [*source.parent["classes"], "mathematics"]
                source.replace_self(parts[1])
                fold.parent.insert(0, mathematics)
                fold["prompt_show"] = "How it is judged"
                fold["prompt_hide"] = "Hide how"


def setup(app: Sphinx) -> None:
    """Add the transform."""
    app.add_post_transform(ShowMathematics)
