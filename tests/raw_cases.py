"""Small images and table rows, and how the tests gather what a reader yields."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
from PIL import Image

from privmix.inputs.raw.blocks import object_array
from privmix.schema.table import TableSchema

TABLE = TableSchema(
    columns=[
        {"name": "age", "type": "numeric", "lower": 0, "upper": 100},
        {"name": "sex", "type": "categorical", "categories": ["f", "m"]},
    ]
)


def png(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG")
    return buffer.getvalue()


def objects(values: list) -> pd.Series:
    return pd.Series(object_array(values), dtype=object)


def pictures(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 6, 5, 3), dtype=np.uint8)


def gather(records, size: int = 3, start: int = 0):
    """All blocks in one: records, labels, bad."""
    blocks = list(records.blocks(size, start))
    assert [b.start for b in blocks] == list(range(start, start + size * len(blocks), size))
    if records.kind == "table":
        rows = pa.concat_tables([b.records for b in blocks]).to_pylist()
    else:
        rows = [record for b in blocks for record in b.records]
    labels = None
    if blocks[0].labels is not None:
        labels = np.concatenate([b.labels for b in blocks]).tolist()
    return rows, labels, np.concatenate([b.bad for b in blocks]).tolist()
