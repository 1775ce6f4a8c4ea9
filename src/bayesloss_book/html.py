"""HTML that notebooks show: tables, formulas in text, and the parts of sliders.

A slider asks nothing of a network: the page carries what it shows, and a short script. It is a
plain range input, so the keyboard moves it.
"""

import html
import re

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["DASHED", "HTMLTable", "curve", "marks", "picture", "slider", "with_math"]

DASHED = 'stroke="currentColor" stroke-dasharray="6 4" stroke-width="1.2"'  # a curve of the truth


class HTMLTable:
    """HTML that a notebook shows, with other forms for readers and tools that see no HTML.

    Parameters
    ----------
    content : str
        The HTML.
    text : str
        For a terminal.
    markdown : str, optional
        For the PDF, which has the text if there is none.
    """

    def __init__(self, content: str, text: str, markdown: str | None = None) -> None:
        self._content, self._text, self._markdown = content, text, markdown

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


def slider(name: str, label: str, span: tuple[float, float, float], start: float) -> str:
    """A labelled range input that shows its value; the span is least, largest and step."""
    return (
        f"<label style='flex:1 1 14rem'>{label}: <span data-value='{name}'></span>"
        f"<input type='range' data-slider='{name}' min='{span[0]:g}' max='{span[1]:g}' "
        f"step='{span[2]:g}' value='{start:g}' style='width:100%'></label>"
    )


def marks(across: ArrayLike, down: ArrayLike) -> list[str]:
    """Coordinates of an SVG, to a tenth of a unit."""
    points = zip(np.atleast_1d(across), np.atleast_1d(down), strict=True)
    return [f"{x:.1f} {y:.1f}" for x, y in points]


def curve(points: list[str], style: str) -> str:
    """A line through the points; coordinates in double quotes, by which tests know them."""
    return f'<path d="M{"L".join(points)}" fill="none" {style}/>'


def picture(
    identity: str,
    controls: str,
    content: str,
    shape: tuple[int, int],
    label: str,
    below: str,
    script: str,
    data: str = "",
) -> str:
    """Controls above an SVG, a sentence below it, and the script that joins them."""
    return (
        f"<div id='{identity}'{data}>{controls}"
        f"<svg viewBox='0 0 {shape[0]} {shape[1]}' role='img' style='width:100%;overflow:hidden' "
        f"aria-label='{label}'>{content}</svg>{below}</div><script>{script}</script>"
    )
