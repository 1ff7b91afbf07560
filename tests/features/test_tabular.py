"""The tabular extractor: bounded vectors by a public schema, each row by itself."""

from __future__ import annotations

import hashlib
import json
import math
from datetime import datetime
from decimal import Decimal
from statistics import NormalDist

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privmix import InvalidInputError, NoiseAwareRegressor, Schema, plan_release, release
from privmix.accounting.guarantee import NotPrivateWarning
from privmix.features import get_extractor
from privmix.features.decoding import TableDecoder
from privmix.features.tabular import TabularExtractor, bucket, frequencies
from privmix.inputs.raw import open_records
from privmix.inputs.raw.blocks import object_array
from privmix.schema.table import FourierFeatures, TableSchema

COLUMNS = [
    {"name": "age", "type": "numeric", "lower": 0, "upper": 100},
    {"name": "sex", "type": "categorical", "categories": ["f", "m"]},
    {"name": "town", "type": "categorical", "num_buckets": 3, "nullable": False},
    {"name": "size", "type": "ordinal", "categories": ["S", "M", "L"], "missing_values": ["?"]},
    {"name": "smokes", "type": "boolean"},
    {"name": "seen", "type": "datetime", "earliest": "2000-01-01", "latest": "2000-01-11"},
    {"name": "code", "type": "categorical", "categories": [1, 2], "unknown": "zero"},
]
SCHEMA = TableSchema(columns=COLUMNS)
ROWS = pd.DataFrame(
    {
        "age": [25.0, 300.0, None],
        "sex": ["m", "x", None],
        "town": ["a", "b", "a"],
        "size": ["L", "M", "?"],
        "smokes": [True, False, None],
        "seen": [datetime(2000, 1, 6), datetime(1999, 1, 1), None],
        "code": [2, 7, None],
    }
)


def test_every_type_of_column():
    extractor = TabularExtractor(SCHEMA)
    names = list(extractor.get_feature_names_out())
    features = extractor.transform(ROWS)
    assert features.shape == (3, len(names)) == (3, extractor.num_features) == (3, 18)
    assert features.dtype == np.float32
    seen = [
        {name: value for name, value in zip(names, row, strict=True) if value} for row in features
    ]
    town = [f"town#{bucket('town', text, 3)}" for text in "ab"]
    assert seen == [
        {"age": -0.5, "sex=m": 1, town[0]: 1, "size": 1, "smokes": 1, "code=2": 1},
        {"age": 1, "sex=other": 1, town[1]: 1, "smokes": -1, "seen": -1},
        {town[0]: 1}
        | {f"{name} missing": 1 for name in ("age", "sex", "size", "smokes", "seen", "code")},
    ]


def test_the_norm_bound_is_reached_and_never_passed():
    features = TabularExtractor(SCHEMA).transform(ROWS)
    assert SCHEMA.norm_bound == math.sqrt(7)
    assert np.linalg.norm(features[2]) == pytest.approx(SCHEMA.norm_bound, rel=1e-7)
    assert (np.linalg.norm(features, axis=1) <= SCHEMA.norm_bound * (1 + 1e-6)).all()


cells = st.fixed_dictionaries(
    {
        "age": st.none() | st.floats(-1e300, 1e300) | st.sampled_from(["1", "NA", "-3e5"]),
        "sex": st.none() | st.text(max_size=3),
        "town": st.sampled_from(["a", "b", "c", "d"]),
        "size": st.none() | st.sampled_from(["S", "?", "x", ""]),
        "smokes": st.none() | st.sampled_from([True, "yes", "F", 0]),
        "seen": st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 1, 1)),
        "code": st.none() | st.integers(-5, 5),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.lists(cells, min_size=1, max_size=6), st.booleans(), st.booleans())
def test_no_row_changes_another_and_none_passes_the_bound(rows, mapped, constant):
    """Bit for bit: alone, in company, at any place, as read in blocks of any size."""
    fourier = FourierFeatures(num_features=8, seed=3) if mapped else None
    schema = SCHEMA.model_copy(update={"fourier": fourier, "constant": constant})
    extractor = TabularExtractor(schema)
    together = extractor.transform(pd.DataFrame(rows))
    assert (np.linalg.norm(together, axis=1) <= schema.norm_bound * (1 + 1e-6)).all()
    for row, features in zip(rows, together, strict=True):
        alone = extractor.transform(pd.DataFrame([row]))
        assert (alone == features).all()
    records = open_records(pd.DataFrame(rows), kind="table", table=schema, max_missed_share=1.0)
    in_blocks = [extractor.transform(block.records) for block in records.blocks(2)]
    assert (np.concatenate(in_blocks) == together).all()


