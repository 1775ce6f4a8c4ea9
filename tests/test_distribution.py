"""The name of the distribution, `bayesloss-companion`, and the files of another beside ours."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_project import PROJECT, ROOT, repository_files

PACKAGE = ROOT / "src" / "bayesloss"
_FOUND = importlib.util.spec_from_file_location("our_setup", ROOT / "setup.py")
setup = importlib.util.module_from_spec(_FOUND)
_FOUND.loader.exec_module(setup)
# Whoever follows it gets the package of another project.
ASKS_FOR_ANOTHER = re.compile(r"\binstall\b[^\n`]*[\s'\"]bayesloss(?![\w-])|\bbayesloss\[[\w,]+\]")


def asks_for_another(text: str) -> bool:
    return bool(ASKS_FOR_ANOTHER.search(text))


def test_no_text_tells_to_install_another_package():
    assert PROJECT["name"] == "bayesloss-companion"
    paths = [ROOT / name for name in repository_files() if not name.endswith((".png", ".csv"))]
    assert not [path for path in paths if asks_for_another(path.read_text("utf-8"))]


@pytest.mark.parametrize(
    ("text", "another"),
    [
        ("pip install 'bayes" + "loss[plot]'", True),
        ("pip install -U bayes" + "loss", True),
        ("install `bayes" + "loss[cluster]`", True),
        ("pip install 'bayesloss-companion[plot]'", False),
        ("pip install dist/bayesloss_companion-0.2.0-py3-none-any.whl", False),
    ],
)
def test_guard_sees_a_text_that_asks_for_another_package(text, another):
    assert asks_for_another(text) == another


# ------------------------------------------------------------------ beside that other package


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages that holds ours."""
    (tmp_path / "bayesloss").mkdir()
    for name in ("__init__.py", "__init__.pyi", "threads.py"):
        (tmp_path / "bayesloss" / name).write_bytes((PACKAGE / name).read_bytes())
    record(tmp_path, "bayesloss_companion-0.2.0", "bayesloss/__init__.py")
    return tmp_path


def record(site: Path, distribution: str, *files: str) -> None:
    """Install the metadata of a distribution that has these files."""
    info = site / f"{distribution}.dist-info"
    info.mkdir()
    lines = [f"{name},sha256=x,1\n" for name in files] + [f"{info.name}/RECORD,,\n"]
    (info / "RECORD").write_text("".join(lines), "utf-8")


def import_from(site: Path) -> str:
    """What Python says when it imports the package from there."""
    script = f"import sys; sys.path.insert(0, {str(site)!r}); import bayesloss"
    command = [sys.executable, "-I", "-S", "-c", script]
    return subprocess.run(command, capture_output=True, text=True).stderr


def test_files_of_another_distribution_are_refused(site):
    record(site, "bayesloss-0.1.0", "bayesloss/__init__.py", "bayesloss/losses.py")
    said = import_from(site)
    assert f"ImportError: expected {site / 'bayesloss'} to hold bayesloss-companion alone" in said
    assert "bayesloss-0.1.0, has files there, too: pip uninstall both" in said


@pytest.mark.parametrize(
    ("distribution", "files"),
    [
        ("bayesloss_companion-0.1.0", ["bayesloss/__init__.py"]),
        # Ours, installed for development before it had a name of its own.
        ("bayesloss-0.2.0", ["__editable__.bayesloss-0.2.0.pth"]),
        ("bayesloss-0.2.0", ["elsewhere/bayesloss/__init__.py"]),
    ],
)
def test_other_metadata_does_no_harm(site, distribution, files):
    record(site, distribution, *files)
    assert import_from(site) == ""


def test_the_metadata_that_setuptools_leaves_beside_the_source_does_no_harm(site):
    info = site / "bayesloss.egg-info"
    info.mkdir()
    (info / "SOURCES.txt").write_text("bayesloss/__init__.py\n", "utf-8")
    assert import_from(site) == ""


# ------------------------------------------------------------------------ its page on the index


def test_a_package_page_has_no_relative_link():
    readme = (ROOT / "README.md").read_text("utf-8")
    address = "https://github.com/someone/companion"
    found = setup.for_a_package_page(readme, address)
    assert not setup.RELATIVE.findall(found)
    assert f"[CONTRIBUTING.md]({address}/blob/HEAD/CONTRIBUTING.md)" in found
    assert f"]({address}/raw/HEAD/.github/screenshot.png)" in found


def test_without_an_address_links_become_their_words():
    text = "![A page](page.png)\n[the rules](RULES.md), [the paper](https://example.org/x)"
    assert setup.for_a_package_page(text, None) == "\nthe rules, [the paper](https://example.org/x)"
