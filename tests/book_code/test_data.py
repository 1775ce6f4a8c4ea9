"""Tests of `bayesloss_book.data`: no network but a server on 127.0.0.1."""

import gzip
import hashlib
import io
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pooch
import pytest

from bayesloss_book import data
from bayesloss_book.data import DataError, DataFile, DataSet

GOOD = gzip.compress(bytes(range(256)) * 1000, compresslevel=0, mtime=0)
NAME = "toy/values.gz"


class Server(ThreadingHTTPServer):
    """Serves `body` in the way that `behaviour` says, and counts the requests."""

    daemon_threads = True
    body = GOOD
    behaviour = "whole"
    requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    """Sends the server's body whole, cut short, mislabelled, or not at all."""

    server: Server

    def do_GET(self) -> None:
        self.server.requests += 1
        body, behaviour = self.server.body, self.server.behaviour
        if behaviour == "missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if behaviour == "labelled as gzip":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body if behaviour in ("whole", "labelled as gzip") else body[:100_000])
        if behaviour == "stalls":
            self.wfile.flush()
            self.rfile.read(1)  # until the client is gone

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def toy_registry(url: str, **files: bytes) -> dict[str, DataSet]:
    stated = {file: DataFile(len(body), sha256(body)) for file, body in files.items()}
    return {"toy": DataSet("Toy", "none", url, "nobody", url, stated)}


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> Path:
    """Register `NAME`, which the server has, with no $BAYESLOSS_DATA and an empty cache."""
    registry = toy_registry(server.url, **{"values.gz": GOOD})
    monkeypatch.setattr(data, "datasets", lambda: registry)
    monkeypatch.delenv("BAYESLOSS_DATA", raising=False)
    monkeypatch.setenv("BAYESLOSS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("BAYESLOSS_DATA", str(folder))
    return folder


def put(folder: Path, content: bytes, name: str = NAME) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


# ---------------------------------------------------------------------------------- where it is


def test_a_file_in_the_users_folder_comes_first(
    user_folder: Path, cache_folder: Path, server: Server
) -> None:
    put(cache_folder, GOOD)
    path = put(user_folder, GOOD)
    assert data.locate(NAME) == path
    assert server.requests == 0


def test_the_cache_comes_second(user_folder: Path, cache_folder: Path, server: Server) -> None:
    path = put(cache_folder, GOOD)
    assert data.locate(NAME) == path
    assert server.requests == 0


def test_a_download_comes_last_and_only_once(
    user_folder: Path, cache_folder: Path, server: Server
) -> None:
    path = data.locate(NAME)
    assert path == cache_folder / NAME
    assert path.read_bytes() == GOOD
    assert data.locate(NAME) == path
    assert server.requests == 1
    assert files_in(cache_folder) == [path]
    assert list(path.parent.iterdir()) == [path]  # the temporary folder is gone
    assert files_in(user_folder) == []


def test_without_variables_the_cache_is_the_operating_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_folder: Path
) -> None:
    monkeypatch.setenv("BAYESLOSS_CACHE", "")
    monkeypatch.setenv("BAYESLOSS_DATA", "")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "os" / project)
    assert data.locate(NAME) == tmp_path / "os" / "bayesloss" / NAME


def test_a_users_folder_that_is_no_directory_is_an_error(
    user_folder: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache_folder, GOOD)  # even when the file could be had elsewhere
    nowhere = str(user_folder / "nowhere")
    monkeypatch.setenv("BAYESLOSS_DATA", nowhere)
    with pytest.raises(DataError, match=r"BAYESLOSS_DATA is set to .* not a directory") as caught:
        data.locate(NAME)
    assert nowhere in str(caught.value)
    assert "absolute path" in str(caught.value)


@pytest.mark.parametrize("name", ["toy/other.gz", "values.gz", "other/values.gz", "../secret"])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str, cache_folder: Path) -> None:
    with pytest.raises(
        ValueError, match=r"expected one of the data files \['toy/values.gz'\]"
    ) as e:
        data.locate(name)
    assert repr(name) in str(e.value)


# --------------------------------------------------------------------------------- what it holds


@pytest.mark.parametrize("content", [b"", GOOD[:-1], GOOD + b"\0", GOOD[:-1] + b"\xff"])
@pytest.mark.parametrize("where", ["user_folder", "cache_folder"])
def test_a_damaged_file_is_an_error_that_says_all(
    where: str,
    content: bytes,
    request: pytest.FixtureRequest,
    server: Server,
) -> None:
    path = put(request.getfixturevalue(where), content)
    with pytest.raises(DataError) as caught:
        data.locate(NAME)
    for part in (
        f"{path} is damaged",
        f"expected {len(GOOD)} bytes with sha256 {sha256(GOOD)}",
        f"found {len(content)} bytes with sha256 {sha256(content)}",
        f"Delete it to have it downloaded again from {server.url}values.gz",
    ):
        assert part in str(caught.value)
    assert server.requests == 0
    assert path.read_bytes() == content  # the user's file is the user's to delete

    path.unlink()
    assert data.locate(NAME).read_bytes() == GOOD  # the advice holds