def test_a_bad_record_becomes_zero():
    frame = pd.concat([ROWS, ROWS.assign(town=None), ROWS.assign(age="x")], ignore_index=True)
    records = open_records(
        frame, kind="table", table=SCHEMA, on_bad_record="zero", max_bad_share=1.0
    )
    (block,) = records.blocks(20)
    features = TabularExtractor(SCHEMA).transform(block.records)
    assert block.bad.tolist() == [False] * 3 + [True] * 6
    assert not features[3:].any()
    assert (features[:3] == TabularExtractor(SCHEMA).transform(ROWS)).all()
    with pytest.raises(InvalidInputError, match=r"records\[3\], town: .*not nullable"):
        TabularExtractor(SCHEMA).transform(frame)
    with pytest.raises(InvalidInputError, match="a pandas, polars or Arrow table"):
        TabularExtractor(SCHEMA).transform([[1, 2]])


@pytest.mark.parametrize("value", [None, math.nan, np.nan, np.float32("nan"), pd.NA, pd.NaT])
@pytest.mark.parametrize("name", ["age", "sex", "size", "smokes", "seen", "code"])
def test_null_and_nan_are_the_same_missing_value(name, value):
    """In columns of objects; and of numbers, where pandas and polars differ in what they store."""
    extractor = TabularExtractor(SCHEMA)
    due = extractor.transform(ROWS.iloc[:1].assign(**{name: objects([""])}))
    assert (extractor.transform(ROWS.iloc[:1].assign(**{name: objects([value])})) == due).all()
    if name != "seen":
        table = pa.Table.from_pandas(ROWS.iloc[:1].drop(columns=name))
        for cell in (None, math.nan):
            numbers = table.append_column(name, pa.array([cell], pa.float64(), from_pandas=False))
            assert (extractor.transform(numbers) == due).all()


def objects(values: list) -> pd.Series:
    return pd.Series(object_array(values), dtype=object)


