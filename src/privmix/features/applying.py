"""Raw records where features are due: the extractor that a model names is applied."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from privmix.features import get_extractor
from privmix.features.base import local_only
from privmix.inputs.extractor import Extractor, ExtractorIdentity
from privmix.inputs.raw import open_records
from privmix.inputs.raw.frames import by_position, column_names, is_frame


def apply_extractor(records: Any, identity: ExtractorIdentity | None) -> Any:
    """Turn raw records into the features that a model takes; return features as they are.

    Raw are, by the extractor's kind: a frame that has the columns of its table; a list, a Series or
    an array of texts; a list of images. The extractor's model is looked for on this machine alone.

    Args:
        records: Records to classify, raw or as features.
        identity: The extractor that the model's certificate names, or None.

    Raises:
        InvalidInputError: A record that the extractor cannot take, or a model that is not here.

    """
    if identity is None or not _is_raw(records, identity):
        return records
    extractor = _extractor(identity.model_dump_json())
    if extractor.kind == "table":
        return extractor.transform(records)
    opened = open_records(by_position(records), kind=extractor.kind)  # type: ignore[arg-type]
    return np.concatenate([extractor.transform(block.records) for block in opened.blocks(512)])


def _is_raw(records: Any, identity: ExtractorIdentity) -> bool:
    if is_frame(records):
        if identity.name != "tabular":
            return False
        schema = _extractor(identity.model_dump_json()).schema  # type: ignore[attr-defined]
        return {column.name for column in schema.columns} <= set(column_names(records))
    if isinstance(records, np.ndarray):
        return records.dtype.kind in "OUT"
    values = by_position(records)
    first = values[0] if isinstance(values, list | tuple) and values else None
    return isinstance(first, str | bytes) or hasattr(first, "getbands")  # a Pillow image


@lru_cache(maxsize=2)
def _extractor(identity: str) -> Extractor:
    with local_only():
        return get_extractor(ExtractorIdentity.model_validate_json(identity))
