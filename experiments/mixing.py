"""What the scripts of the mixing papers share: records, and rows at a noise of one's own choosing.

The papers set their noise by accountants that certify nothing. Here such a release is made all the
same, by the library: its certificate states what it costs in truth.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from experiments.harness import data as data_file
from experiments.harness import parser
from numpy.typing import NDArray

import privmix
from privmix.mechanism import mixture_config
from privmix.planning.plan import ReleasePlan
from privmix.running.unrecorded import UnrecordedSpendingWarning
from utility import DATASETS, DataSet, scatter, unit_norm  # of benchmarks/; see the harness

DELTA = 1e-5
Floats = NDArray[np.float32]


def mixing_parser(doc: str | None, datasets: tuple[str, ...] = ()) -> argparse.ArgumentParser:
    """Return a parser with what every script takes, and what those take that read data."""
    found = parser(doc)
    found.add_argument("--seeds", type=int, help="repetitions [1 with --quick, else 5]")
    if datasets:
        found.add_argument("--datasets", nargs="+", choices=datasets, default=list(datasets))
        cache = Path.home() / ".cache" / "privmix"
        found.add_argument("--cache", type=Path, default=cache, help="folder of features")
    return found


def read(found: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse, and fill in the number of seeds."""
    given = found.parse_args()
    if given.seeds is None:
        given.seeds = 1 if given.quick else 5
    return given


def arguments(doc: str | None, *, datasets: tuple[str, ...] = ()) -> argparse.Namespace:
    """Parse the arguments of a script without others of its own."""
    return read(mixing_parser(doc, datasets))


FEW_TESTED = 2_000


def load(name: str, cache: Path, most: int | None = None) -> DataSet:
    """Load a data set of ``benchmarks/utility.py``; ``most`` training records, drawn at random.

    A part of ``mnist-scattering`` has FEW_TESTED test records as well: the transform of all images
    takes minutes.
    """
    source = data_file("mnist.npz" if name == "mnist-scattering" else "banking77-minilm.npz")
    if name == "mnist-scattering" and most is not None:
        return _few_scattered(source, cache, most)
    found = DATASETS[name](source.parent, cache)
    if most is None or most >= len(found.x_train):
        return found
    some = np.random.default_rng(0).permutation(len(found.x_train))[:most]
    return DataSet(found.x_train[some], found.y_train[some], found.x_test, found.y_test)


def _few_scattered(source: Path, cache: Path, most: int) -> DataSet:
    """Transform some images of MNIST, or read them where an earlier run has."""
    path = cache / f"mnist-scattering-{most}.npz"
    if not path.is_file():
        rng, parts = np.random.default_rng(0), {}
        with np.load(source) as file:
            for part, count in (("train", most), ("test", FEW_TESTED)):
                some = rng.permutation(len(file[f"y_{part}"]))[:count]
                parts[f"x_{part}"] = scatter(file[f"x_{part}"][some])
                parts[f"y_{part}"] = file[f"y_{part}"][some].astype(np.int64)
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(path, **parts)
    with np.load(path) as file:
        x_train, x_test = (unit_norm(file[f"x_{part}"]) for part in ("train", "test"))
        return DataSet(x_train, file["y_train"], x_test, file["y_test"])


def load_unit_pixels(name: str, most: int | None = None) -> DataSet:
    """Load the pixels of ``mnist`` or ``cifar10`` in [0, 1], of unit norm; ``most`` records at random."""
    parts: list[Any] = []
    for split, count in (("train", most), ("test", None)):
        images, labels = (_mnist if name == "mnist" else _cifar10)(split, count)
        parts += [unit_norm(images.reshape(len(images), -1)), labels.astype(np.int64)]
    return DataSet(*parts)


def _some(size: int, count: int | None) -> NDArray[np.int64]:
    return np.random.default_rng(0).permutation(size)[:count]


def _mnist(split: str, count: int | None) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    with np.load(data_file("mnist.npz")) as file:
        some = _some(len(file[f"y_{split}"]), count)
        return file[f"x_{split}"][some], file[f"y_{split}"][some]


def _cifar10(split: str, count: int | None) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    import pyarrow.parquet as pq
    from PIL import Image

    table = pq.read_table(data_file(f"cifar10-{split}.parquet"))
    table = table.take(_some(len(table), count))
    images = [
        np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("RGB"))
        for row in table["img"].to_pylist()
    ]
    return np.stack(images), table["label"].to_numpy()


def load_pixels() -> DataSet:
    """Load MNIST's pixels less 1/2: all within a ball of radius sqrt(784) / 2."""
    with np.load(data_file("mnist.npz")) as file:
        images = [
            file[part].reshape(-1, 784).astype(np.float32) / 255 - np.float32(0.5)
            for part in ("x_train", "x_test")
        ]
        labels = [file[part].astype(np.int64) for part in ("y_train", "y_test")]
    return DataSet(images[0], labels[0], images[1], labels[1])