class TestBins:
    TABLE = TableSchema(
        columns=[{"name": "x", "type": "numeric", "lower": 0, "upper": 8, "num_bins": 5}]
    )

    def test_a_value_is_shared_by_the_bins_around_it(self):
        extractor = TabularExtractor(self.TABLE)
        found = extractor.transform(pd.DataFrame({"x": [0.0, 3.0, 4.0, 9.0, None], "y": 1})[["x"]])
        assert found[:4].tolist() == [
            [-1, 1, 0, 0, 0, 0, 0],
            [-0.25, 0, 0.5, 0.5, 0, 0, 0],
            [0, 0, 0, 1, 0, 0, 0],
            [1, 0, 0, 0, 0, 1, 0],
        ]
        assert not found[4].any()  # nothing in the row: a blank record
        names = ["x", "x#0", "x#1", "x#2", "x#3", "x#4", "x missing"]
        assert list(extractor.get_feature_names_out()) == names

    @given(st.lists(st.floats(-1, 9), min_size=1, max_size=50), st.integers(2, 40))
    def test_no_vector_is_longer_than_the_schema_says_and_some_are_as_long(self, values, bins):
        column = {"name": "x", "type": "numeric", "lower": 0, "upper": 8, "num_bins": bins}
        plain = {"name": "y", "type": "boolean"}
        table = TableSchema(columns=[column, plain])
        rows = pd.DataFrame({"x": [*values, 8.0], "y": True})
        vectors = TabularExtractor(table).transform(rows).astype(np.float64)
        squares = (vectors**2).sum(axis=1)
        assert squares.max() == 3.0  # that of the upper bound
        assert table.norm_bound == math.sqrt(3)

    def test_times_and_ranks_have_them_too(self):
        day = {"name": "d", "type": "datetime", "earliest": "2020-01-01", "latest": "2020-01-09"}
        rank = {"name": "r", "type": "ordinal", "categories": ["a", "b", "c", "d"]}
        columns = [{**day, "num_bins": 3}, {**rank, "num_bins": 4}, {**rank, "name": "s"}]
        columns[2]["num_bins"] = 2
        extractor = TabularExtractor(TableSchema(columns=columns))
        rows = pd.DataFrame({"d": ["2020-01-03", None], "r": ["b", "d"], "s": ["a", None]})
        found = extractor.transform(rows)
        third = np.float32(-1 / 3)
        assert found[:, :5].tolist() == [[-0.5, 0.5, 0.5, 0, 0], [0, 0, 0, 0, 1]]
        assert found[:, 5:11].tolist() == [[third, 0, 1, 0, 0, 0], [1, 0, 0, 0, 1, 0]]
        assert found[:, 11:].tolist() == [[-1, 1, 0, 0], [0, 0, 0, 1]]

    @pytest.mark.parametrize("count", [3, 7, 16, 41])
    def test_ranks_of_as_many_bins_have_a_bin_each(self, count):
        categories = [f"c{i}" for i in range(count)]
        column = {"name": "r", "type": "ordinal", "categories": categories, "nullable": False}
        table = TableSchema(columns=[{**column, "num_bins": count}])
        vectors = TabularExtractor(table).transform(pd.DataFrame({"r": categories}))
        assert (vectors[:, 1:] == np.eye(count)).all()
        assert (
            (vectors.astype(np.float64) ** 2).sum(axis=1).max() == 2 == round(table.norm_bound**2)
        )

    @pytest.mark.parametrize(("count", "bins"), [(2, 2), (3, 4)])
    def test_ranks_have_no_more_than_categories(self, count, bins):
        categories = [f"c{i}" for i in range(count)]
        column = {"name": "r", "type": "ordinal", "categories": categories, "num_bins": bins}
        allowed = "r.num_bins: expected 0 for none" + ", or 2 to 3" * (count == 3)
        with pytest.raises(InvalidInputError, match=f"{allowed}, got {bins}"):
            TableSchema(columns=[column])

    def test_they_have_an_identity_of_their_own(self):
        column = self.TABLE.columns[0]
        plain = TableSchema(columns=[column.model_copy(update={"num_bins": None})])
        assert "num_bins" not in plain.model_dump_json()
        mine, other = (TabularExtractor(table).identity.digest for table in (self.TABLE, plain))
        assert mine != other
        assert TableSchema.from_json(self.TABLE.model_dump_json()) == self.TABLE

    @pytest.mark.parametrize("bins", [1, 1025, 2.5])
    def test_a_number_of_bins_that_is_none_is_refused(self, bins):
        column = {"name": "x", "type": "numeric", "lower": 0, "upper": 8, "num_bins": bins}
        with pytest.raises(InvalidInputError, match="num_bins"):
            TableSchema.from_json(json.dumps({"columns": [column]}))

    def test_decoded_numbers_lie_as_the_bins_of_each_group_say(self):
        """One group heaps at the lower bound and is missing often, the other has two modes."""
        rng = np.random.default_rng(0)
        groups = np.arange(4000) % 2
        heaped = np.where(rng.random(4000) < 0.7, 0.0, rng.exponential(1.0, 4000))
        modes = np.where(rng.random(4000) < 0.5, 2.0, 6.0) + rng.normal(0, 0.3, 4000)
        x = np.clip(np.where(groups == 0, heaped, modes), 0, 8)
        x[(groups == 0) & (rng.random(4000) < 0.3)] = np.nan
        rows = pd.DataFrame({"x": x, "y": rng.random(4000) < 0.5})
        other = {"name": "y", "type": "boolean", "nullable": False}
        table = TableSchema(columns=[*self.TABLE.columns, other])
        known = TabularExtractor(table).transform(rows).astype(np.float64)
        # As a release shows them: each group's mean and the covariance, and nothing of its shape.
        means = np.array([known[groups == k].mean(axis=0) for k in range(2)])
        within = np.cov((known - means[groups]).T)
        drawn = means[groups] + rng.multivariate_normal(np.zeros(8), within, 4000)
        weights = np.full(4000, 1 / 4000)
        decoder = TableDecoder.fit(table, drawn, groups, 2, weights)
        found = decoder.decode(drawn, groups)["x"].to_pandas()
        places = np.linspace(0.05, 0.95, 19)
        for k in range(2):
            mine, real = (values[groups == k] for values in (found, rows["x"]))
            assert abs(mine.isna().mean() - real.isna().mean()) < 0.05
            quantiles = (values.dropna().quantile(places) for values in (mine, real))
            apart = np.abs(np.subtract(*map(np.asarray, quantiles)))
            assert apart.mean() < 0.3, (k, apart)
        assert (found[groups == 0].dropna() == 0).mean() > 0.25

    def test_decoded_ranks_have_the_shares_that_their_bins_have_in_each_group(self):
        rng, shares = np.random.default_rng(0), np.array([[0.5, 0, 0.1, 0.4], [0.1, 0.7, 0.2, 0]])
        groups = np.arange(4000) % 2
        ranks = np.array([rng.choice(4, p=shares[group]) for group in groups])
        column = {"name": "r", "type": "ordinal", "categories": list("abcd"), "nullable": False}
        table = TableSchema(columns=[{**column, "num_bins": 4}])
        rows = pd.DataFrame({"r": np.array(list("abcd"))[ranks]})
        known = TabularExtractor(table).transform(rows).astype(np.float64)
        means = np.array([known[groups == k].mean(axis=0) for k in range(2)])
        within = np.cov((known - means[groups]).T)
        drawn = means[groups] + rng.multivariate_normal(np.zeros(5), within, 4000)
        decoder = TableDecoder.fit(table, drawn, groups, 2, np.full(4000, 1 / 4000))
        found = decoder.decode(drawn, groups)["r"].to_pandas()
        for k in range(2):
            counted = found[groups == k].value_counts(normalize=True)
            due = pd.Series(shares[k], list("abcd"))
            assert counted.reindex(due.index).fillna(0).sub(due).abs().max() < 0.03

    def test_a_group_may_have_no_value(self):
        vectors = np.zeros((4, 7))
        vectors[:2, 6] = 1  # missing
        vectors[2, [0, 1]] = [-1, 1]
        vectors[3, [0, 5]] = [1, 1]
        groups = np.array([0, 0, 1, 1])
        decoder = TableDecoder.fit(self.TABLE, vectors, groups, 2, np.full(4, 0.25))
        found = decoder.decode(vectors, groups)["x"].to_pylist()
        assert found[:2] == [None, None] and found[2:] == pytest.approx([0.0, 8.0], abs=0.05)

    def test_a_release_takes_the_extractor_of_its_schema_only(self, tmp_path):
        """The schema completes the table that it is given: a width that fits by chance is not enough."""
        table = {"columns": [{"name": "x", "type": "numeric", "lower": 0, "upper": 8}]}
        schema = Schema(classes=["a", "b"], num_records=400, table=table)
        plan = plan_release(schema, target_epsilon=5.0, target_delta=1e-5)
        rows, labels = pd.DataFrame({"x": np.arange(400) % 8}), np.resize(["a", "b"], 400)
        other = {**table["columns"][0], "upper": 9, "num_bins": 8}
        for columns in ([table["columns"][0]], [other]):
            wrong = TabularExtractor(TableSchema(columns=columns))
            with pytest.raises(InvalidInputError, match=r"TabularExtractor\(schema.table\)"):
                release(rows, labels, plan, out=tmp_path / "r", extractor=wrong, test_seed=0)
        # How it is written that there are no bins does not matter.
        zero = {**table["columns"][0], "num_bins": 0}
        few = Schema(classes=["a", "b"], num_records=40, table=table)
        plan = plan_release(few, target_epsilon=5.0, target_delta=1e-5)
        for number, columns in enumerate((table["columns"], [zero])):
            right = TabularExtractor(TableSchema(columns=columns))
            out = tmp_path / f"few{number}"
            release(rows[:40], labels[:40], plan, out=out, extractor=right, test_seed=0)
        fourier = table | {"fourier": {"num_features": 4}}
        other = table | {"fourier": {"num_features": 4, "seed": 1}}
        bent = Schema(classes=["a", "b"], num_records=40, table=fourier)
        plan = plan_release(bent, target_epsilon=5.0, target_delta=1e-5)
        with pytest.raises(InvalidInputError, match="Fourier"):
            wrong = TabularExtractor(TableSchema.from_json(json.dumps(other)))
            release(rows[:40], labels[:40], plan, out=tmp_path / "x", extractor=wrong, test_seed=0)


