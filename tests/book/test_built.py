import functools
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import notebooks
import pytest
from built_pages import plain_code

HTML = notebooks.ROOT / "_build" / "html"

# Pages that hold only what others include.
PARTS = {"webpack-macros.html", "sbt-webpack-macros.html"}

# An address outside, in what a script or a style says; comments and namespaces of XML are none.
ADDRESS = re.compile(r"""["'`]\s*((?:https?:)?//[\w.-]+\.[a-z]{2,}[^"'`]*)""", re.IGNORECASE)
FETCHING = {"src", "srcset", "data", "poster", "action", "formaction", "background", "xlink:href"}
IN_STYLE = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])\s*((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """What the guards need of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.outside: list[str] = []  # what is loaded, or named in scripts and styles
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.images: list[dict[str, str]] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = {name: value or "" for name, value in attrs}
        self._inside = tag
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        self.links += [values[name] for name in ("href", "src") if name in values]
        self.outside += IN_STYLE.findall(values.get("style", ""))
        loaded = [v for name, value in values.items() if name in FETCHING for v in value.split(",")]
        if tag == "link" and values.get("rel") not in ("canonical", "search", "next", "prev"):
            loaded.append(values.get("href", ""))  # preconnect, too
        self.outside += filter(is_outside, loaded)
        if tag == "meta" and values.get("http-equiv", "").lower() == "refresh":
            self.links.append(values.get("content", "").partition("url=")[2])
        if tag == "img":
            self.images.append(values)

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        names = {"style": IN_STYLE, "script": ADDRESS}.get(self._inside)
        self.outside += names.findall(data) if names else []


def is_outside(address: str) -> bool:
    return address.strip().lower().startswith(("http:", "https:", "//", "ftp:", "ws:", "wss:"))


def image_problems(page: Page) -> list[str]:
    """Return the images that say nothing to who cannot see them.

    Sphinx writes a path where a page gives no text, and a path is no description.
    """
    return [
        f"{image.get('src')}: no alternative text (in the page: mystnb: image: alt:)"
        for image in page.images
        if not image.get("alt", "").strip() or re.search(r"\.(svg|png|jpe?g|gif)$", image["alt"])
    ]


@functools.cache
def target_of(folder: Path, address: str) -> tuple[Path, bool]:
    """The file that an address leads to from a folder, whose pages share most, and if it exists."""
    target = (folder / unquote(address)).resolve()
    target = target / "index.html" if target.is_dir() else target
    return target, target.is_file()


def dead_links(path: Path, root: Path) -> list[str]:
    page = read(path)
    inside = root.resolve()
    found = []
    for address in page.links:
        parts = urlsplit(address)
        if is_outside(address) or parts.scheme:
            continue
        target, exists = target_of(path.parent, parts.path or path.name)
        if not target.is_relative_to(inside):
            found.append(f"{address}: leads out of the built book")
        elif not exists:
            found.append(f"{address}: no such file")
        elif parts.fragment and unquote(parts.fragment) not in read(target).anchors:
            found.append(f"{address}: no such place in {target.name}")
    return found


@functools.cache
def read(path: Path) -> Page:
    """Return a parsed page; its anchors are right for an SVG file too."""
    return Page(plain_code(path))


def built(suffix: str, own: bool = False) -> list[str]:
    """Return the built files of one kind; with `own`, those that are not of a theme."""
    paths = sorted(p.relative_to(HTML) for p in HTML.rglob(f"*{suffix}") if p.name not in PARTS)
    return [p.as_posix() for p in paths if not own or p.parts[0] != "_static"]


PAGES = built(".html", own=True)


def test_the_book_is_built():
    assert (HTML / "index.html").is_file(), "run `make book` first"
    assert "book/index.html" in read(HTML / "index.html").links


def test_every_page_of_the_table_of_contents_is_built():
    files = [(HTML / file).with_suffix(".html") for file in notebooks.toc_files()]
    assert not [path for path in files if not path.is_file() or path.stat().st_size < 1000]


def test_stylesheets_ask_nothing_from_outside():
    sheets = built(".css")
    assert sheets
    assert not [s for s in sheets if IN_STYLE.findall((HTML / s).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_asks_nothing_from_outside_links_resolve_and_images_are_described(page):
    assert not read(HTML / page).outside
    assert not dead_links(HTML / page, HTML)
    assert not image_problems(read(HTML / page))


def test_the_book_is_light():
    assert sum(path.stat().st_size for path in HTML.rglob("*") if path.is_file()) < 60_000_000


@pytest.mark.parametrize(
    "html",
    [
        '<link rel="preconnect" href="https://fonts.example.org">',
        '<img srcset="a.png 1x, https://example.org/a.png 2x" alt="a">',
        '<video><source src="//example.org/a.mp4"></video>',
        '<p style="background: url(https://example.org/a.png)">a</p>',
        '<style>@import "https://example.org/a.css";</style>',
        "<style>p { background: url('//example.org/a.png') }</style>",
        '<script>fetch("https://example.org/data.json")</script>',
        '<script type="module">import a from "https://example.org/a.js"</script>',
        '<script>const THEBE_JS_URL = "https://unpkg.com/thebe"</script>',
    ],
)
def test_guard_sees_a_request(html):
    assert Page(html).outside


@pytest.mark.parametrize(
    "html",
    [
        '<a href="https://example.org/">there</a>',
        '<script src="../_static/a.js?v=1"></script>',
        '<script>const tex = "\\\\mathbb{E}"; // see https://example.org/</script>',
        '<svg xmlns="http://www.w3.org/2000/svg"></svg>',
        "<style>p { background: url(data:image/svg+xml;base64,AA) }</style>",
    ],
)
def test_guard_lets_pass_what_fetches_nothing(html):
    assert not Page(html).outside


def test_guard_sees_images_without_text():
    page = Page('<img src="a.svg" alt=""><img src="b.svg" alt="../_images/b.svg"><img src="c.svg">')
    assert len(image_problems(page)) == 3
    assert not image_problems(Page('<img src="a.svg" alt="a staircase">'))


def test_guard_sees_dead_links(tmp_path):
    (tmp_path / "b.html").write_text('<p id="here">b</p>')
    (tmp_path / "a.html").write_text(
        '<p id="top"></p><a href="#top">1</a><a href="b.html#here">2</a><a href="b.html">3</a>'
        '<a href="#gone">4</a><a href="b.html#gone">5</a><a href="c.html">6</a>'
        '<script src="gone.js"></script><a href="../../x.html">7</a>'
    )
    assert dead_links(tmp_path / "a.html", tmp_path) == [
        "#gone: no such place in a.html",
        "b.html#gone: no such place in b.html",
        "c.html: no such file",
        "gone.js: no such file",
        "../../x.html: leads out of the built book",
    ]
