"""Named data sets: layouts, checksums, the cache, and what is said without a network."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from privmix import InvalidInputError
from privmix.datasets import benchmarks as datasets
from privmix.datasets.benchmarks import NAMES, load_dataset

pytest.importorskip("pooch")

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (7, 28, 28), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (7, 32, 32, 3), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9, 2], dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    sizes = np.array(array.shape, dtype=">u4").tobytes()
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def cifar(label_bytes: int, rows: slice) -> bytes:
    pixels = COLOUR[rows].transpose(0, 3, 1, 2).reshape(-1, 3072)
    labels = np.repeat(LABELS[rows, None], label_bytes, axis=1)
    labels[:, :-1] = 99  # coarse labels, which are not wanted
    return np.concatenate([labels, pixels], axis=1).tobytes()


def eurosat() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for folder in ("River", "Forest"):
            for number in range(1, 12):
                image = io.BytesIO()
                Image.new("RGB", (4, 4), (20 * number,) * 3).save(image, "JPEG", quality=100)
                archive.writestr(f"2750/{folder}/{folder}_{number}.jpg", image.getvalue())
    return buffer.getvalue()


def questions(rows: list[tuple[str, str]]) -> bytes:
    lines = ["text,category", *(f'"{text}",{label}' for text, label in rows)]
    return ("\n".join(lines) + "\n").encode()


TRAIN, TEST = slice(0, 4), slice(4, 7)
IDX = [idx(GREY[TRAIN]), idx(LABELS[TRAIN]), idx(GREY[TEST]), idx(LABELS[TEST])]
CONTENT = {
    "mnist": IDX,
    "fashion-mnist": IDX,
    "cifar10": [
        tar(
            {
                "c/data_batch_2.bin": cifar(1, slice(2, 4)),
                "c/data_batch_1.bin": cifar(1, slice(0, 2)),
                "c/test_batch.bin": cifar(1, TEST),
                "c/batches.meta.txt": "\n".join(datasets._CIFAR10).encode() + b"\n\n",
            }
        )
    ],
    "cifar100": [
        tar(
            {
                "c/train.bin": cifar(2, TRAIN),
                "c/test.bin": cifar(2, TEST),
                "c/coarse_label_names.txt": b"animals\n",
                "c/fine_label_names.txt": "\n".join(f"thing_{i}" for i in range(100)).encode(),
            }
        )
    ],
    "banking77": [
        questions([("where, please", "b"), ("two\nlines", "a"), ("why", "b")]),
        questions([("when", "a")]),
    ],
    "eurosat": [eurosat()],
}


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A server of tiny files in the layouts of the public sources; returns its requests."""
    requests: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            requests.append(self.path)

    folder = tmp_path / "served"
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    for name, contents in CONTENT.items():
        source = datasets._SOURCES[name]
        files = []
        for file, content in zip(source.files, contents, strict=True):
            base = file.url.rpartition("/")[2]
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / base).write_bytes(content)
            url = f"http://127.0.0.1:{server.server_address[1]}/{name}/{base}"
            files.append(datasets._File(url, hashlib.sha256(content).hexdigest()))
        tiny = datasets._Source(tuple(files), source.read, source.local, source.read_local)
        monkeypatch.setitem(datasets._SOURCES, name, tiny)
    monkeypatch.delenv("PRIVMIX_DATA", raising=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield requests
    server.shutdown()
    server.server_close()
    thread.join()


def check(name: str, data) -> None:
    if name in ("mnist", "fashion-mnist", "cifar10", "cifar100"):
        images = GREY if "mnist" in name else COLOUR
        assert (data.x_train == images[TRAIN]).all() and (data.x_test == images[TEST]).all()
        assert data.y_train.tolist() == LABELS[TRAIN].tolist()
        assert data.y_test.tolist() == LABELS[TEST].tolist()
        assert len(data.classes) == (100 if name == "cifar100" else 10)
    elif name == "banking77":
        assert data.x_train.tolist() == ["where, please", "two\nlines", "why"]
        assert (data.y_train.tolist(), data.y_test.tolist()) == ([1, 0, 1], [0])
        assert data.classes == ("a", "b")
    else:
        assert data.classes == ("Forest", "River")
        assert data.x_train.shape == (18, 4, 4, 3)
        assert np.rint(data.x_test[:, 0, 0, 0] / 20).tolist() == [5, 10, 5, 10]
        assert data.y_test.tolist() == [0, 0, 1, 1]
    assert data.y_train.dtype == data.y_test.dtype == np.int64


@pytest.mark.parametrize("name", NAMES)
def test_downloaded_once_then_from_the_cache_or_a_folder(name, served, tmp_path):
    for _ in range(2):
        check(name, load_dataset(name, cache=tmp_path / "cache"))
    assert len(served) == len(CONTENT[name])
    check(name, load_dataset(name, folder=tmp_path / "cache" / name, cache=tmp_path / "other"))
    assert len(served) == len(CONTENT[name])


def test_another_file_is_not_used(served, tmp_path):
    served_file = tmp_path / "served" / "cifar10" / "cifar-10-binary.tar.gz"
    good = served_file.read_bytes()
    served_file.write_bytes(good + b"more")
    with pytest.raises(InvalidInputError, match="a file with SHA-256"):
        load_dataset("cifar10", cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.gz"))
    with pytest.raises(InvalidInputError, match="a file with SHA-256"):
        load_dataset("cifar10", folder=served_file.parent, cache=tmp_path / "cache")
    served_file.write_bytes(good)
    check("cifar10", load_dataset("cifar10", cache=tmp_path / "cache"))
    (tmp_path / "cache" / "cifar10" / served_file.name).write_bytes(b"spoilt since")
    check("cifar10", load_dataset("cifar10", cache=tmp_path / "cache"))


def test_offline_it_says_what_to_do(served, tmp_path, monkeypatch):
    gone = datasets._File("http://127.0.0.1:9/EuroSAT.zip", "0" * 64)
    source = datasets._SOURCES["eurosat"]
    monkeypatch.setitem(datasets._SOURCES, "eurosat", datasets._Source((gone,), source.read))
    words = r"network that reaches http://127.*, or its file EuroSAT\.zip in .*PRIVMIX_DATA"
    with pytest.raises(InvalidInputError, match=words):
        load_dataset("eurosat", cache=tmp_path / "cache")
    with pytest.raises(InvalidInputError, match="one of mnist"):
        load_dataset("imagenet")
    with pytest.raises(InvalidInputError, match="folder: expected an existing folder"):
        load_dataset("mnist", folder=tmp_path / "none")
    monkeypatch.setenv("PRIVMIX_DATA", str(tmp_path / "none"))
    with pytest.raises(InvalidInputError, match="PRIVMIX_DATA: expected an existing folder"):
        load_dataset("mnist")


def test_the_shared_layout(served, tmp_path, monkeypatch):
    """The files that this project's benchmarks read, in the folder PRIVMIX_DATA names."""
    halves = {"train": TRAIN, "test": TEST}
    arrays = {f"x_{k}": GREY[v] for k, v in halves.items()}
    np.savez(tmp_path / "mnist.npz", **arrays, **{f"y_{k}": LABELS[v] for k, v in halves.items()})
    for split, rows in halves.items():
        encoded = []
        for image in COLOUR[rows]:
            buffer = io.BytesIO()
            Image.fromarray(image).save(buffer, "PNG")
            encoded.append({"bytes": buffer.getvalue(), "path": None})
        table = pa.table({"img": encoded, "label": LABELS[rows]})
        pq.write_table(table, tmp_path / f"cifar10-{split}.parquet")
    for split, content in zip(("train", "test"), CONTENT["banking77"], strict=True):
        (tmp_path / f"banking77-{split}.csv").write_bytes(content)
    monkeypatch.setenv("PRIVMIX_DATA", str(tmp_path))
    for name in ("mnist", "cifar10", "banking77"):
        check(name, load_dataset(name))
    assert served == []


def test_the_public_sources_have_checksums():
    for name in NAMES:
        for file in datasets._SOURCES[name].files:
            assert file.url.startswith("http")
            assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
