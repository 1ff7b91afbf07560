"""The whole matrix: every reader of every kind of record, through its extractor, into every design.

The same records through whichever reader must give the same features, bit for bit, and hence under one
test seed the same release.
"""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from builders import make_plan
from extractors import make_images, make_texts, save_sentence_model, save_vision_model
from privmix import Certificate, NoiseAwareClassifier, Release, Schema, engine, release, verify
from privmix.accounting.guarantee import NotPrivateWarning
from privmix.features import get_extractor
from privmix.features.extraction import transform_records
from privmix.inputs.raw import open_records
from privmix.mechanism import DESIGNS
from privmix.schema.table import TableSchema

Image = pytest.importorskip("PIL.Image")

NOT_PRIVATE = (
    "certificate: private is false: NOT PRIVATE: made with a test seed, which anybody can guess; it "
    "protects nobody"
)
COUNT = 24
CLASSES = ["cat", "dog", "eel"]
LABELS = [CLASSES[i % 3] for i in range(COUNT)]
TABLE = TableSchema(
    columns=[
        {"name": "age", "type": "numeric", "lower": 0, "upper": 100},
        {"name": "sex", "type": "categorical", "categories": ["f", "m"]},
        {"name": "smokes", "type": "boolean"},
        {"name": "seen", "type": "datetime", "earliest": "2020-01-01", "latest": "2021-01-01"},
    ]
)
OPTIONS = {
    "poisson": {"mix_size": 6, "num_mixtures": 20},
    "signed": {"mix_size": 6, "num_mixtures": 20},
    "stratified": {"sampling_prob": 0.5, "rows_per_class": 6},
    "hybrid": {"mix_size": 6, "num_mixtures": 20},
    "adaptive": {"mix_size": 6, "num_mixtures": 20, "num_rounds": 3},
    "hierarchical": {"mix_size": 4, "num_mixtures": 20, "class_prob": 0.5},
    "uniform": {"mix_size": 6, "num_mixtures": 20},
    "transposed": {"rows_per_record": 4, "num_mixtures": 20},
}


def png(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


IMAGES = make_images(COUNT, (12, 10, 3))
TEXTS = make_texts(COUNT)
ROWS = pd.DataFrame(
    {
        "age": [None if i % 7 == 3 else 3.25 * i + 10 for i in range(COUNT)],
        "sex": [["f", "m", "x", None][i % 4] for i in range(COUNT)],
        "smokes": [[True, False, None][i % 3] for i in range(COUNT)],
        "seen": pd.to_datetime([f"2020-{i % 12 + 1:02d}-17T05:00" for i in range(COUNT)]),
    }
)
FRAMES = {
    "image": pd.DataFrame({"image": [png(image) for image in IMAGES], "label": LABELS}),
    "text": pd.DataFrame({"text": TEXTS, "label": LABELS}),
    "table": ROWS.assign(label=LABELS),
}


def through_table(kind: str, reader: str, folder: Path):
    """The kind's records as a file or a frame."""
    frame = FRAMES[kind]
    path = folder / f"records.{reader}"
    if reader == "pandas":
        return frame
    if reader == "polars":
        return pytest.importorskip("polars").from_pandas(frame)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if reader == "csv":
        frame.to_csv(path, index=False)
    elif reader == "parquet":
        pq.write_table(table, path, row_group_size=7)
    elif reader == "feather":
        pa.feather.write_feather(table, path, chunksize=5)
    elif reader == "arrow":
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=9)
    elif reader == "parquet-folder":
        path.mkdir()
        for i in range(0, COUNT, 10):
            pq.write_table(table.slice(i, 10), path / f"{i:02d}.parquet")
    elif reader == "arrow-table":
        return table
    else:
        assert reader == "hugging-face"
        return pytest.importorskip("datasets").Dataset(table)
    return path


def in_memory(kind: str, reader: str, folder: Path):
    """Images and texts that are in no table."""
    records = IMAGES if kind == "image" else TEXTS
    if reader == "list":
        return records
    if reader == "numpy":
        return np.array(records)
    if reader == "npz":
        np.savez(folder / "records.npz", image=np.array(IMAGES), label=np.array(LABELS))
        return folder / "records.npz"
    if reader == "image-folder":  # in the order of their paths: by class
        for i in np.argsort(LABELS, kind="stable"):
            path = folder / "images" / LABELS[i] / f"{i:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(IMAGES[i]))
        return folder / "images"
    assert reader == "torch"
    torch = pytest.importorskip("torch")

    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return COUNT

        def __getitem__(self, index):
            record = records[index]
            if kind == "image":
                record = torch.from_numpy(record).permute(2, 0, 1) / 255
            return record, LABELS[index]

    return Pairs()


