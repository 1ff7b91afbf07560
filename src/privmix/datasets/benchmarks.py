"""Named public data sets: from a folder of yours, or downloaded once and checked.

The only module that downloads. Every file has a SHA-256 checksum here; a file that does not match is
not used.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.inputs.raw.blocks import Limits
from privmix.inputs.raw.images import to_image
from privmix.inputs.raw.opening import open_records

DATA_VARIABLE = "PRIVMIX_DATA"

_EUROSAT_TEST_EVERY = 5


class Dataset(NamedTuple):
    """A labelled data set with its usual division.

    Attributes:
        x_train: (count, height, width[, 3]) uint8 images, or a (count,) array of texts.
        y_train: (count,) integers, indices into ``classes``.
        x_test: As ``x_train``.
        y_test: As ``y_train``.
        classes: The names of the classes.

    """

    x_train: NDArray[Any]
    y_train: NDArray[np.int64]
    x_test: NDArray[Any]
    y_test: NDArray[np.int64]
    classes: tuple[str, ...]


class _File(NamedTuple):
    url: str
    sha256: str


@dataclass(frozen=True)
class _Source:
    files: tuple[_File, ...]
    read: Callable[[list[Path]], Dataset]
    local: tuple[str, ...] = ()
    read_local: Callable[[list[Path]], Dataset] | None = None


def load_dataset(
    name: str, *, folder: str | Path | None = None, cache: str | Path | None = None
) -> Dataset:
    """Load a public data set by name.

    Looked for in this order: ``folder``, or the folder that the environment variable
    ``PRIVMIX_DATA`` names; the cache; the data set's public source, once, into the cache.

    Args:
        name: ``mnist``, ``fashion-mnist``, ``cifar10``, ``cifar100``, ``banking77`` or ``eurosat``.
            EuroSAT comes undivided: every fifth image of each class, in the order of their
            numbers, is a test image here.
        folder: A folder with the files of the public source under their own names, or with
            ``mnist.npz``, ``cifar10-train.parquet`` and ``cifar10-test.parquet``,
            ``banking77-train.csv`` and ``banking77-test.csv``.
        cache: Where downloads are kept; a folder ``privmix`` in the user's cache by default.

    Raises:
        InvalidInputError: Another name, a file whose checksum is wrong, no network, or no
            ``pooch`` (extra ``datasets``), the library that downloads.

    """
    source = _SOURCES[_validate.one_of("name", name, _SOURCES)]
    given = folder if folder is not None else os.environ.get(DATA_VARIABLE)
    if given is not None:
        base = Path(given)
        if not base.is_dir():
            position = "folder" if folder is not None else DATA_VARIABLE
            _validate.fail(position, "an existing folder", str(given))
        if source.read_local is not None and all((base / n).is_file() for n in source.local):
            return source.read_local([base / n for n in source.local])
        paths = [base / _base_name(file) for file in source.files]
        if all(path.is_file() for path in paths):
            for path, file in zip(paths, source.files, strict=True):
                _check(path, file)
            return source.read(paths)
    return source.read([_download(name, file, cache) for file in source.files])


def _base_name(file: _File) -> str:
    return file.url.rpartition("/")[2]


def _check(path: Path, file: _File) -> None:
    import hashlib

    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != file.sha256:
        _validate.fail(str(path), f"a file with SHA-256 {file.sha256}", found)


def _download(name: str, file: _File, cache: str | Path | None) -> Path:
    """Return a file of the cache, downloaded if it is not there or another file."""
    try:
        import pooch
    except ImportError:
        _validate.fail(
            "library pooch", "one that is installed: pip install 'privmix[datasets]'", "none"
        )
    folder = Path(cache) if cache is not None else Path(pooch.os_cache("privmix"))
    pooch.get_logger().setLevel("WARNING")
    try:
        found = pooch.retrieve(
            file.url,
            known_hash=f"sha256:{file.sha256}",
            fname=_base_name(file),
            path=folder / name,
            downloader=pooch.HTTPDownloader(timeout=30),
        )
    except ValueError as error:  # pooch's word for a checksum that does not match
        _validate.fail(file.url, f"a file with SHA-256 {file.sha256}", str(error).splitlines()[0])
    except OSError as error:
        _validate.fail(
            f"data set {name}",
            f"a network that reaches {file.url}, or its file {_base_name(file)} in {folder / name} "
            f"or in the folder that {DATA_VARIABLE} names",
            f"{type(error).__name__}: no download",
        )
    return Path(found)


def _read_idx(paths: list[Path], classes: tuple[str, ...]) -> Dataset:
    """Read the four files of MNIST and those like it: train and test, images and labels."""
    x_train, y_train, x_test, y_test = (_idx(path) for path in paths)
    return Dataset(x_train, y_train.astype(np.int64), x_test, y_test.astype(np.int64), classes)


def _idx(path: Path) -> NDArray[np.uint8]:
    data = gzip.decompress(path.read_bytes())
    if data[:3] != b"\0\0\x08":
        _validate.fail(str(path), "an IDX file of bytes", "another file")
    shape = tuple(np.frombuffer(data, dtype=">u4", count=data[3], offset=4).astype(int))
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def _read_mnist_npz(paths: list[Path]) -> Dataset:
    with np.load(paths[0], allow_pickle=False) as arrays:
        return Dataset(
            arrays["x_train"],
            arrays["y_train"].astype(np.int64),
            arrays["x_test"],
            arrays["y_test"].astype(np.int64),
            _DIGITS,
        )


def _read_cifar(paths: list[Path], label_bytes: int, names: str) -> Dataset:
    """Read the binary archives: a byte or two of labels, the finest last, and 3 x 32 x 32 pixels."""
    train: list[NDArray[np.uint8]] = []
    test: list[NDArray[np.uint8]] = []
    classes: tuple[str, ...] = ()
    with tarfile.open(paths[0]) as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            base = member.name.rpartition("/")[2]
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is None:
                continue
            if base == names:
                classes = tuple(stream.read().decode().split())
            elif base.endswith(".bin"):
                rows = np.frombuffer(stream.read(), dtype=np.uint8).reshape(-1, label_bytes + 3072)
                (test if base.startswith("test") else train).append(rows)
    halves: list[Any] = []
    for parts in (train, test):
        rows = np.concatenate(parts)
        pixels = rows[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        halves += [np.ascontiguousarray(pixels), rows[:, label_bytes - 1].astype(np.int64)]
    x_train, y_train, x_test, y_test = halves
    return Dataset(x_train, y_train, x_test, y_test, classes)


def _read_cifar_parquet(paths: list[Path]) -> Dataset:
    halves: list[Any] = []
    for path in paths:
        records = open_records(path, kind="image", column="img", label="label", classes=range(10))
        blocks = list(records.blocks(4096))
        halves.append(np.concatenate([np.stack(block.records) for block in blocks]))
        halves.append(
            np.concatenate([np.asarray(block.labels) for block in blocks]).astype(np.int64)
        )
    x_train, y_train, x_test, y_test = halves
    return Dataset(x_train, y_train, x_test, y_test, _CIFAR10)


def _read_banking(paths: list[Path]) -> Dataset:
    halves: list[Any] = []
    for path in paths:
        records = open_records(path, kind="text", column="text", label="category")
        blocks = list(records.blocks(4096))
        halves.append(np.array([text for block in blocks for text in block.records]))
        halves.append(np.concatenate([np.asarray(block.labels) for block in blocks]).astype(str))
    classes, y_train = np.unique(halves[1], return_inverse=True)
    y_test = np.searchsorted(classes, halves[3])
    return Dataset(halves[0], y_train, halves[2], y_test, tuple(classes.tolist()))


def _read_eurosat(paths: list[Path]) -> Dataset:
    """Read JPEG images in one folder for each class: 2750/Forest/Forest_17.jpg."""
    limits = Limits()
    halves: tuple[list[Any], ...] = ([], [], [], [])
    with zipfile.ZipFile(paths[0]) as archive:
        names = [name for name in archive.namelist() if name.lower().endswith(".jpg")]
        classes = sorted({name.split("/")[-2] for name in names})
        for index, label in enumerate(classes):
            own = [name for name in names if name.split("/")[-2] == label]
            own.sort(key=lambda name: int(name.rpartition("_")[2].partition(".")[0]))
            for number, name in enumerate(own, 1):
                part = 2 if number % _EUROSAT_TEST_EVERY == 0 else 0
                halves[part].append(to_image(archive.read(name), limits))
                halves[part + 1].append(index)
    x_train, y_train, x_test, y_test = map(np.array, halves)
    return Dataset(x_train, y_train, x_test, y_test, tuple(classes))


_DIGITS = tuple("0123456789")
_CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_CIFAR10 = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


def _idx_files(base: str, sums: tuple[str, str, str, str]) -> tuple[_File, ...]:
    names = (
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    )
    return tuple(_File(f"{base}/{name}", sha) for name, sha in zip(names, sums, strict=True))


_SOURCES = {
    "mnist": _Source(
        _idx_files(
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            (
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
        lambda paths: _read_idx(paths, _DIGITS),
        ("mnist.npz",),
        _read_mnist_npz,
    ),
    "fashion-mnist": _Source(
        _idx_files(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            (
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        ),
        lambda paths: _read_idx(paths, _CLOTHES),
    ),
    "cifar10": _Source(
        (
            _File(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
        lambda paths: _read_cifar(paths, 1, "batches.meta.txt"),
        ("cifar10-train.parquet", "cifar10-test.parquet"),
        _read_cifar_parquet,
    ),
    "cifar100": _Source(
        (
            _File(
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ),
        ),
        lambda paths: _read_cifar(paths, 2, "fine_label_names.txt"),
    ),
    "banking77": _Source(
        (
            _File(
                "https://raw.githubusercontent.com/PolyAI-LDN/task-specific-datasets/master/banking_data/train.csv",
                "b06e26ac675513959a63135f11b94ea7786ed02da65db93a5650d8838cbc664b",
            ),
            _File(
                "https://raw.githubusercontent.com/PolyAI-LDN/task-specific-datasets/master/banking_data/test.csv",
                "d12d6e3bc4c3103966ae786dc435913c0c563dfa328f5a3646d0e62cfeeb474d",
            ),
        ),
        _read_banking,
        ("banking77-train.csv", "banking77-test.csv"),
        _read_banking,
    ),
    "eurosat": _Source(
        (
            _File(
                "https://madm.dfki.de/files/sentinel/EuroSAT.zip",
                "8ebea626349354c5328b142b96d0430e647051f26efc2dc974c843f25ecf70bd",
            ),
        ),
        _read_eurosat,
    ),
}
NAMES = tuple(_SOURCES)
