"""Files of synthetic records, run by run, with what they are beside them."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.lib import format as npy_format

from privmix import _validate
from privmix.running.durable import put_in_place
from privmix.synthesis.records import Chunk, SyntheticFacts, arrow_table
from privmix.synthesis.synthesizer import Synthesizer

SUFFIXES = (".parquet", ".csv", ".npz")
Progress = Callable[[int, int | None], object]


def sidecar_path(path: Path) -> Path:
    """Return where the facts about a file of synthetic records are: beside it, ``.json`` added."""
    return path.with_name(path.name + ".json")


def check_target(path: Path) -> None:
    """Refuse a path that no new file of synthetic records can have."""
    if path.suffix.lower() not in SUFFIXES:
        _validate.fail("--out", f"a file that ends in {', '.join(SUFFIXES)}", path.name)
    if not path.absolute().parent.is_dir():
        _validate.fail("--out", "a file in an existing folder", str(path))
    _validate.outside_releases("--out", path)
    for taken in (path, sidecar_path(path)):
        if taken.exists() or taken.is_symlink():  # to nothing, which no file is written through
            _validate.fail("--out", "a new file", f"{taken}, which exists")


def write_synthetic(
    source: Synthesizer, num_records: int, path: Path, progress: Progress | None = None
) -> SyntheticFacts:
    """Write ``num_records`` synthetic records to a new file, and their facts beside it.

    Memory is that of one stretch of records. ``.npz`` holds ``features`` and ``labels``, of pixels also
    ``images``; the others one column for each column of the table or feature, then the labels.

    Raises:
        InvalidInputError: A file that is there, a folder that is not, another ending.

    """
    check_target(path)
    facts, beside, told = source.facts(num_records), sidecar_path(path), False
    try:
        with put_in_place(path, new=True) as file:
            chunks = _counted(source.chunks(num_records), num_records, progress)
            if path.suffix.lower() == ".npz":
                _write_npz(chunks, source, num_records, file)
            else:
                _write_columns(chunks, source, path.suffix.lower(), file)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            stated = {**json.loads(facts.model_dump_json()), "file_sha256": digest}
            # The facts come first: no file of records is there without them.
            with put_in_place(beside, new=True) as told_in:
                told_in.write((json.dumps(stated, indent=2, ensure_ascii=False) + "\n").encode())
            told = True
    except BaseException as error:
        if told:  # of a file that did not get its name
            beside.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        _validate.fail("--out", "a new file in a writable folder", f"{path}: {error.strerror}")
    return facts


def _counted(chunks: Iterator[Chunk], total: int, progress: Progress | None) -> Iterator[Chunk]:
    done = 0
    for chunk in chunks:
        yield chunk
        done += len(chunk.labels)
        if progress is not None:
            progress(done, total)


def _write_columns(
    chunks: Iterator[Chunk], source: Synthesizer, suffix: str, file: BinaryIO
) -> None:
    writer = None
    try:
        for chunk in chunks:
            table = arrow_table(chunk, source.names, source.feature_names)
            if writer is None:
                kind = pq.ParquetWriter if suffix == ".parquet" else pa_csv.CSVWriter
                writer = kind(file, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _write_npz(
    chunks: Iterator[Chunk], source: Synthesizer, num_records: int, target: BinaryIO
) -> None:
    """Write arrays member by member; features go to the archive as they are drawn."""
    labels = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        with _member(archive, "features", (num_records, source.num_features), np.float32) as file:
            for chunk in chunks:
                features = source.features_of(chunk)
                file.write(np.ascontiguousarray(features).tobytes())
                labels.append(chunk.labels)
        found = np.concatenate(labels)
        with _member(archive, "labels", found.shape, found.dtype) as file:
            file.write(found.tobytes())
        if source.image_shape is not None:
            channels, height, width = source.image_shape
            shape = (num_records, height, width, *([channels] if channels > 1 else []))
            with _member(archive, "images", shape, np.uint8) as file:
                for chunk in source.chunks(num_records):  # the same draw again
                    file.write(np.ascontiguousarray(source.images_of(chunk)).tobytes())


@contextmanager
def _member(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: Any
) -> Iterator[IO[bytes]]:
    # A fixed date: the same records make the same bytes.
    info = zipfile.ZipInfo(f"{name}.npy", (2000, 1, 1, 0, 0, 0))
    with archive.open(info, "w", force_zip64=True) as file:
        header = {"descr": npy_format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False}
        npy_format.write_array_header_2_0(file, {**header, "shape": shape})
        yield file