class TestConstant:
    TABLE = TableSchema(
        columns=[
            {
                "name": "x",
                "type": "numeric",
                "lower": 0,
                "upper": 1,
                "nullable": False,
                "num_bins": 0,
            }
        ],
        constant=True,
    )

    def test_the_last_coordinate_is_one_but_for_bad_records(self):
        extractor = TabularExtractor(self.TABLE)
        assert extractor.transform(pd.DataFrame({"x": [0.5, None]})).tolist() == [[0, 1], [0, 0]]
        assert list(extractor.get_feature_names_out()) == ["x", "constant"]
        assert self.TABLE.norm_bound == math.sqrt(2)
        fourier = FourierFeatures(num_features=4)
        mapped = TabularExtractor(self.TABLE.model_copy(update={"fourier": fourier}))
        features = mapped.transform(pd.DataFrame({"x": [0.5]}))
        assert features.shape == (1, mapped.num_features) == (1, 5) and features[0, 4] == 1
        assert list(mapped.get_feature_names_out())[-2:] == ["fourier3", "constant"]

    def test_identities_without_it_are_what_they_were(self):
        plain = TableSchema(columns=[{"name": "x", "type": "numeric", "lower": 0, "upper": 1}])
        digest = TabularExtractor(plain).identity.digest
        assert digest.startswith("f1437a069ebe8269")  # of 0.1.0 before there was a constant
        assert TabularExtractor(self.TABLE).identity.digest != digest
        again = TableSchema.from_json(self.TABLE.model_dump_json())
        assert again == self.TABLE and again.constant

    def test_it_is_the_intercept_of_a_regression(self, tmp_path):
        rng = np.random.default_rng(0)
        rows = pd.DataFrame({"x": rng.random(20_000)})
        doses = 6 + 2 * rows[["x"]].to_numpy() + rng.normal(0, 0.2, (20_000, 1))
        errors = []
        for table in (self.TABLE, self.TABLE.model_copy(update={"constant": False})):
            schema = Schema(
                classes=["dose"],
                target="regression",
                target_bounds=[(0, 10)],
                num_records=20_000,
                table=table,
            )
            plan = plan_release(schema, target_epsilon=4, target_delta=1e-5)
            extractor, out = TabularExtractor(table), tmp_path / f"{table.constant}"
            made = release(extractor.transform(rows), doses, plan, out=out, test_seed=1)
            assert made.design == "signed"
            with pytest.warns(NotPrivateWarning):
                model = NoiseAwareRegressor().fit(made)
            predicted = model.predict(extractor.transform(rows))
            errors.append(np.sqrt(np.mean((predicted.reshape(-1, 1) - doses) ** 2)))
        assert errors[0] == pytest.approx(0.2, rel=0.05)
        assert errors[1] > 1.9


