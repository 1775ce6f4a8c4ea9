import gzip
import hashlib
import os
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pooch
import pytest

from bayesloss_book.data import data_sets as data
from bayesloss_book.data.data_sets import DataError, DataFile, DataSet

GOOD = gzip.compress(bytes(range(256)) * 1000, compresslevel=0, mtime=0)
NAME = "toy/values.gz"
COLUMNS = ("mpg", "cylinders", "displacement", "horsepower", "weight", "acceleration")


class Server(ThreadingHTTPServer):
    """Serves `body` in the way that `behaviour` says, and counts the requests."""

    daemon_threads = True
    body = GOOD
    behaviour = "whole"
    requests = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    """Sends the server's body whole, cut short, mislabelled, or not at all."""

    server: Server

    def do_GET(self):
        self.server.requests += 1
        body = self.server.body
        behaviour = self.server.behaviour
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

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def toy_registry(url, **files):
    stated = {file: DataFile(len(body), sha256(body)) for file, body in files.items()}
    return {"toy": DataSet("Toy", "none", url, "nobody", url, stated)}


@pytest.fixture
def cache_folder(tmp_path, monkeypatch, server):
    """Register `NAME`, which the server has, with no $BAYESLOSS_DATA and an empty cache."""
    registry = toy_registry(server.url, **{"values.gz": GOOD})
    monkeypatch.setattr(data, "datasets", lambda: registry)
    monkeypatch.delenv("BAYESLOSS_DATA", raising=False)
    monkeypatch.setenv("BAYESLOSS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


@pytest.fixture
def user_folder(tmp_path, monkeypatch, cache_folder):
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("BAYESLOSS_DATA", str(folder))
    return folder


def put(folder, content, name=NAME):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def files_in(folder):
    return [path for path in folder.rglob("*") if not path.is_dir()]


def test_the_users_folder_comes_first_then_the_cache_then_one_download(
    user_folder, cache_folder, server
):
    path = put(cache_folder, GOOD)
    own = put(user_folder, GOOD)
    assert data.locate(NAME) == own
    own.unlink()
    assert data.locate(NAME) == path
    path.unlink()
    assert server.requests == 0
    server.behaviour = "labelled as gzip"  # which changes nothing
    path = data.locate(NAME)
    assert path == cache_folder / NAME
    assert path.read_bytes() == GOOD
    assert data.locate(NAME) == path
    assert server.requests == 1
    assert files_in(cache_folder) == [path]
    assert list(path.parent.iterdir()) == [path]  # the temporary folder is gone
    assert files_in(user_folder) == []


def test_without_variables_the_cache_is_the_operating_systems(tmp_path, monkeypatch, cache_folder):
    monkeypatch.setenv("BAYESLOSS_CACHE", "")
    monkeypatch.setenv("BAYESLOSS_DATA", "")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "os" / project)
    assert data.locate(NAME) == tmp_path / "os" / "bayesloss" / NAME


def test_a_users_folder_that_is_no_directory_is_an_error(user_folder, cache_folder, monkeypatch):
    put(cache_folder, GOOD)  # even when the file could be had elsewhere
    nowhere = str(user_folder / "nowhere")
    monkeypatch.setenv("BAYESLOSS_DATA", nowhere)
    with pytest.raises(DataError, match=r"BAYESLOSS_DATA is set to .* not a directory") as caught:
        data.locate(NAME)
    assert nowhere in str(caught.value)
    assert "absolute path" in str(caught.value)


@pytest.mark.parametrize("name", ["values.gz", "../secret"])
def test_an_unknown_name_is_refused_with_the_known_ones(name, cache_folder):
    with pytest.raises(
        ValueError, match=r"expected one of the data files \['toy/values.gz'\]"
    ) as e:
        data.locate(name)
    assert repr(name) in str(e.value)


@pytest.mark.parametrize("content", [GOOD[:-1], GOOD[:-1] + b"\xff"])
@pytest.mark.parametrize("where", ["user_folder", "cache_folder"])
def test_a_damaged_file_is_an_error_that_says_all(where, content, request, server):
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


def test_a_download_with_a_wrong_sum_leaves_nothing(cache_folder, server):
    server.body = bad = GOOD[:-1] + b"\xff"
    with pytest.raises(DataError) as caught:
        data.locate(NAME)
    for part in (f"{server.url}values.gz", sha256(GOOD), sha256(bad)):
        assert part in str(caught.value)
    assert files_in(cache_folder) == []

    server.body = GOOD
    assert data.locate(NAME).read_bytes() == GOOD


REASONS = {"breaks off": "IncompleteRead", "missing": "404", "stalls": "timed out"}


@pytest.mark.parametrize("behaviour", REASONS)
def test_a_download_that_fails_leaves_nothing(behaviour, cache_folder, server, monkeypatch):
    monkeypatch.setattr("pooch.downloaders.DEFAULT_TIMEOUT", 0.3)
    server.behaviour = behaviour
    with pytest.raises(DataError, match="could not be downloaded") as caught:
        data.locate(NAME)
    assert REASONS[behaviour] in str(caught.value)
    assert files_in(cache_folder) == []

    server.behaviour = "whole"
    assert data.locate(NAME).read_bytes() == GOOD


def test_no_network_and_no_file_says_what_to_do(cache_folder, monkeypatch):
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


