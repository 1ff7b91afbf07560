"""Texts from every source."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pytest

from privmix import InvalidInputError
from privmix.inputs.raw import Limits, open_records
from raw_cases import gather

TEXTS = ['say "a, b"', "two\nlines", "", "plain", "\u00fc"]


class TestTexts:
    @pytest.mark.parametrize("name", ["csv", "parquet", "pandas", "polars", "list"])
    def test_sources(self, tmp_path, name):
        frame = pd.DataFrame({"id": range(5), "text": TEXTS, "label": list("abaab")})
        options = {"kind": "text", "column": "text", "label": "label", "classes": ["a", "b"]}
        if name == "csv":
            frame.to_csv(tmp_path / "t.csv", index=False, quoting=1)
            source = tmp_path / "t.csv"
        elif name == "parquet":
            frame.to_parquet(tmp_path / "t.parquet", row_group_size=2)
            source = tmp_path / "t.parquet"
        elif name == "list":
            source, options = TEXTS, {"kind": "text", "labels": list("abaab")}
        else:
            source = frame if name == "pandas" else pl.from_pandas(frame)
        records = open_records(source, **options)
        assert gather(records, 2) == (TEXTS, list("abaab"), [False] * 5)
        assert gather(records, 2, start=3)[0] == TEXTS[3:]

    def test_integer_classes_of_a_csv_file_are_matched_as_written(self, tmp_path):
        (tmp_path / "t.csv").write_text("text,label\nx,7\ny,007\n")
        records = open_records(
            tmp_path / "t.csv", kind="text", column="text", label="label", classes=[7, 8]
        )
        with pytest.raises(
            InvalidInputError, match=r"t\.csv\[1\], text, label column 'label': .*'007'"
        ):
            gather(records)

    def test_bad_texts_one_by_one(self, tmp_path):
        content = b"text,label\ngood,a\n,a\n\xff\xfe,a\n" + b"long" * 30 + b",a\nfine,\nfine,c\n"
        (tmp_path / "t.csv").write_bytes(content)
        options = {
            "kind": "text",
            "column": "text",
            "label": "label",
            "classes": ["a", "b"],
            "limits": Limits(max_text_chars=100),
        }
        records = open_records(
            tmp_path / "t.csv", on_bad_record="zero", max_bad_share=1.0, **options
        )
        texts, labels, bad = gather(records, 4)
        assert bad == [False, True, True, True, True, True]
        assert texts == ["good", *[None] * 5]
        assert labels == ["a", *[None] * 5]
        with pytest.raises(InvalidInputError, match=r"t\.csv\[1\], text: required: a text"):
            gather(open_records(tmp_path / "t.csv", **options))

    def test_a_number_is_no_text(self):
        with pytest.raises(InvalidInputError, match=r"texts\[0\]: .*type int"):
            gather(open_records([3], kind="text"))
