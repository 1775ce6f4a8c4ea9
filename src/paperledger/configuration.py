"""What a companion says of itself: ``paperledger.toml``, in the folder where it is worked on.

The file is looked for in the current folder and in those above it, as Git looks for its own, so
that pages find it from where they run. Without one, all is as :class:`Configuration` says.
"""

import pkgutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = "paperledger.toml"
IN_FOLDERS = ("claims", "falsifiers", "pages", "results")  # of the settings, those that are paths


@dataclass(frozen=True)
class Extra:
    """What some stores need beyond the usual environment.

    Parameters
    ----------
    name : str
        The extra of the distribution that brings it.
    modules : tuple of str
        Those of its modules by which a measure calls it.
    stores : tuple of str
        The stores that need it.
    """

    name: str
    modules: tuple[str, ...]
    stores: tuple[str, ...]


@dataclass(frozen=True)
class Configuration:
    """The settings of a companion; paths are relative to the file, and `root` is its folder.

    Parameters
    ----------
    root : pathlib.Path
        The folder of ``paperledger.toml``, the current one where there is no such file.
    claims, falsifiers : pathlib.Path
        The ledger, in YAML, and what `paperledger.ledger.falsify` found, in JSON.
    pages, results : pathlib.Path
        The folders of the executed pages, and of the stored results.
    papers : mapping of str to str, default={}
        From what the ledger calls a paper to its authors, title and place. Where it names any, a
        claim of another paper is refused.
    own : str, default="This companion"
        What the ledger calls the companion itself, whose claims are counted apart.
    package : str, default=""
        The package that is laid out like the pages, so that a store has the page of its module.
    versions : mapping of str to str, default={}
        What provenance records beside Python: from a name to the module whose ``__version__`` it
        is.
    seeds : int, default=20
        With how many other seeds `paperledger.ledger.seeds` executes each page that has one.
    elsewhere, times : str, default=""
        ``module:name`` of tolerances, as `paperledger.stores.tolerances` explains them: on another
        kind of processor, and of what differs on the same one, too.
    stale : str, default=""
        ``module:name`` of a mapping from stores to the rows that are to be made anew, as
        `paperledger.stores.stale` explains them.
    files : str, default=""
        ``module:name`` of a function from a cell to the data files that it needs: a mapping of
        their names to whether they are on this machine.
    extras : tuple of Extra, default=()
        What some stores need beyond the usual environment.
    """

    root: Path
    claims: Path = Path("claims.yml")
    falsifiers: Path = Path("falsifiers.json")
    pages: Path = Path()
    results: Path = Path("results")
    papers: Mapping[str, str] = field(default_factory=dict)
    own: str = "This companion"
    package: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seeds: int = 20
    elsewhere: str = ""
    times: str = ""
    stale: str = ""
    files: str = ""
    extras: tuple[Extra, ...] = ()

    def __post_init__(self) -> None:
        """Make all paths absolute."""
        for name in IN_FOLDERS:
            object.__setattr__(self, name, self.root / getattr(self, name))

    def named(self, setting: str) -> Any:
        """What a setting names, such as ``module:name``; None if it names nothing."""
        name = getattr(self, setting)
        return pkgutil.resolve_name(name) if name else None


def configuration() -> Configuration:
    """The settings of the companion in which the current folder lies.

    Raises
    ------
    ValueError
        If the file has a setting that there is not, or one of another type.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        file = folder / FILE
        if file.is_file():
            return _read(file, file.stat().st_mtime_ns)
    return Configuration(here)


@lru_cache(maxsize=1)
def _read(path: Path, changed: int) -> Configuration:
    """The settings in a file, read once until it is changed."""
    found = tomllib.loads(path.read_text("utf-8"))
    settings = {each.name for each in fields(Configuration)} - {"root"}
    for name, value in found.items():
        if name not in settings:
            raise ValueError(f"{path}: expected settings of {sorted(settings)}, got {name!r}")
        expected = _TOML.get(name, str)
        if type(value) is not expected:
            raise ValueError(
                f"{path}: expected {name} to be of type {expected.__name__}, got {value!r}"
            )
    extras = tuple(_extra(path, entry) for entry in found.pop("extras", []))
    return Configuration(root=path.parent, extras=extras, **found)


_TOML: Mapping[str, type] = {"papers": dict, "versions": dict, "seeds": int, "extras": list}


def _extra(path: Path, entry: Mapping[str, Any]) -> Extra:
    wanted = {each.name for each in fields(Extra)}
    if set(entry) != wanted:
        raise ValueError(f"{path}: expected extras of {sorted(wanted)}, got {sorted(entry)}")
    return Extra(entry["name"], tuple(entry["modules"]), tuple(entry["stores"]))
