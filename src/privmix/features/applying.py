"""Raw records where features are due: the extractor that a model names is applied."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from privmix import _validate
from privmix.features import get_extractor
from privmix.features.base import local_only
from privmix.features.tabular import TabularExtractor
from privmix.inputs.extractor import Extractor, ExtractorIdentity
from privmix.inputs.feature_names import shown
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
        InvalidInputError: A record that the extractor cannot take, a frame that lacks columns of the
            table, or a model that is not here.

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
        extractor = _extractor(identity.model_dump_json()) if identity.name == "tabular" else None
        return isinstance(extractor, TabularExtractor) and _has_columns(records, extractor)
    if isinstance(records, np.ndarray):
        return records.dtype.kind in "OUT"
    values = by_position(records)
    first = values[0] if isinstance(values, list | tuple) and values else None
    return isinstance(first, str | bytes) or hasattr(first, "getbands")  # a Pillow image


def _has_columns(frame: Any, extractor: TabularExtractor) -> bool:
    """Whether a frame has the columns of the table; if not, it is to hold the features."""
    found, due = column_names(frame), [column.name for column in extractor.schema.columns]
    missing = [name for name in due if name not in found]
    # Of the table's columns features have none, but numbers go by their column's own name.
    named = found == extractor.get_feature_names_out().tolist()
    wide = len(found) == extractor.num_features
    if missing and not (wide and (named or len(missing) == len(due))):
        allowed = f"a frame with the schema's columns {shown(due)}"
        _validate.fail("records", allowed, f"{_validate.MISSING_COLUMN} {shown(missing)}")
    return not missing


@lru_cache(maxsize=2)
def _extractor(identity: str) -> Extractor:
    with local_only():
        return get_extractor(ExtractorIdentity.model_validate_json(identity))
