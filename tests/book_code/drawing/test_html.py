"""HTML for notebooks: what is escaped, what becomes a formula, and where a slider starts."""

from bs4 import BeautifulSoup

from bayesloss_book.drawing.html import Axis, Canvas, Frame, framed, stepped


def test_axes_stand_around_the_picture_where_their_values_are():
    across = Axis("time", 10, 20, [10, 15])
    up = Axis("heat", -1, 1, [0])
    drawn = BeautifulSoup(
        framed("box", "<g id='g'/>", Canvas(600, 300, across, up), "a curve"), "html.parser"
    )
    left, top, width, height = map(float, drawn.svg["viewbox"].split())
    words = {word.get_text(): (float(word["x"]), float(word["y"])) for word in drawn("text")}
    assert set(words) == {"10", "15", "time", "0", "heat"}
    assert words["10"][0] == 0 and words["15"][0] == 300
    assert abs(words["0"][1] - 150) < 10  # the middle, less half the height of the letters
    for name in ("10", "15", "time", "0"):
        x, y = words[name]
        assert left < x < left + width and top < y < top + height
    assert drawn.find(id="g").parent["clip-path"] == "url(#box-frame)"
    assert drawn.clippath.rect.attrs == {"width": "600", "height": "300"}


def test_a_stepped_slider_shows_one_frame_and_plays(shown):
    """Whatever a frame tells stands as it is given, also what means something in HTML."""
    frames = [Frame(f"{k}", f"<path d='M0 0H{k}'/>", f"it's < {k}") for k in (5, 6, 7)]
    axes = [Axis(name, 0, 1, [0, 1]) for name in "xy"]
    tab = shown(
        stepped("box", "step", frames, 0, "", Canvas(60, 30, *axes), "lines", [])._repr_html_()
    )
    slider = tab.locator("input")
    button = tab.locator("button")

    def seen():
        look = "all => all.map(f => f.style.display === '' ? 1 : 0).join('')"
        told = [tab.locator(f"[data-value={name}]").inner_text() for name in ("step", "told")]
        return tab.locator("[data-frame]").evaluate_all(look), *told

    assert seen() == ("100", "5", "it's < 5")
    slider.fill("1")
    assert seen() == ("010", "6", "it's < 6")
    assert slider.get_attribute("aria-valuetext") == "6: it's < 6"
    button.click()
    assert button.inner_text() == "Pause"
    tab.get_by_role("button", name="Play").wait_for()  # at the end
    assert seen()[0] == "001"
    button.click()
    assert seen()[0] == "100"