def test_a_file_that_may_not_be_read_is_an_error_that_names_it(user_folder: Path) -> None:
    path = put(user_folder, GOOD)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("who runs the tests may read everything")
    with pytest.raises(DataError, match=r"values\.gz cannot be read.*Permission"):
        data.locate(NAME)


# ---------------------------------------------------------------------------------- the download


def test_a_server_that_stalls_is_given_up(
    cache_folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pooch.downloaders.DEFAULT_TIMEOUT", 0.3)
    server.behaviour = "stalls"
    with pytest.raises(DataError, match=r"could not be downloaded.*timed out"):
        data.locate(NAME)
    assert files_in(cache_folder) == []
    server.behaviour = "whole"
    assert data.locate(NAME).read_bytes() == GOOD


def test_a_download_with_a_wrong_sum_leaves_nothing(cache_folder: Path, server: Server) -> None:
    server.body = bad = GOOD[:-1] + b"\xff"
    with pytest.raises(DataError) as caught:
        data.locate(NAME)
    for part in (f"{server.url}values.gz", sha256(GOOD), sha256(bad)):
        assert part in str(caught.value)
    assert files_in(cache_folder) == []

    server.body = GOOD
    assert data.locate(NAME).read_bytes() == GOOD


@pytest.mark.parametrize("behaviour", ["breaks off", "missing"])
def test_a_download_that_fails_leaves_nothing(
    behaviour: str, cache_folder: Path, server: Server
) -> None:
    server.behaviour = behaviour
    with pytest.raises(DataError, match="could not be downloaded") as caught:
        data.locate(NAME)
    reason = {"breaks off": "IncompleteRead", "missing": "404"}[behaviour]
    assert reason in str(caught.value)
    assert files_in(cache_folder) == []

    server.behaviour = "whole"
    assert data.locate(NAME).read_bytes() == GOOD


def test_a_download_that_is_killed_leaves_nothing_under_the_final_name(
    cache_folder: Path, server: Server
) -> None:
    server.behaviour = "stalls"
    program = (
        "from bayesloss_book import data\n"
        f"stated = data.DataFile({len(GOOD)}, {sha256(GOOD)!r})\n"
        f"toy = data.DataSet('', '', '', '', {server.url!r}, {{'values.gz': stated}})\n"
        "data.datasets = lambda: {'toy': toy}\n"
        f"data.locate({NAME!r})\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
        waiting = threading.Event()
        while process.poll() is None and not any(p.stat().st_size for p in files_in(cache_folder)):
            waiting.wait(0.01)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()
    (part,) = files_in(cache_folder)
    assert 0 < part.stat().st_size < len(GOOD)
    assert not (cache_folder / NAME).exists()

    server.behaviour = "whole"
    assert data.locate(NAME).read_bytes() == GOOD


def test_a_server_that_labels_the_file_as_gzip_encoded_changes_nothing(
    cache_folder: Path, server: Server
) -> None:
    server.behaviour = "labelled as gzip"
    assert data.locate(NAME).read_bytes() == GOOD


def test_no_network_and_no_file_says_what_to_do(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:  # bound but not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        registry = toy_registry(url, **{"values.gz": GOOD})
        monkeypatch.setattr(data, "datasets", lambda: registry)
        with pytest.raises(DataError) as caught:
            data.locate(NAME)
    for part in (
        f"{NAME} is neither under BAYESLOSS_DATA (not set) nor in the cache",
        f"could not be downloaded from {url}values.gz",
        "Set BAYESLOSS_DATA to a folder that holds it",
        f"or put the file at {cache_folder / NAME}",
    ):
        assert part in str(caught.value)


def test_a_cache_that_cannot_be_written_is_named(cache_folder: Path, server: Server) -> None:
    cache_folder.write_text("a file where the folder should be")
    with pytest.raises(DataError, match="could not be downloaded") as caught:
        data.locate(NAME)
    assert str(cache_folder) in str(caught.value)
    assert server.requests == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_progress_is_shown_on_a_terminal_and_nowhere_else(
    stream: Callable[[], io.StringIO], cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = stream()
    monkeypatch.setattr(sys, "stderr", errors)
    data.locate(NAME)
    assert ("100%" in errors.getvalue()) is errors.isatty()
    assert errors.isatty() or errors.getvalue() == ""


# ------------------------------------------------------------------------------------- IDX files


def idx(
    sizes: tuple[int, ...],
    payload: bytes,
    zeros: bytes = b"\0\0",
    kind: int = 8,
    ndim: int | None = None,
) -> bytes:
    ndim = len(sizes) if ndim is None else ndim
    return zeros + bytes([kind, ndim]) + struct.pack(f">{len(sizes)}I", *sizes) + payload


def test_read_idx_gives_the_values_in_their_order(tmp_path: Path) -> None:
    payload = bytes(range(250, 256)) + bytes(range(18))
    values = data.read_idx(put(tmp_path, gzip.compress(idx((2, 3, 4), payload))), (None, 3, 4))
    assert values.dtype == np.uint8
    assert values.shape == (2, 3, 4)
    assert values.flags.writeable
    for (i, j, k), value in np.ndenumerate(values):
        assert value == payload[12 * i + 4 * j + k]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08",
        idx((2, 3), bytes(6), zeros=b"\1\0"),
        idx((2, 3), bytes(6), kind=0x09),
        idx((2, 3), bytes(6), ndim=1),
        idx((2,), bytes(3), ndim=2),
        idx((2, 4), bytes(8)),
        idx((2, 3), bytes(5)),
        idx((2, 3), bytes(7)),
    ],
)
def test_read_idx_refuses_another_type_or_shape(content: bytes, tmp_path: Path) -> None:
    path = put(tmp_path, gzip.compress(content))
    with pytest.raises(DataError, match="IDX file") as caught:
        data.read_idx(path, (None, 3))
    assert str(caught.value).startswith(f"{path}: ")


PACKED = gzip.compress(idx((2, 3), bytes(6)), mtime=0)


@pytest.mark.parametrize(
    "content",
    [
        idx((2, 3), bytes(6)),  # not packed at all
        PACKED[:5],  # cut within the gzip header
        PACKED[:-9],  # within the data
        PACKED[:-1],  # within the closing sum and length
        PACKED + b"more",
        PACKED[:-8] + bytes([PACKED[-8] ^ 1]) + PACKED[-7:],  # another sum
        PACKED[:10] + b"\xff" + PACKED[11:],  # no such block type
    ],
)
def test_read_idx_refuses_a_damaged_gzip_file(content: bytes, tmp_path: Path) -> None:
    path = put(tmp_path, content)
    with pytest.raises(DataError, match="damaged, or no gzipped IDX file: .") as caught:
        data.read_idx(path, (None, 3))
    assert str(caught.value).startswith(f"{path}: ")


# ------------------------------------------------------------------------------------ the images


def put_images(
    folder: Path, monkeypatch: pytest.MonkeyPatch, images: bytes, labels: bytes
) -> tuple[Path, Path]:
    bodies = {
        "t10k-images-idx3-ubyte.gz": gzip.compress(images),
        "t10k-labels-idx1-ubyte.gz": gzip.compress(labels),
    }
    registry = {"mnist": toy_registry("http://127.0.0.1:9/", **bodies)["toy"]}
    monkeypatch.setattr(data, "datasets", lambda: registry)
    first, second = (put(folder, body, f"mnist/{file}") for file, body in bodies.items())
    return first, second


def test_load_images_pairs_images_with_labels(
    user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = bytes(i % 251 for i in range(3 * 784))
    put_images(user_folder, monkeypatch, idx((3, 28, 28), pixels), idx((3,), b"\0\x09\5"))
    images, labels = data.load_images("mnist", "test")
    assert images.shape == (3, 28, 28)
    assert images.tobytes() == pixels
    assert labels.tolist() == [0, 9, 5]
    assert images.dtype == labels.dtype == np.uint8


@pytest.mark.parametrize(
    ("images", "labels", "blamed", "message"),
    [
        (
            idx((2, 28, 28), bytes(1568)),
            idx((3,), bytes(3)),
            0,
            r"\(3, 28, 28\), .*\(2, 28",
        ),
        (idx((2, 28, 28), bytes(1568)), idx((2, 1), bytes(2)), 1, r"of shape \(2, 1\)"),
        (idx((2, 28, 28), bytes(1568)), idx((2,), b"\3\x0a"), 1, "labels in 0 to 9, got 10"),
    ],
)
def test_load_images_refuses_what_does_not_fit(
    images: bytes,
    labels: bytes,
    blamed: int,
    message: str,
    user_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = put_images(user_folder, monkeypatch, images, labels)
    with pytest.raises(DataError, match=message) as caught:
        data.load_images("mnist", "test")
    assert str(paths[blamed]) in str(caught.value)


def test_load_images_names_what_it_knows() -> None:
    with pytest.raises(ValueError, match=r"name to be one of \('mnist', 'fashion-mnist', 'kmnist'"):
        data.load_images("MNIST", "train")
    with pytest.raises(ValueError, match=r"split to be one of \('train', 'test'\), got 'all'"):
        data.load_images("mnist", "all")


# ------------------------------------------------------------------ the registry and the real files


def has_real(*names: str) -> pytest.MarkDecorator:
    folder = os.environ.get("BAYESLOSS_DATA", "")
    present = bool(folder) and all((Path(folder) / name).is_file() for name in names)
    return pytest.mark.skipif(not present, reason=f"needs {', '.join(names)} in $BAYESLOSS_DATA")


# The md5 sums of the official files, as torchvision lists them: a route to the same files that is
# not the registry's own.
OFFICIAL_MD5 = {
    "mnist/train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "mnist/train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "mnist/t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "mnist/t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    "fashion-mnist/train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "fashion-mnist/train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "fashion-mnist/t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "fashion-mnist/t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    "kmnist/train-images-idx3-ubyte.gz": "bdb82020997e1d708af4cf47b453dcf7",
    "kmnist/train-labels-idx1-ubyte.gz": "e144d726b3acfaa3e44228e80efcd344",
    "kmnist/t10k-images-idx3-ubyte.gz": "5c965bf0a639b31b8f53240b1b52f4d7",
    "kmnist/t10k-labels-idx1-ubyte.gz": "7320c461ea6c1c855c0b718fb2a4b134",
}


def test_the_registry_is_complete() -> None:
    known = {f"{name}/{file}" for name, item in data.datasets().items() for file in item.files}
    assert known == {*OFFICIAL_MD5, "auto-mpg/auto-mpg.data"}
    for item in data.datasets().values():
        assert all((item.title, item.licence, item.citation))
        assert item.source.startswith("http")
        assert item.url.startswith("http")
        assert item.url.endswith("/")
        for stated in item.files.values():
            assert isinstance(stated.size, int)
            assert len(bytes.fromhex(stated.sha256)) == 32
    sums = [stated.sha256 for item in data.datasets().values() for stated in item.files.values()]
    assert len(set(sums)) == len(sums)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=has_real(name)) for name in OFFICIAL_MD5]
)
def test_the_registered_files_are_the_official_ones(name: str) -> None:
    assert hashlib.md5(data.locate(name).read_bytes()).hexdigest() == OFFICIAL_MD5[name]


# Examples of each class, and the mean grey value that is commonly used to normalise the images.
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
KNOWN = [
    ("mnist", MNIST_TRAIN, 0.1307, MNIST_TEST),
    ("fashion-mnist", [6000] * 10, 0.2860, [1000] * 10),
    ("kmnist", [6000] * 10, 0.1918, [1000] * 10),
]


@pytest.mark.parametrize(
    ("name", "train_counts", "mean", "test_counts"),
    [
        pytest.param(*known, marks=has_real(*(n for n in OFFICIAL_MD5 if n.startswith(known[0]))))
        for known in KNOWN
    ],
)
def test_the_real_images_are_as_known(
    name: str, train_counts: list[int], mean: float, test_counts: list[int]
) -> None:
    images, labels = data.load_images(name, "train")
    assert images.shape == (60_000, 28, 28)
    assert np.bincount(labels).tolist() == train_counts
    assert images.mean() / 255 == pytest.approx(mean, abs=1e-4)
    images, labels = data.load_images(name, "test")
    assert images.shape == (10_000, 28, 28)
    assert np.bincount(labels).tolist() == test_counts


# --------------------------------------------------------------------------------------- Auto MPG


def test_the_embedded_auto_mpg_table(monkeypatch: pytest.MonkeyPatch) -> None:
    # A folder that would be an error for `locate`: the embedded table does not ask for one.
    monkeypatch.setenv("BAYESLOSS_DATA", os.devnull)
    table = data.load_auto_mpg()
    assert tuple(table.columns) == data.AUTO_MPG_COLUMNS
    assert set(table.dtypes) == {np.dtype("float64")}
    assert table.shape == (398, 6)
    assert table.iloc[0].tolist() == [18, 8, 307, 130, 3504, 12]
    assert table.iloc[-1].tolist() == [31, 4, 119, 82, 2720, 19.4]
    missing = table.isna()
    assert missing.sum().sum() == 6
    assert np.flatnonzero(missing["horsepower"]).tolist() == [32, 126, 330, 336, 354, 374]


@has_real("auto-mpg/auto-mpg.data")
def test_the_embedded_auto_mpg_table_is_the_official_one() -> None:
    lines = data.locate("auto-mpg/auto-mpg.data").read_text("ascii").splitlines()
    rows = [line.replace("?", "nan").split()[:6] for line in lines]
    expected = pd.DataFrame(rows, columns=data.AUTO_MPG_COLUMNS, dtype="float64")
    pd.testing.assert_frame_equal(data.load_auto_mpg(), expected, check_exact=True)
