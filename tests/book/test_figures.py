"""What a reader sees of a figure: no cut marker, no label over another or over data, a fit width.

Figures are looked at as the browser draws them.
"""

import io
import re

import notebooks
import pytest
from matplotlib.pyplot import close, subplots

HTML = notebooks.ROOT / "_build" / "html"
# px; wider figures lose a side on a phone (fit.js)
LEAST = 300
MOST = 600

# What is drawn beyond the axes is cut off. Legends and ticks are not data, and a reference line
# that crosses a label is: it makes the label hard to read.
FAULTS = """svg => {
  document.body.innerHTML = svg;
  const root = document.querySelector("svg"), frame = root.getBoundingClientRect(), found = [];
  const scale = root.getScreenCTM();
  const all = what => [...root.querySelectorAll(what)];
  const box = e => e.getBoundingClientRect();
  const name = t => t.innerHTML.match(/<!--(.*?)-->/s)?.[1].trim();
  const clip = e => {
    const url = e.closest("[clip-path]")?.getAttribute("clip-path").match(/#([^"')]*)/)[1];
    const area = url && document.getElementById(url).querySelector("rect");
    if (!area) return frame;
    const [x, y, w, h] = ["x", "y", "width", "height"].map(key => +area.getAttribute(key));
    const [p, q] = [[x, y], [x + w, y + h]].map(c => new DOMPoint(...c).matrixTransform(scale));
    return {left: p.x, top: p.y, right: q.x, bottom: q.y};
  };
  const beyond = (a, b) =>
    Math.max(b.left - a.left, a.right - b.right, b.top - a.top, a.bottom - b.bottom);

  const marks = all("[clip-path] use").map(e => [box(e), clip(e)]);
  const cut = marks.filter(([at, area]) => beyond(at, area) > 0.15 * Math.max(at.width, at.height));
  if (cut.length) found.push(`clipped markers: ${cut.length}`);

  const texts = all("g[id^=text_]").filter(t => box(t).width), boxes = texts.map(box);
  texts.forEach((text, k) => {
    const a = boxes[k];
    if (beyond(a, frame) > 1) found.push(`'${name(text)}' is cut off`);
    for (const [j, other] of texts.entries()) {
      if (j <= k) continue;
      const b = boxes[j];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 1) found.push(`'${name(text)}' lies over '${name(other)}'`);
    }
  });

  const points = marks.map(([at]) => [(at.left + at.right) / 2, (at.top + at.bottom) / 2]);
  for (const e of all("g[id^=line2d] > path, g[id^=LineCollection] > path")) {
    if (e.closest("[id^='matplotlib.axis'], [id^=legend]")) continue;
    const area = clip(e), numbers = e.getAttribute("d")?.match(/-?[\\d.]+/g) ?? [];
    let last = null;
    for (let k = 0; k + 1 < numbers.length; k += 2) {
      const at = new DOMPoint(+numbers[k], +numbers[k + 1]).matrixTransform(scale);
      const n = last ? Math.ceil(Math.hypot(at.x - last.x, at.y - last.y) / 3) || 1 : 1;
      for (let s = 1; s <= Math.min(n, 1000); s++) {
        const x = last ? last.x + s * (at.x - last.x) / n : at.x;
        const y = last ? last.y + s * (at.y - last.y) / n : at.y;
        if (x >= area.left && x <= area.right && y >= area.top && y <= area.bottom)
          points.push([x, y]);
      }
      last = at;
    }
  }
  const covers = e => {
    const {left, right, top, bottom} = box(e);
    return points.some(([x, y]) =>
      x > left + 2 && x < right - 2 && y > top + 2 && y < bottom - 2);
  };
  const inside = "[id^='matplotlib.axis'], [id^=legend]";
  for (const text of texts) {
    if (!text.closest(inside) && covers(text)) found.push(`'${name(text)}' lies over data`);
  }
  if (all("g[id^=legend]").some(covers)) found.push("the legend lies over data");
  return [Math.round(frame.width), found];
}"""


@pytest.fixture(scope="module")
def look(browser):
    tab = browser.new_page(viewport={"width": 1300, "height": 900}, offline=True)
    yield lambda svg: tab.evaluate(FAULTS, svg[svg.index("<svg") :])
    tab.close()


def figures():
    for page in notebooks.pages():
        read, _, evidence = (
            (HTML / f"book/{page}.html").read_text("utf-8").partition('id="evidence"')
        )
        for part, in_read in ((read, True), (evidence, False)):
            for path in dict.fromkeys(re.findall(r"_images/\w+\.svg", part)):
                yield page, in_read, HTML / path


def test_figures_can_be_read(look):
    found = []
    for page, in_read, path in figures():
        width, faults = look(path.read_text("utf-8"))
        if width < LEAST or (in_read and page != "index" and width > MOST):
            faults.append(f"it is {width} px wide")
        found += [f"{page}, {path.name[:8]}: {fault}" for fault in faults]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("draw", "fault"),
    [
        ("axis.plot([1, 2], [0, 1], 'o')", None),
        ("axis.plot([1, 2], [0, 1], 'o'), axis.set_ylim(0, 2)", "clipped markers: 1"),
        ("axis.set(xlim=(0, 9), xticks=[1, 1.1], xticklabels=['a cat', 'dog'])", "over 'dog'"),
        ("axis.plot([0, 1], [0, 1]), axis.text(0.45, 0.5, 'words')", "'words' lies over data"),
        ("axis.plot([0, 1], label='a'), axis.legend(loc='center')", "the legend lies over"),
        ("axis.text(0.9, 0.5, 'many words that go beyond')", "is cut off"),
    ],
)
def test_a_fault_of_a_figure_is_seen(look, draw, fault):
    """One by one, and none where there is none."""
    figure, axis = subplots()
    eval(draw, {"axis": axis})
    svg = io.StringIO()
    figure.savefig(svg, format="svg")
    close(figure)
    faults = look(svg.getvalue())[1]
    assert any(fault in found for found in faults) if fault else not faults