FILES = ("parquet", "parquet-folder", "feather", "arrow")
FRAME_READERS = ("pandas", "polars", "arrow-table", "hugging-face")
READERS = {
    "image": (*FILES, *FRAME_READERS, "npz", "numpy", "list", "torch", "image-folder"),
    "text": (*FILES, "csv", *FRAME_READERS, "numpy", "list", "torch"),
    "table": (*FILES, "csv", *FRAME_READERS),
}
PAIRS = [(kind, reader) for kind, readers in READERS.items() for reader in readers]


@pytest.fixture(scope="module")
def extractors(tmp_path_factory):
    """Tiny models with random weights, saved to folders and loaded as any model is."""
    pytest.importorskip("transformers")
    pytest.importorskip("sentence_transformers")
    folder = tmp_path_factory.mktemp("models")
    vision = save_vision_model(folder / "vision", "vit")
    sentence = save_sentence_model(folder / "sentence")
    return {
        "image": get_extractor(f"vision:{vision}", device="cpu"),
        "text": get_extractor(f"sentence:{sentence}", device="cpu"),
        "table": get_extractor("tabular", table=TABLE),
    }


@pytest.fixture(scope="module")
def features(extractors, tmp_path_factory):
    """Features and labels of a kind by a reader, made once."""

    @cache
    def make(kind: str, reader: str) -> tuple[np.ndarray, np.ndarray]:
        folder = tmp_path_factory.mktemp(f"{kind}-{reader}")
        in_tables = reader in FILES or reader in FRAME_READERS or reader == "csv"
        source = (through_table if in_tables else in_memory)(kind, reader, folder)
        named = in_tables or reader == "npz"
        records = open_records(
            source,
            kind=kind,
            column=kind if named and kind != "table" else None,
            label="label" if named else None,
            labels=LABELS if reader in ("list", "numpy") else None,
            table=TABLE if kind == "table" else None,
            classes=CLASSES,
        )
        return transform_records(records, extractors[kind])

    return make


@pytest.fixture(scope="module")
def quick():
    """Account for each plan once, and leave collecting garbage to Python: far faster."""
    with pytest.MonkeyPatch.context() as patch:
        certified: dict[bytes, Certificate] = {}
        for_plan = Certificate.for_plan

        def once(plan, **facts):
            if plan.digest() not in certified:
                certified[plan.digest()] = for_plan(plan, **facts)
            return certified[plan.digest()].model_copy(update=facts)

        patch.setattr(engine.Certificate, "for_plan", once)
        patch.setattr(engine, "return_memory", lambda: None)
        patch.setattr(engine, "recheck_plan", lambda plan: None)
        yield


@pytest.fixture(scope="module")
def published(features, quick, tmp_path_factory):
    """The release of a kind by a reader under a design."""

    @cache
    def plan_for(width: int, design: str):
        schema = Schema(
            classes=CLASSES, num_features=width, num_records=COUNT, feature_clip_norm=3.0
        )
        return make_plan(schema, design, **OPTIONS[design])

    @cache
    def make(kind: str, reader: str, design: str) -> Release:
        x, y = features(kind, reader)
        if reader == "image-folder":
            back = np.argsort(np.argsort(LABELS, kind="stable"), kind="stable")
            x, y = x[back], y[back]
        out = tmp_path_factory.mktemp("release") / "release"
        return release(x, y, plan_for(x.shape[1], design), out=out, test_seed=3, threads=1)

    return make


@pytest.mark.parametrize(("kind", "reader"), PAIRS)
def test_every_reader_gives_the_same_features(features, kind, reader):
    x, y = features(kind, reader)
    due, labels = features(kind, "parquet")
    order = np.argsort(LABELS, kind="stable") if reader == "image-folder" else np.arange(COUNT)
    assert (x == due[order]).all()
    assert y.tolist() == labels[order].tolist() == [LABELS[i] for i in order]


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(("kind", "reader"), PAIRS)
def test_every_reader_and_design_give_the_same_release(published, kind, reader, design):
    files = published(kind, reader, design).certificate.files
    assert files == published(kind, "parquet", design).certificate.files


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("kind", READERS)
def test_every_release_is_sound_but_for_its_seed_and_can_be_learnt_from(
    published, features, kind, design
):
    made = published(kind, "parquet", design)
    assert verify(made.folder).reasons == (NOT_PRIVATE,)
    with pytest.warns(NotPrivateWarning):
        model = NoiseAwareClassifier().fit(made)
    assert set(model.predict(features(kind, "parquet")[0])) <= set(CLASSES)


def test_the_matrix_is_whole():
    assert set(OPTIONS) == set(DESIGNS)
