"""HTML that notebooks show: tables, and formulas in text."""

import html
import re


class HTMLTable:
    """HTML that a notebook shows, with a text for terminals and, perhaps, Markdown for the PDF."""

    def __init__(self, content: str, text: str, markdown: str | None = None) -> None:
        self._content = content
        self._text = text
        self._markdown = markdown

    def _repr_html_(self) -> str:
        return self._content

    def _repr_markdown_(self) -> str | None:
        return self._markdown

    def __repr__(self) -> str:
        """The text."""
        return self._text


def with_math(text: str) -> str:
    """Text as HTML; what stands between dollar signs becomes a formula."""
    parts = re.split(r"\$([^$]+)\$", text)
    return "".join(
        f'<span class="math notranslate nohighlight">\\({html.escape(part)}\\)</span>'
        if position % 2
        else html.escape(part)
        for position, part in enumerate(parts)
    )
