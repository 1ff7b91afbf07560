from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from privmix import InvalidInputError, Schema

GOOD = {"classes": [0, 1], "num_features": 3, "num_records": 10, "feature_clip_norm": 1.0}


def test_json_round_trip():
    for classes in ([3, 1, 2], ["b", "a"]):
        schema = Schema(**(GOOD | {"classes": classes}))
        assert Schema.from_json(schema.model_dump_json()) == schema
        assert list(schema.classes) == classes


def test_numpy_classes_are_accepted():
    assert Schema(**(GOOD | {"classes": np.array(["x", "y"])})).classes == ("x", "y")
    assert Schema(**(GOOD | {"classes": range(3)})).classes == (0, 1, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"classes": [1]}, "at least two distinct"),
        ({"classes": [1, 1]}, "at least two distinct"),
        ({"classes": [1, "1"]}, "all integers or all strings"),
        ({"classes": [True, False]}, "all integers or all strings"),
        ({"classes": "ab"}, "a list"),
        ({"num_features": 0}, "num_features"),
        ({"num_records": -1}, "num_records"),
        ({"num_records": 2.5}, "num_records"),
        ({"feature_clip_norm": 0.0}, "feature_clip_norm"),
        ({"feature_clip_norm": float("nan")}, "feature_clip_norm"),
        ({"feature_clip_norm": float("inf")}, "feature_clip_norm"),
        ({"feature_clip_norm": 5e-324}, "feature_clip_norm.*at least 1e-30"),
        ({"feature_clip_norm": 1e300}, "feature_clip_norm.*at most 1e"),
        ({"label_clip_norm": 0.5}, "one-hot"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_bad_values_name_the_field(change, words):
    with pytest.raises(InvalidInputError, match=words):
        Schema(**(GOOD | change))


@pytest.mark.parametrize("missing", ["classes", "num_features", "num_records", "feature_clip_norm"])
def test_missing_bounds_are_an_error(missing):
    with pytest.raises(InvalidInputError, match=f"{missing}.*required"):
        Schema(**{k: v for k, v in GOOD.items() if k != missing})


def test_errors_in_a_file_name_the_file():
    with pytest.raises(InvalidInputError, match=r"my\.json: expected valid JSON"):
        Schema.from_json("{", position="my.json")


def test_a_schema_shows_itself_in_short():
    many = Schema(**(GOOD | {"classes": range(1000)}))
    for shown in (repr(many), str(many), f"{many}", many._repr_html_()):
        assert len(shown) < 800 and "1000 in all" in shown and "999" not in shown
    assert "features: 3" in repr(many) and "classes: 0, 1" in repr(many)
    column = {"name": "age", "type": "numeric", "lower": 0.0, "upper": 9.0}
    classes = ["<b>", "a\x1b[2J\n"]
    table = Schema.from_json(
        json.dumps({"classes": classes, "num_records": 9, "table": {"columns": [column]}})
    )
    assert "columns: 1" in repr(table) and "<b>" not in table._repr_html_()
    assert repr(table).isprintable()


def test_a_frame_of_texts_is_told_what_to_state():
    """Categories of pandas are found in the records: no type states them."""
    frame = pd.DataFrame({"age": [1.0], "town": ["secret"], "ward": ["hidden"], "y": [1]})
    given = {"classes": [0, 1], "num_records": 9, "feature_clip_norm": 1.0}
    for texts in (frame, frame.astype({"town": "category"})):
        with pytest.raises(InvalidInputError) as caught:
            Schema.from_dataframe(texts, label="y", **given)
        told = str(caught.value)
        assert told.startswith("column town: ") and "1 more" in told
        assert "'name': 'town', 'type': 'categorical', 'categories'" in told
        assert "secret" not in told and "hidden" not in told
    with pytest.raises(InvalidInputError, match="label: expected a name"):
        Schema.from_dataframe(frame.rename(columns={"y": ""}), label="", **given)


def numbers(count, **stated):
    column = {"type": "numeric", "lower": 0.0, "upper": 9.0, "nullable": False, **stated}
    return [{**column, "name": f"c{i}"} for i in range(count)]


class TestBins:
    """Public sizes say how many bins numbers have, where nothing else does."""

    @pytest.mark.parametrize(
        ("num_records", "columns", "bins"),
        [
            (79, 1, 0),
            (80, 1, 4),
            (319, 1, 4),
            (320, 1, 8),
            (1280, 1, 16),
            (10**6, 1, 16),
            (10**6, 33, 8),
            (10**6, 128, 4),
            (10**6, 129, 0),
        ],
    )
    def test_they_follow_from_records_and_columns(self, num_records, columns, bins):
        facts = {"classes": [0, 1], "num_records": num_records}
        schema = Schema(**facts, table={"columns": numbers(columns)})
        assert schema.num_features == columns * (1 + bins)
        assert schema.feature_clip_norm == pytest.approx((columns * (1 + (bins > 0))) ** 0.5)
        assert Schema.from_json(schema.to_json()) == schema
        stated = json.loads(schema.to_json())["table"]["columns"]
        assert {column.get("num_bins", 0) for column in stated} == {bins}

    def test_what_is_stated_stays(self):
        columns = [*numbers(1, num_bins=0), {**numbers(2, num_bins=3)[1]}, numbers(3)[2]]
        facts = {"classes": [0, 1], "num_records": 320}
        schema = Schema(**facts, table={"columns": columns})
        assert [column.num_bins for column in schema.table.columns] == [0, 3, 8]
        assert "bins of columns: 3 or 8" in repr(schema)
        fourier = {"columns": numbers(1), "fourier": {"num_features": 4}}
        assert not Schema(**facts, table=fourier).table.bins

    def test_times_have_as_many_as_numbers_and_ranks_no_more_than_categories(self):
        """Ranks of 3 to 16 categories have a bin each where records bear so many of all such columns."""
        ranks = [
            {"name": f"r{count}", "type": "ordinal", "categories": list(range(count))}
            for count in (2, 3, 8, 9, 20)
        ]
        day = {"name": "d", "type": "datetime", "earliest": "2020-01-01", "latest": "2021-01-01"}
        table = {"columns": [*numbers(1), *ranks, day]}

        def bins(num_records):
            schema = Schema(classes=[0, 1], num_records=num_records, table=table)
            return schema, [column.num_bins for column in schema.table.columns]

        schema, found = bins(1_500)
        assert found == [8, None, 3, 8, None, 8, 8]  # 960 to 3,840 records bear 8 of three columns
        assert "bins of columns: 3 or 8" in repr(schema)
        assert bins(4_000)[1] == [16, None, 3, 8, 9, 16, 16]
        assert bins(350)[1] == [4, None, 3, None, None, 4, 4]
        assert bins(239)[1] == [None] * 7

    def test_a_width_that_is_stated_says_how_many_there_are(self):
        """So that a schema stays what it was, whatever the rule becomes."""
        facts = {"classes": [0, 1], "num_records": 320, "table": {"columns": numbers(1)}}
        assert not Schema(**facts, num_features=1).table.bins
        assert Schema(**facts, num_features=9).table.bins == "8"
        with pytest.raises(InvalidInputError, match="num_features.*9.*5"):
            Schema(**facts, num_features=5)


@pytest.mark.parametrize(
    ("form", "earliest", "latest", "wrong"),
    [
        ("%d.%m.%y", "1969-01-01", "2068-12-31", None),
        ("%d.%m.%y", "1910-01-01", "2024-01-01", "earliest"),
        ("%d.%m.%y", "1990-01-01", "2070-01-01", "latest"),
        ("%d.%m.%Y", "1910-01-01", "2100-01-01", None),
    ],
)
def test_a_format_tells_each_day_between_the_bounds(form, earliest, latest, wrong):
    """Two digits of a year mean one century: others would silently be days of that, clamped."""
    column = {"name": "born", "type": "datetime", "earliest": earliest, "latest": latest}
    table = {"columns": [{**column, "format": form}]}
    if wrong is None:
        assert Schema(classes=[0, 1], num_records=10, table=table).table is not None
    else:
        with pytest.raises(
            InvalidInputError, match=f"born.{wrong}: expected a day that {form} tells"
        ):
            Schema(classes=[0, 1], num_records=10, table=table)