class TestFourier:
    fourier = FourierFeatures(num_features=4000, bandwidth=0.7, seed=1)
    schema = TableSchema(
        columns=[
            {"name": n, "type": "numeric", "lower": -1, "upper": 1, "nullable": False} for n in "uv"
        ],
        fourier=fourier,
    )

    def test_they_approximate_the_gaussian_kernel(self):
        points = np.random.default_rng(0).uniform(-1, 1, (20, 2))
        z = TabularExtractor(self.schema).transform(pd.DataFrame(points, columns=list("uv")))
        assert np.linalg.norm(z, axis=1) == pytest.approx(1.0, rel=1e-6)
        assert self.schema.norm_bound == 1.0
        square = ((points[:, None] - points[None]) ** 2).sum(2)
        assert np.abs(z @ z.T - np.exp(-square / (2 * 0.7**2))).max() < 0.1

    def test_the_seed_is_public_and_fixes_them(self):
        """Recomputed here without NumPy and SciPy, so that certificates stay reproducible."""
        words = hashlib.shake_256(b"privmix fourier 1 7").digest(32)
        due = [
            NormalDist().inv_cdf(((int.from_bytes(words[i : i + 8], "big") >> 11) + 0.5) / 2**53)
            for i in range(0, 32, 8)
        ]
        found = frequencies(FourierFeatures(num_features=4, bandwidth=0.5, seed=7), 2)
        assert found == pytest.approx(2 * np.array(due).reshape(2, 2), rel=1e-9)
        assert found[0, 0] == pytest.approx(1.0341749244478884, rel=1e-9)
        other = frequencies(FourierFeatures(num_features=4, bandwidth=0.5, seed=8), 2)
        assert not np.allclose(found, other)

    def test_frequencies_are_gaussian(self):
        """Kolmogorov-Smirnov on fixed draws; a scale wrong by 1.5 gives a p-value below 1e-100."""
        from scipy.stats import kstest

        draws = frequencies(FourierFeatures(num_features=2000, bandwidth=2.0), 20).ravel()
        assert kstest(draws * 2.0, "norm").pvalue > 1e-8
        assert kstest(draws * 3.0, "norm").pvalue < 1e-100


def test_identity_follows_the_schema_alone():
    first = TabularExtractor(SCHEMA).identity
    again = TabularExtractor(SCHEMA.model_dump_json()).identity
    assert first == again
    assert TabularExtractor(first.parameters["table"]).schema == SCHEMA
    other = TableSchema(columns=COLUMNS[:-1])
    assert TabularExtractor(other).identity.digest != first.digest
    assert first.name == "tabular"
    with pytest.raises(InvalidInputError, match=r"table\.x\.upper: .*\"upper\": 100"):
        TabularExtractor('{"columns": [{"name": "x", "type": "numeric", "lower": 0}]}')