@contextmanager
def published(
    data: DataSet,
    noise_multiplier: float,
    *,
    clip_norm: float = 1.0,
    label_balance: float = 1.0,
    **layout: Any,
) -> Iterator[privmix.Release]:
    """Release rows with a joint noise multiplier; ``layout`` are fields of ``MixtureConfig``."""
    schema = privmix.Schema(
        classes=range(int(data.y_train.max()) + 1),
        num_features=data.x_train.shape[1],
        num_records=len(data.x_train),
        feature_clip_norm=clip_norm,
    )
    sizes = {n: getattr(schema, n) for n in ("num_records", "num_classes", "num_features")}
    mix_size = layout["mix_size"]
    rows = {"num_mixtures": len(data.x_train), "sampling_prob": mix_size / len(data.x_train)}
    config = mixture_config({**sizes, **rows, **layout}, noise_multiplier, label_balance)
    plan = ReleasePlan.for_config(config, DELTA, schema)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Public data sets, released again and again: no ledger keeps account of it.
        warnings.simplefilter("ignore", UnrecordedSpendingWarning)
        yield privmix.release(
            data.x_train, data.y_train, plan, out=Path(folder) / "release", threads=threads()
        )


def threads() -> int:
    """Return the number of threads that OMP_NUM_THREADS allows, or of processors."""
    return int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))


@dataclass(frozen=True)
class Rows:
    """Mixtures made in memory, with or without noise: what a learner reads, with no guarantee."""

    features: Floats
    label_weights: Floats
    num_records: int
    mix_size: float
    feature_clip_norm: float = 1.0
    feature_noise_stddev: float = 0.0
    label_noise_stddev: float = 0.0
    design: str = "poisson"

    @classmethod
    def noiseless(cls, data: DataSet, mix_size: int, seed: int, clip_norm: float = 1.0) -> Rows:
        """Mix ``mix_size`` records a row, as many rows as records."""
        rng, n = np.random.default_rng(seed), len(data.x_train)
        one_hot = np.eye(int(data.y_train.max()) + 1, dtype=np.float32)[data.y_train]
        features, labels = np.empty_like(data.x_train), np.empty_like(one_hot)
        for row in range(n):
            inside = rng.integers(0, n, mix_size)
            features[row] = data.x_train[inside].mean(axis=0)
            labels[row] = one_hot[inside].mean(axis=0)
        return cls(features, labels, n, float(mix_size), clip_norm)

    @classmethod
    def of_records(cls, data: DataSet) -> Rows:
        """Take the records themselves: rows of one each."""
        one_hot = np.eye(int(data.y_train.max()) + 1, dtype=np.float32)[data.y_train]
        return cls(data.x_train, one_hot, len(one_hot), 1.0)

    @property
    def classes(self) -> tuple[int, ...]:
        """The classes, 0 to K - 1."""
        return tuple(range(self.num_classes))

    @property
    def num_classes(self) -> int:
        """K."""
        return self.label_weights.shape[1]

    @property
    def num_features(self) -> int:
        """Width of a row."""
        return self.features.shape[1]

    @property
    def num_mixtures(self) -> int:
        """Number of rows."""
        return len(self.features)

    @property
    def sampling_prob(self) -> float:
        """Probability that a record enters a row."""
        return self.mix_size / self.num_records

    def iter_blocks(self) -> Iterator[tuple[Floats, Floats]]:
        """Yield all rows at once."""
        yield self.features, self.label_weights


def kl_softmax(seed: int, epochs: int = 200) -> privmix.KLSoftmaxClassifier:
    """The papers' learner; their schedule at 200 epochs, and that schedule in fewer."""
    start = time.monotonic()

    def report(epoch: int, of: int, loss: float) -> None:
        if time.monotonic() - start > 30 and epoch % 10 == 0:
            print(f"epoch {epoch}/{of}, loss {loss:.4f}", flush=True)

    decays = [epochs * part // 10 for part in (4, 6, 8)]
    return privmix.KLSoftmaxClassifier(
        epochs=epochs,
        learning_rate=1e-3 * min(10.0, 200 / epochs),
        decay_epochs=decays,
        seed=seed,
        progress=report,
    )


def spread(values: list[float]) -> dict[str, float | int]:
    """Mean and standard deviation in per cent, and how many there are."""
    found: dict[str, float | int] = {"accuracy": 100 * float(np.mean(values))}
    found["spread"] = 100 * float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {**found, "seeds": len(values)}


def repeated(seeds: int, measure: Callable[[int], float]) -> dict[str, float | int]:
    """Measure accuracies at seeds 0, 1, ...; see :func:`spread`."""
    return spread([measure(seed) for seed in range(seeds)])
