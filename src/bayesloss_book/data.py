"""Find, fetch and verify the data sets.

A data file is looked for under ``$BAYESLOSS_DATA``, then in the user's cache (``$BAYESLOSS_CACHE``
if set), and else downloaded from its official address into the cache. Wherever it was found, its
size and sha256 are compared with the registry, ``datasets.yml``, before it is used. A download goes
to a temporary folder and gets its final name only once it is verified, so that a run that is killed
leaves nothing that a later run could mistake for the file.

Auto MPG is small, and embedded: `load_auto_mpg` needs no file and no network.
"""

import gzip
import hashlib
import math
import os
import stat
import struct
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from tqdm import TqdmWarning

with warnings.catch_warnings():
    # In a notebook without ipywidgets pooch's import warns of a progress bar that nobody asked for.
    warnings.simplefilter("ignore", TqdmWarning)
    import pooch

IMAGE_DATASETS = ("mnist", "fashion-mnist", "kmnist")
AUTO_MPG_COLUMNS = ("mpg", "cylinders", "displacement", "horsepower", "weight", "acceleration")

_SPLIT_PREFIX = {"train": "train", "test": "t10k"}
_PATIENCE = 30.0  # seconds, before a slow server is given up
_SLOWEST = 20_000  # bytes in a second: a quarter of an hour for the largest file
_UNSIGNED_BYTE = 0x08  # the IDX type code of uint8


class DataError(RuntimeError):
    """A data file is missing, damaged, or not the one in the registry."""


@dataclass(frozen=True)
class DataFile:
    """Size in bytes and sha256 (hexadecimal) of a file as it is distributed."""

    size: int
    sha256: str


@dataclass(frozen=True)
class DataSet:
    """A data set: its terms, its official page (`source`), and its files, found at `url` + name."""

    title: str
    licence: str
    source: str
    citation: str
    url: str
    files: Mapping[str, DataFile]


@cache
def datasets() -> Mapping[str, DataSet]:
    """Return the registry, ``datasets.yml``: every data set by its name."""
    text = resources.files("bayesloss_book").joinpath("datasets.yml").read_text("utf-8")
    registry = {}
    for name, entry in yaml.safe_load(text).items():
        files = {file: DataFile(**stated) for file, stated in entry.pop("files").items()}
        registry[name] = DataSet(**entry, files=files)
    return registry


def locate(name: str) -> Path:
    """Return the path of a verified data file, downloading it if need be.

    A file such as "mnist/train-labels-idx1-ubyte.gz" lies under this name in ``$BAYESLOSS_DATA``
    and in the cache; its size and sha256 are those in the registry.
    """
    known = {f"{key}/{file}": item for key, item in datasets().items() for file in item.files}
    if name not in known:
        raise ValueError(f"expected one of the data files {sorted(known)}, got {name!r}")
    file_name = name.partition("/")[2]
    url, expected = known[name].url + file_name, known[name].files[file_name]

    folder, cache_folder = _user_folder(), _cache_folder()
    for path in (folder / name if folder else None, cache_folder / name):
        try:
            if path and stat.S_ISREG(path.stat().st_mode):
                remedy = f"Delete it to have it downloaded again from {url}, or put a good copy."
                return _verified(path, expected, str(path), remedy)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise DataError(
                f"{path} cannot be read: {error}. Make it readable, or move it"
            ) from error
    return _download(url, cache_folder / name, expected)


def _user_folder() -> Path | None:
    """Return the folder that ``$BAYESLOSS_DATA`` names, None if it is unset or empty."""
    value = os.environ.get("BAYESLOSS_DATA")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not os.path.isdir(folder):  # False, too, for one that may not be looked at
        raise DataError(
            f"BAYESLOSS_DATA is set to {value!r}, which is not a directory (looked for at "
            f"{folder.absolute()}). Set it to the absolute path of the folder that holds mnist/, "
            "auto-mpg/ and so on, or unset it."
        )
    return folder


def _cache_folder() -> Path:
    """Return the cache: ``$BAYESLOSS_CACHE``, or the operating system's place for caches."""
    return Path(os.environ.get("BAYESLOSS_CACHE") or pooch.os_cache("bayesloss")).expanduser()


def _verified(path: Path, expected: DataFile, shown: str, remedy: str) -> Path:
    """Return `path` if it has the expected size and sum, raise a `DataError` otherwise."""
    status = path.stat()
    # All that changes with the content; nobody can set the time of the last change of status.
    identity = (status.st_dev, status.st_ino, status.st_ctime_ns, status.st_mtime_ns)
    found = DataFile(status.st_size, _sha256(path.absolute(), status.st_size, identity))
    if found != expected:
        raise DataError(
            f"{shown} is damaged or another file: "
            f"expected {expected.size} bytes with sha256 {expected.sha256}, "
            f"found {found.size} bytes with sha256 {found.sha256}. {remedy}"
        )
    return path