def idx(sizes, payload, zeros=b"\0\0", kind=8, ndim=None):
    ndim = len(sizes) if ndim is None else ndim
    return zeros + bytes([kind, ndim]) + struct.pack(f">{len(sizes)}I", *sizes) + payload


def test_read_idx_gives_the_values_in_their_order(tmp_path):
    payload = bytes(range(250, 256)) + bytes(range(18))
    values = data.read_idx(put(tmp_path, gzip.compress(idx((2, 3, 4), payload))), (None, 3, 4))
    assert values.dtype == np.uint8
    assert values.shape == (2, 3, 4)
    assert values.flags.writeable
    for (i, j, k), value in np.ndenumerate(values):
        assert value == payload[12 * i + 4 * j + k]


PACKED = gzip.compress(idx((2, 3), bytes(6)), mtime=0)
OTHERS = [  # another type or shape
    b"",
    b"\0\0\x08",
    idx((2, 3), bytes(6), zeros=b"\1\0"),
    idx((2, 3), bytes(6), kind=0x09),
    idx((2,), bytes(3), ndim=2),
    idx((2, 4), bytes(8)),
    idx((2, 3), bytes(5)),
    idx((2, 3), bytes(7)),
]
DAMAGED = [
    idx((2, 3), bytes(6)),  # not packed at all
    PACKED[:-9],  # cut within the data
    PACKED + b"more",
    PACKED[:-8] + bytes([PACKED[-8] ^ 1]) + PACKED[-7:],  # another sum
    PACKED[:10] + b"\xff" + PACKED[11:],  # no such block type
]


@pytest.mark.parametrize("content", [*(gzip.compress(each, mtime=0) for each in OTHERS), *DAMAGED])
def test_read_idx_refuses_another_type_or_shape_and_damage(content, tmp_path):
    path = put(tmp_path, content)
    message = "damaged, or no gzipped IDX file: ." if content in DAMAGED else "IDX file"
    with pytest.raises(DataError, match=message) as caught:
        data.read_idx(path, (None, 3))
    assert str(caught.value).startswith(f"{path}: ")


def put_images(folder, monkeypatch, images, labels):
    bodies = {
        "t10k-images-idx3-ubyte.gz": gzip.compress(images),
        "t10k-labels-idx1-ubyte.gz": gzip.compress(labels),
    }
    registry = {"mnist": toy_registry("http://127.0.0.1:9/", **bodies)["toy"]}
    monkeypatch.setattr(data, "datasets", lambda: registry)
    first, second = (put(folder, body, f"mnist/{file}") for file, body in bodies.items())
    return first, second


def test_load_images_pairs_images_with_labels(user_folder, monkeypatch):
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
        (idx((2, 28, 28), bytes(1568)), idx((3,), bytes(3)), 0, r"\(3, 28, 28\), .*\(2, 28"),
        (idx((2, 28, 28), bytes(1568)), idx((2, 1), bytes(2)), 1, r"of shape \(2, 1\)"),
        (idx((2, 28, 28), bytes(1568)), idx((2,), b"\3\x0a"), 1, "labels in 0 to 9, got 10"),
    ],
)
def test_load_images_refuses_what_does_not_fit(
    images, labels, blamed, message, user_folder, monkeypatch
):
    paths = put_images(user_folder, monkeypatch, images, labels)
    with pytest.raises(DataError, match=message) as caught:
        data.load_images("mnist", "test")
    assert str(paths[blamed]) in str(caught.value)


def test_load_images_names_what_it_knows():
    with pytest.raises(ValueError, match=r"name to be one of \('mnist', 'fashion-mnist', 'kmnist'"):
        data.load_images("MNIST", "train")
    with pytest.raises(ValueError, match=r"split to be one of \('train', 'test'\), got 'all'"):
        data.load_images("mnist", "all")


def has_real(*names):
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


def test_the_registry_is_complete():
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
def test_the_registered_files_are_the_official_ones(name):
    assert hashlib.md5(data.locate(name).read_bytes()).hexdigest() == OFFICIAL_MD5[name]


def test_the_embedded_auto_mpg_table(monkeypatch):
    # A folder that would be an error for `locate`: the embedded table does not ask for one.
    monkeypatch.setenv("BAYESLOSS_DATA", os.devnull)
    table = data.load_auto_mpg()
    assert tuple(table.columns) == COLUMNS
    assert set(table.dtypes) == {np.dtype("float64")}
    assert table.shape == (398, 6)
    assert table.iloc[0].tolist() == [18, 8, 307, 130, 3504, 12]
    assert table.iloc[-1].tolist() == [31, 4, 119, 82, 2720, 19.4]
    missing = table.isna()
    assert missing.sum().sum() == 6
    assert np.flatnonzero(missing["horsepower"]).tolist() == [32, 126, 330, 336, 354, 374]


@has_real("auto-mpg/auto-mpg.data")
def test_the_embedded_auto_mpg_table_is_the_official_one():
    lines = data.locate("auto-mpg/auto-mpg.data").read_text("ascii").splitlines()
    rows = [line.replace("?", "nan").split()[:6] for line in lines]
    expected = pd.DataFrame(rows, columns=COLUMNS, dtype="float64")
    pd.testing.assert_frame_equal(data.load_auto_mpg(), expected, check_exact=True)