def test_arrow_types_that_mean_the_same():
    """Dictionaries, decimals, dates, zones and narrow numbers are read by their value."""
    plain = TabularExtractor(SCHEMA).transform(ROWS.iloc[:1])
    table = pa.table(
        {
            "age": pa.array([Decimal("25.0")]),
            "sex": pa.array(["m"]).dictionary_encode(),
            "town": pa.array(["a"], pa.string_view()),
            "size": pa.array(["L"], pa.large_string()),
            "smokes": pa.array([1], pa.int8()),
            "seen": pa.array([datetime(2000, 1, 6)], pa.timestamp("ns", "UTC")),
            "code": pa.array([2.0], pa.float32()),
        }
    )
    assert (TabularExtractor(SCHEMA).transform(table) == plain).all()
    with pytest.raises(InvalidInputError, match="age: expected a column of numbers"):
        TabularExtractor(SCHEMA).transform(table.set_column(0, "age", pa.array([[1.0]])))


def test_the_table_is_asked_for_and_printed_by_its_digest():
    with pytest.raises(InvalidInputError, match=r"TabularExtractor\(schema\.table\)"):
        get_extractor("tabular")
    columns = [{"name": "age", "type": "numeric", "lower": 0, "upper": 9}]
    identity = TabularExtractor(json.dumps({"columns": columns})).identity
    assert str(identity) == f"tabular(digest {identity.digest[:12]})"


def test_large_integers_as_floats_are_no_category():
    """From 2^53 on floating-point numbers stand for several integers."""
    large, small, hashed = (
        TableSchema(columns=[{"name": "x", "type": "categorical", **kind}])
        for kind in ({"categories": [2**53, 1]}, {"categories": [1, 2]}, {"num_buckets": 64})
    )

    def encode(schema, values):
        records = open_records(
            pd.DataFrame({"x": values}),
            kind="table",
            table=schema,
            on_bad_record="zero",
            max_bad_share=1.0,
        )
        (block,) = records.blocks(9)
        return TabularExtractor(schema).transform(block.records), block.bad.tolist()

    floats = pd.Series([1.0, 2.0**53, None])
    integers = pd.Series([1, 2**53, None], dtype="Int64")
    with pytest.raises(InvalidInputError, match="x: expected integers or texts .* double"):
        encode(large, floats)
    assert encode(large, integers)[1] == [False] * 3
    assert encode(large, pd.Series([1.0, 2.0**53, None], dtype=object))[1] == [False, True, False]
    assert np.array_equal(encode(small, floats)[0], encode(small, integers)[0])  # unknown anyway
    assert encode(small, floats)[1] == [False] * 3
    with pytest.raises(InvalidInputError, match="x: expected integers or texts .* double"):
        encode(hashed, floats)  # one missing cell would make bad cells of all large ones
    found, bad = encode(hashed, floats.astype(object))
    assert bad == [False, True, False] and not found[1].any()
    assert np.array_equal(found[0], encode(hashed, integers)[0][0])


def test_a_row_of_texts_for_nothing_is_a_blank_record():
    """The same through the extractor alone and after the reader."""
    schema = TableSchema(
        columns=[{"name": "x", "type": "categorical", "categories": ["p"]}], constant=True
    )
    extractor, frame = TabularExtractor(schema), pd.DataFrame({"x": ["p", "NA", None]})
    (block,) = open_records(frame, kind="table", table=schema).blocks(9)
    alone = extractor.transform(frame)
    assert np.array_equal(alone, extractor.transform(block.records))
    assert alone.tolist() == [[1, 0, 0, 1], [0] * 4, [0] * 4]


@pytest.mark.parametrize("unit", ["ns", "us", "s"])
def test_an_odd_cell_leaves_numpys_times_what_they_are(unit):
    """pandas keeps them as they are in a column of objects, which one odd cell makes of a column."""
    moment = np.datetime64("2020-03-01T10:30:15.123456789", unit)
    for column in (
        {"type": "datetime", "earliest": "2000-01-01", "latest": "2030-01-01"},
        {"type": "categorical", "num_buckets": 64},
        {"type": "numeric", "lower": 0, "upper": 1},
    ):
        schema = TableSchema(columns=[{"name": "x", **column}])

        def first(cells, schema=schema):
            frame = pd.DataFrame({"x": pd.Series(cells)})
            records = open_records(
                frame, kind="table", table=schema, on_bad_record="zero", max_bad_share=1.0
            )
            (block,) = records.blocks(9)
            return TabularExtractor(schema).transform(block.records)[0].tolist(), block.bad[0]

        assert pd.Series([moment, moment]).dtype != object
        assert first([moment, "x"]) == first([moment, moment])
        assert first([moment, np.timedelta64(5, "ns")]) == first([moment, moment])


