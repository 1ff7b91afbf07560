"""Frames of pandas and polars."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pytest

from privmix import InvalidInputError
from privmix.inputs.raw import open_records
from raw_cases import TABLE, gather


@pytest.mark.parametrize("missing", [False, True])
def test_categories_of_pandas_stay_integers(missing):
    """With one of them missing pandas would make floating-point numbers of all."""
    ids = [2**53 + 1, 2**53]
    last = None if missing else ids[0]
    cells = pd.Series(pd.Categorical([*ids, last], categories=ids))
    frame = pd.DataFrame({"text": ["x", "y", "z"], "label": cells, "who": cells})
    options = {"kind": "text", "classes": ids, "on_bad_record": "zero", "max_bad_share": 1.0}
    columns = {"column": "text", "label": "label", "unit_column": "who"}
    sequences = {"labels": cells, "units": cells}
    for source, where in ((frame, columns), (["x", "y", "z"], sequences)):
        (block,) = open_records(source, **options, **where).blocks(9)
        assert block.labels.tolist() == block.units.tolist() == [*ids, last]


@pytest.mark.parametrize("nothing", [pd.NA, pd.NaT, float("nan"), None])
def test_what_pandas_has_for_a_missing_label(nothing):
    records = open_records(
        ["x", "y"], kind="text", labels=["a", nothing], on_bad_record="zero", max_bad_share=1.0
    )
    assert gather(records)[1:] == (["a", None], [False, True])


def test_extension_types_are_refused_by_column():
    cells = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    frame = pa.table({"age": [1.0], "sex": cells})
    with pytest.raises(InvalidInputError, match="sex: expected a column of numbers, .*uuid"):
        gather(open_records(frame, kind="table", table=TABLE))


def test_polars_integers_beyond_64_bits():
    frame = pl.DataFrame({"age": [1.0], "sex": ["f"], "n": pl.Series([2**70], dtype=pl.Int128)})
    assert gather(open_records(frame, kind="table", table=TABLE))[2] == [False]
    with pytest.raises(InvalidInputError, match="integers of at most 64 bits"):
        open_records(frame, kind="table", table=TABLE, unit_column="n")
