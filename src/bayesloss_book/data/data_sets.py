"""Find, fetch and verify the data sets.

A data file is looked for under ``$BAYESLOSS_DATA``, then in the user's cache (``$BAYESLOSS_CACHE``
if set), and else downloaded by pooch from its official address into the cache. Wherever it was
found, its sha256 is compared with the registry, ``datasets.yml``, before it is used; what is
downloaded gets its name only then.

Auto MPG is small, and embedded: `load_auto_mpg` needs no file and no network.
"""

import gzip
import hashlib
import math
import os
import struct
import sys
import warnings
import zlib
from collections.abc import Mapping, Sequence
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

from paperledger.stores.needs import DataMissing

# In a notebook without ipywidgets pooch's import warns of a progress bar that nobody asked for.
with warnings.catch_warnings(action="ignore", category=TqdmWarning):
    import pooch

pooch.get_logger().setLevel("WARNING")  # pages write nothing to stderr
IMAGE_DATASETS = ("mnist", "fashion-mnist", "kmnist")

_SPLIT_PREFIX = {"train": "train", "test": "t10k"}


class DataError(DataMissing):
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
    text = resources.files("bayesloss_book.data").joinpath("datasets.yml").read_text("utf-8")
    registry = {}
    for name, entry in yaml.safe_load(text).items():
        files = {file: DataFile(**stated) for file, stated in entry.pop("files").items()}
        registry[name] = DataSet(**entry, files=files)
    return registry


def locate(name: str) -> Path:
    """The verified file's path, in ``$BAYESLOSS_DATA`` or in the cache, downloaded if need be."""
    known = {f"{key}/{file}": item for key, item in datasets().items() for file in item.files}
    if name not in known:
        raise ValueError(f"expected one of the data files {sorted(known)}, got {name!r}")
    file_name = name.partition("/")[2]
    url = known[name].url + file_name
    expected = known[name].files[file_name]
    folder = _user_folder()
    cached = cache_folder() / name
    for path in (folder / name if folder else None, cached):
        if path and path.is_file():
            return _verified(path, expected, url)
    return _download(url, cached, expected)


def is_at_hand(name: str) -> bool:
    """Whether all files of a data set lie in ``$BAYESLOSS_DATA`` or in the cache."""
    folder = _user_folder()
    folders = [cache_folder(), folder] if folder else [cache_folder()]
    return all(any((f / name / file).is_file() for f in folders) for file in datasets()[name].files)


def cache_folder() -> Path:
    """The user's cache."""
    return Path(os.environ.get("BAYESLOSS_CACHE") or pooch.os_cache("bayesloss")).expanduser()


def _user_folder() -> Path | None:
    """The folder that ``$BAYESLOSS_DATA`` names, None if it is unset or empty."""
    value = os.environ.get("BAYESLOSS_DATA")
    folder = Path(value or "").expanduser()
    if value and not folder.is_dir():
        raise DataError(
            f"BAYESLOSS_DATA is set to {value!r}, which is not a directory (looked for at "
            f"{folder.absolute()}). Set it to the absolute path of the folder that holds mnist/, "
            "auto-mpg/ and so on, or unset it."
        )
    return folder if value else None


def _verified(path: Path, expected: DataFile, url: str) -> Path:
    """The path, if the file has the sum of the registry."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}. Make it readable, or move it") from error
    found = DataFile(len(content), hashlib.sha256(content).hexdigest())
    if found != expected:
        raise DataError(
            f"{path} is damaged or another file: expected {expected.size} bytes with sha256 "
            f"{expected.sha256}, found {found.size} bytes with sha256 {found.sha256}. Delete it to "
            f"have it downloaded again from {url}, or put a good copy."
        )
    return path


def _download(url: str, target: Path, expected: DataFile) -> Path:
    """Download a file, which comes into being whole and verified, or not at all."""

    def received(response: Any, **_: object) -> None:
        # Some servers label a stored .gz "Content-Encoding: gzip", whatever the request asks for,
        # and requests would unpack it; the registry has the sum of the packed file.
        response.raw.headers.pop("Content-Encoding", None)

    fetch = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        headers={"Accept-Encoding": "identity"},
        hooks={"response": received},
    )
    try:
        pooch.retrieve(
            url, f"sha256:{expected.sha256}", target.name, target.parent, downloader=fetch
        )
    except (OSError, ValueError) as error:  # of requests, and of another sum
        raise DataError(
            f"{target.parent.name}/{target.name} is neither under BAYESLOSS_DATA "
            f"({os.environ.get('BAYESLOSS_DATA') or 'not set'}) nor in the cache, and could not be "
            f"downloaded from {url}: {error}. Set BAYESLOSS_DATA to a folder that holds it under "
            f"this name, or put the file at {target}"
        ) from error
    return target


def read_idx(path: str | os.PathLike[str], shape: Sequence[int | None]) -> NDArray[np.uint8]:
    """Read a gzipped IDX file of unsigned bytes and of a shape, in which None is any size."""
    try:
        content = gzip.decompress(Path(path).read_bytes())
        zeros, kind, ndim = struct.unpack_from(">HBB", content)
        sizes = struct.unpack_from(f">{ndim}I", content, 4)
    except (EOFError, OSError, zlib.error, struct.error) as error:
        raise DataError(f"{os.fspath(path)}: damaged, or no gzipped IDX file: {error}") from error
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * ndim)
    fits = len(sizes) == len(shape) and all(
        want in (None, size) for size, want in zip(sizes, shape, strict=True)
    )
    if (zeros, kind) != (0, 8) or not fits or len(values) != math.prod(sizes):
        raise DataError(
            f"{os.fspath(path)}: expected an IDX file of unsigned bytes of shape {tuple(shape)}, "
            f"got {len(values)} values of type {kind}, of shape {sizes}"
        )
    return values.reshape(sizes).copy()  # frombuffer gives a read-only view


def load_images(name: str, split: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, 28, 28) and labels (n,) of "mnist", "fashion-mnist" or "kmnist"."""
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
    """The embedded Auto MPG data, 398 cars in UCI's order; ``horsepower`` has six NaN."""
    table = resources.files("bayesloss_book.data").joinpath("auto_mpg.csv")
    with table.open(encoding="utf-8") as stream:
        return pd.read_csv(stream, dtype="float64")