class TestOneCellDoesNotChangeOthers:
    """One cell may decide the type of a column; what the other cells say stays."""

    def when(self, form: str) -> TabularExtractor:
        days = {"earliest": "2000-01-01", "latest": "2030-01-01", "format": form}
        return TabularExtractor(TableSchema(columns=[{"name": "d", "type": "datetime", **days}]))

    @pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(10, 1)])
    def test_a_missing_date(self, kind):
        days = pa.array([20200124, 20250101])
        whole = self.when("%Y%m%d").transform(pa.table({"d": days}))
        with_one = pa.concat_arrays([days.cast(pa.float64()), pa.nulls(1, pa.float64())]).cast(kind)
        assert np.array_equal(self.when("%Y%m%d").transform(pa.table({"d": with_one}))[:2], whole)

    def test_times_that_doubles_do_not_hold_are_refused_by_type(self):
        """Even where the values in it are whole: which type it is, one missing value may decide."""
        for form, kind in (("%Y%m%d%H%M%S%f", pa.float64()), ("%Y%m%d", pa.float32())):
            with pytest.raises(InvalidInputError, match="d: expected .* a column of"):
                self.when(form).transform(pa.table({"d": pa.array([1.0], kind)}))

    def test_a_complex_number(self):
        extractor = TabularExtractor(TableSchema(columns=COLUMNS[:1]))
        with pytest.raises(InvalidInputError, match="age: expected .*, got complex128"):
            extractor.transform(pd.DataFrame({"age": [25.0, 30.0, 1j]}))

    def test_a_date_that_is_no_number_is_bad_alone(self):
        frame = pd.DataFrame({"d": object_array([20200124, Decimal("sNaN"), 1e300, 0.5])})
        options = {"kind": "table", "on_bad_record": "zero", "max_bad_share": 1.0}
        (block,) = open_records(frame, table=self.when("%Y%m%d").schema, **options).blocks(9)
        assert block.bad.tolist() == [False, True, True, True]


CODES = TableSchema(
    columns=[
        {"name": "age", "type": "numeric", "lower": 18, "upper": 98, "nullable": False},
        {"name": "pdays", "type": "numeric", "lower": 0, "upper": 30, "missing_values": ["999"]},
        {"name": "calls", "type": "numeric", "lower": 0, "upper": 5, "integer": True},
        {"name": "loan", "type": "boolean", "missing_values": ["unknown"]},
        {"name": "member", "type": "boolean", "nullable": False},
        {"name": "job", "type": "categorical", "categories": ["clerk", "cook"]},
        {"name": "zone", "type": "categorical", "categories": ["1", "2"]},
        {"name": "grade", "type": "ordinal", "categories": ["low", "high"]},
        {"name": "seen", "type": "datetime", "earliest": "2020-01-01", "latest": "2030-01-01"},
        {"name": "told", "type": "datetime", "earliest": "2020-01-01", "latest": "2030-01-01",
         "format": "%d.%m.%Y"},
    ]
)  # fmt: skip
CODED = pd.DataFrame(
    {
        "id": ["a", "b", "c"],
        "zone": ["2", "7", "x"],
        "told": ["24.11.2013", "05.06.2025", None],
        "age": ["58", "130", "18"],
        "pdays": [999, 3, 40],
        "calls": [2.0, 9.0, None],
        "loan": ["yes", "unknown", "no"],
        "member": ["no", "yes", "no"],
        "job": ["cook", "pilot", None],
        "grade": ["high", "middle", "low"],
        "seen": ["2025-06-05", "2031-01-01", ""],
    },
    index=[7, 3, 5],
)


