from __future__ import annotations

import numpy as np
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