@cache  # size and times are arguments so that a file that has changed is hashed again
def _sha256(path: Path, size: int, identity: tuple[int, ...]) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(url: str, target: Path, expected: DataFile) -> Path:
    """Download `url` to `target`; `target` comes into being whole and verified, or not at all."""

    def received(response: Any, **_: object) -> None:
        # Some servers label a stored .gz "Content-Encoding: gzip", whatever the request asks for,
        # and requests would unpack it; the registry has the sum of the packed file.
        response.raw.headers.pop("Content-Encoding", None)
        stack.callback(response.close)  # pooch leaves it open when the download fails

    fetch = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=2**16,
        headers={"Accept-Encoding": "identity"},
        hooks={"response": received},
    )
    remedy = "Nothing was kept. Try again; if it fails again, what is served there has changed."
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            # A folder of its own, which no other process writes to, and on the target's file
            # system, so that the replacement is atomic.
            place = tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent)
            part = Path(stack.enter_context(place)) / target.name
            _watched(lambda: fetch(url, str(part), None), part, expected.size)
            os.replace(_verified(part, expected, f"what {url} sent", remedy), target)
    except OSError as error:  # those of requests are OSErrors, too
        raise DataError(
            f"{target.parent.name}/{target.name} is neither under BAYESLOSS_DATA "
            f"({os.environ.get('BAYESLOSS_DATA') or 'not set'}) nor in the cache, and could not be "
            f"downloaded from {url}: {error}. Set BAYESLOSS_DATA to a folder that holds it under "
            f"this name, or put the file at {target}"
        ) from error
    return target


def _watched(fetch: Callable[[], object], part: Path, size: int) -> None:
    """Fetch into `part`; OSError if that grows too slowly, or beyond `size` bytes."""
    errors: list[Exception] = []

    def work() -> None:
        try:
            fetch()
        except Exception as error:
            errors.append(error)

    # A thread of its own, which ends with the process if it must: time limits of sockets count from
    # the last byte, so a server that sends one now and then would hold us for ever.
    thread = threading.Thread(target=work, daemon=True)
    begin = time.monotonic()
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
        received = part.stat().st_size if part.exists() else 0
        elapsed = time.monotonic() - begin
        if received > size:
            raise OSError(f"expected {size} bytes, got more")
        if thread.is_alive() and elapsed > _PATIENCE and received < _SLOWEST * elapsed:
            raise OSError(f"too slow: {received} bytes in {elapsed:.0f} s")
    if errors:
        raise errors[0]


def read_idx(path: str | os.PathLike[str], shape: Sequence[int | None]) -> NDArray[np.uint8]:
    """Read a gzipped IDX file of unsigned bytes, checking every field of its header.

    The header is two zero bytes, the type code, the number of dimensions, and the size of each
    dimension as a big-endian 32-bit integer; the values follow, the last index running fastest. In
    the shape asked for, None stands for any size of at least one.
    """

    def require(passed: bool, expected: object, found: object) -> None:
        if not passed:
            raise DataError(f"{os.fspath(path)}: expected {expected}, got {found}")

    try:
        with gzip.open(path) as stream:
            content = stream.read()
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{os.fspath(path)}: unreadable, damaged or truncated gzip file: {error}"
        ) from error

    start = 4 + 4 * len(shape)
    require(len(content) >= 4, "at least 4 bytes of IDX header", len(content))
    zeros, kind, ndim = content[:2], content[2], content[3]
    require(zeros == b"\0\0", "an IDX file to begin with two zero bytes", zeros.hex(" "))
    require(kind == _UNSIGNED_BYTE, "the IDX type code 0x08 (unsigned byte)", f"{kind:#04x}")
    require(ndim == len(shape), f"{len(shape)} dimensions", ndim)
    require(len(content) >= start, f"{start} bytes of IDX header", len(content))
    sizes = struct.unpack(f">{ndim}I", content[4:start])
    fits = all(size >= 1 and want in (None, size) for size, want in zip(sizes, shape, strict=True))
    require(fits, f"sizes {tuple(shape)} (None: any)", sizes)
    length = len(content) - start
    require(length == math.prod(sizes), f"{math.prod(sizes)} values for sizes {sizes}", length)
    # frombuffer gives a read-only view of the bytes; callers get an array of their own.
    return np.frombuffer(content, np.uint8, offset=start).reshape(sizes).copy()


def load_images(name: str, split: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, 28, 28) and labels (n,) of "mnist", "fashion-mnist" or "kmnist".

    60,000 to train or 10,000 to test; 0 is the background. `datasets` has source and licence.
    """
    if name not in IMAGE_DATASETS:
        raise ValueError(f"expected name to be one of {IMAGE_DATASETS}, got {name!r}")
    if split not in _SPLIT_PREFIX:
        raise ValueError(f"expected split to be one of {tuple(_SPLIT_PREFIX)}, got {split!r}")
    labels_path = locate(f"{name}/{_SPLIT_PREFIX[split]}-labels-idx1-ubyte.gz")
    labels = read_idx(labels_path, (None,))
    if labels.max() > 9:
        raise DataError(f"{labels_path}: expected labels in 0 to 9, got {labels.max()}")
    images_path = locate(f"{name}/{_SPLIT_PREFIX[split]}-images-idx3-ubyte.gz")
    return read_idx(images_path, (len(labels), 28, 28)), labels


def load_auto_mpg() -> pd.DataFrame:
    """Load the embedded Auto MPG data, 398 cars: no file and no network are needed.

    The columns `AUTO_MPG_COLUMNS`, the rows in the order of the UCI file. ``horsepower`` is NaN in
    six rows. ``auto_mpg.README.md`` beside this module has source and licence.
    """
    table = resources.files("bayesloss_book").joinpath("auto_mpg.csv")
    with table.open(encoding="utf-8") as stream:
        return pd.read_csv(stream, dtype="float64")


def load_auto_mpg_uci() -> pd.DataFrame:
    """Load the same from the official UCI file, without model year, origin and name."""
    return pd.read_csv(
        locate("auto-mpg/auto-mpg.data"),
        sep=r"\s+",
        header=None,
        names=[*AUTO_MPG_COLUMNS, "model_year", "origin", "car_name"],
        usecols=list(AUTO_MPG_COLUMNS),
        na_values="?",
        dtype=dict.fromkeys(AUTO_MPG_COLUMNS, "float64"),
    )