class TestToPandas:
    def test_cells_mean_what_the_schema_says(self):
        found = TabularExtractor(CODES).to_pandas(CODED)
        assert found.index.tolist() == [7, 3, 5]
        kinds = {name: str(kind) for name, kind in found.dtypes.items()}
        told = {name: kinds[name] for name in ("calls", "loan", "member", "zone", "seen")}
        assert told == {
            "calls": "Int64",
            "loan": "boolean",
            "member": "bool",
            "zone": "Int64",
            "seen": "datetime64[us]",
        }
        plain = found.astype(object).where(found.notna(), None).to_dict("list")
        assert plain == {
            "age": [58.0, 98.0, 18.0],
            "pdays": [None, 3.0, 30.0],
            "calls": [2, 5, None],
            "loan": [True, None, False],
            "member": [False, True, False],
            "job": ["cook", "pilot", None],
            "zone": [2, 7, None],
            "grade": ["high", None, "low"],
            "seen": [pd.Timestamp("2025-06-05"), pd.Timestamp("2030-01-01"), None],
            "told": ["01.01.2020", "05.06.2025", None],
        }

    def test_what_is_in_this_form_already_stays(self):
        extractor = TabularExtractor(CODES)
        found = extractor.to_pandas(CODED)
        assert extractor.to_pandas(found).equals(found)
        assert extractor.to_pandas(pa.Table.from_pandas(CODED)).equals(found.reset_index(drop=True))
        assert (extractor.to_pandas(CODED[:0]).dtypes == found.dtypes).all()
        many = pd.concat([CODED] * 3000, ignore_index=True)
        assert (
            extractor.to_pandas(many)
            .tail(3)
            .reset_index(drop=True)
            .equals(found.reset_index(drop=True))
        )

    def test_vectors_stay_the_same(self):
        extractor = TabularExtractor(CODES)
        listed = CODED.assign(zone=["2", "1", "1"], job="cook")
        again = extractor.transform(extractor.to_pandas(listed))
        assert np.array_equal(extractor.transform(listed), again)

    def test_columns_that_cannot_be_drawn_are_read(self):
        found = TabularExtractor(SCHEMA).to_pandas(ROWS)
        assert found["town"].tolist() == ["a", "b", "a"] and found["size"].isna()[2]

    @pytest.mark.parametrize(
        ("column", "value", "told"),
        [
            ("age", "old", r"records\[1\], age: .*a number"),
            ("age", None, r"records\[1\], age: .*not nullable"),
            ("loan", "perhaps", r"records\[1\], loan: "),
        ],
    )
    def test_a_cell_that_is_no_value_is_named(self, column, value, told):
        wrong = CODED.copy()
        wrong[column] = wrong[column].astype(object)
        wrong.iloc[1, list(wrong.columns).index(column)] = value
        with pytest.raises(InvalidInputError, match=told) as found:
            TabularExtractor(CODES).to_pandas(wrong)
        assert "on_bad_record" not in str(found.value)

    def test_a_missing_column_is_named(self):
        with pytest.raises(InvalidInputError, match="expected a column 'job'"):
            TabularExtractor(CODES).to_pandas(CODED.drop(columns="job"))

    def test_a_blank_record_has_nothing_but_where_it_must(self):
        blank = CODED.astype(object)
        blank.iloc[0] = None
        with pytest.raises(InvalidInputError, match=r"records\[0\], age: .*not nullable"):
            TabularExtractor(CODES).to_pandas(blank)
        nullable = TableSchema(columns=[c for c in CODES.columns if c.nullable])
        assert TabularExtractor(nullable).to_pandas(blank).iloc[0].isna().all()


@pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
def test_a_pipeline_fitted_on_synthetic_rows_scores_records_in_their_own_codes(tmp_path):
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    columns = [c for c in CODES.columns if c.name in ("pdays", "loan", "job")]
    table = TableSchema(columns=columns)
    rng = np.random.default_rng(0)
    yes = rng.random(2000) < 0.4
    loan = np.where(rng.random(2000) < 0.9, yes, ~yes)
    raw = pd.DataFrame(
        {
            "pdays": np.where(rng.random(2000) < 0.3, 999, np.where(yes, 25, 5)),
            "loan": np.where(rng.random(2000) < 0.1, "unknown", np.where(loan, "yes", "no")),
            "job": np.where(rng.random(2000) < 0.5, "cook", "clerk"),
        }
    )
    raw["bought"] = np.where(yes, "yes", "no")
    schema = Schema(classes=["no", "yes"], num_records=2000, table=table)
    plan = plan_release(schema, target_epsilon=50.0, target_delta=1e-5, design="hybrid")
    extractor = TabularExtractor(schema.table)
    made = release(
        raw, raw["bought"], plan, out=tmp_path / "r", extractor=extractor, test_seed=1
    ).synthesize(2000, label="bought")
    frame = made.to_pandas()
    x, y = frame.drop(columns="bought"), frame["bought"]
    assert (extractor.to_pandas(raw).dtypes == x.dtypes).all()
    numbers = ["number", "bool", "boolean"]
    pipeline = make_pipeline(
        make_column_transformer(
            (SimpleImputer(add_indicator=True), make_column_selector(dtype_include=numbers)),
            (
                OneHotEncoder(handle_unknown="ignore"),
                make_column_selector(dtype_exclude=numbers),
            ),
        ),
        LogisticRegression(max_iter=500),
    ).fit(x, y)
    assert pipeline.score(extractor.to_pandas(raw), raw["bought"]) > 0.85
