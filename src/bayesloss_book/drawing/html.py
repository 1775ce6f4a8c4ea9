"""HTML that notebooks show: the parts of sliders."""

import html
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from paperledger.html import HTMLTable

DASHED = 'stroke="currentColor" stroke-dasharray="6 4" stroke-width="1.2"'  # a curve of the truth


def slider(name: str, label: str, span: tuple[float, float, float], start: float) -> str:
    """A labelled range input that shows its value; the span is least, largest and step."""
    return (
        f"<label style='flex:1 1 14rem'>{label}: <span data-value='{name}'></span>"
        f"<input type='range' data-slider='{name}' min='{span[0]:g}' max='{span[1]:g}' "
        f"step='{span[2]:g}' value='{start:g}' style='width:100%'></label>"
    )


def curve(points: list[str], style: str) -> str:
    """A line through the points; coordinates in double quotes, by which tests know them."""
    return f'<path d="M{"L".join(points)}" fill="none" {style}/>'


class Axis(NamedTuple):
    """An axis of a picture: its name, the values at its ends, and those that are marked."""

    label: str
    low: float
    high: float
    ticks: Sequence[float]

    def place(self, value: Any) -> Any:
        """How far along the axis values lie, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


class Canvas(NamedTuple):
    """Where a picture is drawn: its width and height without the axes, and the axes."""

    width: int
    height: int
    across: Axis
    up: Axis

    def points(self, x: ArrayLike, y: ArrayLike) -> list[str]:
        """Where values along both axes are drawn: coordinates of the SVG, to a tenth of a unit."""
        across = self.width * self.across.place(np.asarray(x))
        down = self.height * (1 - self.up.place(np.asarray(y)))
        return [f"{x:.1f} {y:.1f}" for x, y in zip(across, down, strict=True)]


class Frame(NamedTuple):
    """What a stepped slider shows at one place: its value, a drawing, and what it tells."""

    value: str
    drawn: str
    told: str


def framed(identity: str, content: str, canvas: Canvas, label: str) -> str:
    """An SVG with axes around its content, which is cut off where they end.

    The content is drawn in coordinates from 0 to the canvas's width and height, zero at the top
    left; the label is for those who do not see it.
    """
    width, height, across, up = canvas
    drawn = _line(0, height, width, 0) + _line(0, 0, 0, height)
    for tick in across.ticks:
        x = width * across.place(tick)
        drawn += _line(x, height, 0, 5) + _word(f"{tick:g}", x, height + 20)
    drawn += _word(across.label, width / 2, height + 40)
    for tick in up.ticks:
        y = height * (1 - up.place(tick))
        drawn += _line(-5, y, 5, 0) + _word(f"{tick:g}", -8, y + 5, "end")
    drawn += f"<g transform='rotate(-90)'>{_word(up.label, -height / 2, -38)}</g>"
    return (
        f"<svg viewBox='-56 -8 {width + 72} {height + 56}' role='img' "
        f"style='width:100%' aria-label='{label}'><clipPath id='{identity}-frame'>"
        f"<rect width='{width}' height='{height}'/></clipPath>"
        f"<g clip-path='url(#{identity}-frame)'>{content}</g>"
        f"<g class='axes' font-size='14' fill='currentColor' stroke='none'>{drawn}</g></svg>"
    )


def _line(x: float, y: float, right: float, down: float) -> str:
    ends = f"x1='{x:.1f}' y1='{y:.1f}' x2='{x + right:.1f}' y2='{y + down:.1f}'"
    return f"<line {ends} stroke='currentColor'/>"


def _word(text: str, x: float, y: float, anchor: str = "middle") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{text.replace('-', '−')}</text>"


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """What the lines of a picture mean: each as a border of CSS, and in words."""
    return (
        "<p>"
        + " ".join(
            "<span style='display:inline-block;margin-right:1rem'>"
            "<span style='display:inline-block;vertical-align:middle;width:2.5em;"
            f"border-top:{border}'></span> {words}</span>"
            for border, words in entries
        )
        + "</p>"
    )


_STEPS = """
(() => {
  const box = document.getElementById("IDENTITY"), find = s => box.querySelector(s);
  const frames = [...box.querySelectorAll("[data-frame]")];
  const input = find("input"), button = find("button"), last = frames.length - 1;
  let timer = null;
  const show = () => {
    const {frame, told} = frames[+input.value].dataset;
    frames.forEach((g, i) => { g.style.display = i === +input.value ? "" : "none"; });
    find("[data-value=step]").textContent = frame;
    find("[data-value=told]").textContent = told;
    input.setAttribute("aria-valuetext", `${frame}: ${told}`);
  };
  const stop = () => { clearInterval(timer); timer = null; button.textContent = "Play"; };
  const go = k => { input.value = k; show(); };
  const next = () => { +input.value < last ? go(+input.value + 1) : stop(); };
  button.addEventListener("click", () => {
    if (timer !== null) { stop(); return; }
    if (+input.value === last) go(0);
    timer = setInterval(next, 600);
    button.textContent = "Pause";
  });
  input.addEventListener("input", () => { stop(); show(); });
  show();
})();
"""


def stepped(
    identity: str,
    name: str,
    frames: Sequence[Frame],
    start: int,
    over: str,
    canvas: Canvas,
    label: str,
    keys: Sequence[tuple[str, str]],
) -> HTMLTable:
    """A slider through pictures, beneath what is over them all; it starts with one of them."""
    drawn = "".join(
        f"<g data-frame='{html.escape(value)}' data-told='{html.escape(told)}'"
        f"{'' if k == start else ' style=display:none'}>{content}</g>"
        for k, (value, content, told) in enumerate(frames)
    )
    content = (
        f"<div id='{identity}'>"
        f"<label>{name}: <span data-value='step'>{frames[start].value}</span><input type='range' "
        f"min='0' max='{len(frames) - 1}' step='1' value='{start}' style='width:100%'></label>"
        f"<p><button type='button'>Play</button> "
        f"<output data-value='told'>{html.escape(frames[start].told)}</output></p>"
        f"{framed(identity, drawn + over, canvas, label)}{legend(keys)}<noscript>The slider needs "
        f"JavaScript.</noscript></div><script>{_STEPS.replace('IDENTITY', identity)}</script>"
    )
    said = "; ".join(f"{frame.value}: {frame.told}" for frame in frames)
    return HTMLTable(content, f"A slider, {name}. {said}")


def ribbon(low: list[str], high: list[str], colour: str) -> str:
    """A band between two curves; see :func:`curve`."""
    return f'<path d="M{"L".join(low + high[::-1])}Z" fill="{colour}" opacity="0.3"/>'
