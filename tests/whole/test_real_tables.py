"""Tables as they come: declared formats, shares that stop a run, errors that say what to write."""

from __future__ import annotations

import gzip
import json
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from privmix import InvalidInputError, Schema, plan_release, release
from privmix.features import make_extractor
from privmix.features.base import local_only, public_model
from privmix.features.tabular import TabularExtractor
from privmix.inputs.arrays import ArraySource, FileSource, as_source
from privmix.inputs.missing import MISSING
from privmix.inputs.raw import open_records
from privmix.inputs.raw.template import schema_template
from privmix.inputs.readers import open_labelled, read_labelled
from privmix.records.binding import bound_records
from privmix.schema.table import TableSchema

NUMBER = {"name": "x", "type": "numeric", "lower": 0, "upper": 10_000}
KIND = {"name": "k", "type": "categorical", "categories": ["a", "01"]}
DAY = {"name": "d", "type": "datetime", "earliest": "2000-01-01", "latest": "2030-01-01"}


def table(*columns: dict, **form: object) -> TableSchema:
    return TableSchema(columns=columns, **({"format": form} if form else {}))


def cells(schema: TableSchema, source: object, **options: object) -> list[dict]:
    records = open_records(source, kind="table", table=schema, **options)
    blocks = [block.records for block in records.blocks(4)]
    return pa.concat_tables(blocks).to_pylist()


def stopped(schema: TableSchema, source: object, **options: object) -> tuple[str, list[str]]:
    with pytest.raises(InvalidInputError) as error:
        cells(schema, source, **options)
    return str(error.value), getattr(error.value, "__notes__", [])


class TestFormats:
    """What is declared is read; what is not is refused with the remedy."""

    @pytest.mark.parametrize(
        ("name", "form", "content"),
        [
            ("t.csv", {"delimiter": ";"}, "x;k\n1.5;a\n"),
            ("t.csv", {"delimiter": "|"}, "x|k\n1.5|a\n"),
            ("t.tsv", {}, "x\tk\n1.5\ta\n"),
            ("t.csv", {}, "\ufeffx,k\n1.5,a\n"),
            ("t.csv", {}, 'id,x,"k"\n"a\nb",1.5,a\n'),
            ("t.csv", {}, ",x,k\n0,1.5,a\n"),
            ("t.csv", {"strip": True}, "x,k\n 1.5 , a\n"),
            ("t.csv", {"decimal": ",", "delimiter": ";"}, "x;k\n1,5;a\n"),
        ],
    )
    def test_declared_ways_of_writing_are_read(self, tmp_path, name, form, content):
        (tmp_path / name).write_text(content, newline="")
        assert cells(table(NUMBER, KIND, **form), tmp_path / name) == [{"x": 1.5, "k": "a"}]

    @pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "cp1252", "utf-8"])
    def test_declared_encodings_are_read(self, tmp_path, encoding):
        (tmp_path / "t.csv").write_bytes("x,k\n1,\u00e9\n".encode(encoding))
        kind = {**KIND, "categories": ["\u00e9"]}
        found = cells(table(NUMBER, kind, encoding=encoding), tmp_path / "t.csv")
        assert found == [{"x": 1.0, "k": "\u00e9"}]

    def test_compressed_text_is_read(self, tmp_path):
        (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"x,k\n1,a\n"))
        (tmp_path / "t.tsv.zst").write_bytes(pa.compress(b"x\tk\n1\ta\n", "zstd", asbytes=True))
        for name in ("t.csv.gz", "t.tsv.zst"):
            assert cells(table(NUMBER, KIND), tmp_path / name) == [{"x": 1.0, "k": "a"}]
        (tmp_path / "t.csv.gz").rename(tmp_path / "t.csv")
        assert "ends in .csv.gz" in stopped(table(NUMBER, KIND), tmp_path / "t.csv")[0]

    @pytest.mark.parametrize(
        ("form", "text", "value"),
        [
            ({"thousands": ","}, "1,234.5", 1234.5),
            ({"thousands": ",", "decimal": "."}, "1234.5", 1234.5),
            ({"thousands": ".", "decimal": ","}, "1.234,5", 1234.5),
            ({"thousands": " ", "decimal": ","}, "1\u202f234,5", 1234.5),
            ({"decimal": ","}, "-1,5e2", -150.0),
            ({"decimal": ","}, "1.5", None),
            ({"thousands": ","}, "12,34", None),
            ({}, "1,5", None),
            ({}, "$5", None),
        ],
    )
    def test_numbers_are_read_as_declared(self, form, text, value):
        frame = pd.DataFrame({"x": [text]})
        if value is None:
            assert '"format"' in stopped(table(NUMBER, **form), frame)[0]
        else:
            assert cells(table(NUMBER, **form), frame, max_missed_share=1.0) == [{"x": value}]

    @pytest.mark.parametrize("text", ["$5", "5 $", "-$5", "EUR 5", "5%"])
    def test_declared_symbols_are_no_part_of_a_number(self, text):
        column = {**NUMBER, "symbols": ["$", "EUR", "%"]}
        frame = pd.DataFrame({"x": [text]})
        assert abs(cells(table(column), frame, max_missed_share=1.0)[0]["x"]) == 5

    def test_dates_are_read_as_declared(self):
        frame = pd.DataFrame({"d": ["31.12.2001"]})
        found = cells(table({**DAY, "format": "%d.%m.%Y"}), frame)
        assert found[0]["d"].date().isoformat() == "2001-12-31"
        assert '"%d.%m.%Y"' in stopped(table(DAY), frame)[0]
        other = pd.DataFrame({"d": ["2001-12-31"]})
        assert "such as 01.01.2000" in stopped(table({**DAY, "format": "%d.%m.%Y"}), other)[0]
        with pytest.raises(InvalidInputError, match="year, month and day"):
            table({**DAY, "format": "%d.%m."})

    def test_what_is_not_declared_is_refused_with_the_remedy(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("x;k\n1;a\n")
        assert '"delimiter": ";"' in stopped(table(NUMBER, KIND), path)[0]
        path.write_bytes("x,k\n1,a\n".encode("utf-16"))
        assert '"encoding": "utf-16"' in stopped(table(NUMBER, KIND), path)[0]
        path.write_bytes("x,\u00e9\n1,a\n".encode("latin-1"))
        assert '"encoding"' in stopped(table(NUMBER, KIND), path)[0]

    def test_bytes_of_no_character_are_their_own_records_fault(self, tmp_path):
        (tmp_path / "t.csv").write_bytes(b"x,k\n1,a\n2,\x81\n3,a\n")
        schema = table(NUMBER, KIND, encoding="cp1252")
        records = open_records(
            tmp_path / "t.csv", kind="table", table=schema, on_bad_record="zero", max_bad_share=0.5
        )
        assert [bool(bad) for block in records.blocks(8) for bad in block.bad] == [0, 1, 0]

    def test_a_format_is_part_of_what_the_extractor_is(self):
        plain, other = TabularExtractor(table(NUMBER)), TabularExtractor(table(NUMBER, decimal=","))
        assert plain.identity.digest != other.identity.digest
        assert "format" not in plain.identity.parameters["table"]


class TestTemplate:
    def test_the_files_format_is_proposed_from_its_first_line(self, tmp_path):
        path = tmp_path / "t.csv"
        for content, form in (
            (b"a,b\n1;2;3;4,2\n", None),
            (b"a;b\n1,5;2\n", {"delimiter": ";"}),
            ("a\tb\n".encode("utf-16"), {"delimiter": "\t", "encoding": "utf-16"}),
            ("\u00e9;b\n".encode("cp1252"), {"delimiter": ";", "encoding": "cp1252"}),
        ):
            path.write_bytes(content)
            text, _ = schema_template(path)
            assert json.loads(text)["table"].get("format") == form

    def test_an_index_is_no_column(self, tmp_path):
        frame = pd.DataFrame({"x": [1.0], "y": [0]}, index=[7])
        frame.to_parquet(tmp_path / "t.parquet", index=True)
        frame.to_csv(tmp_path / "t.csv")
        for name, told in (("t.parquet", "__index_level_0__"), ("t.csv", "column 1, nameless")):
            text, left_out = schema_template(tmp_path / name, "y")
            assert [c["name"] for c in json.loads(text)["table"]["columns"]] == ["x"]
            assert left_out == [told]

    def test_the_first_record_of_a_headerless_file_is_not_printed(self, tmp_path, run):
        path = tmp_path / "t.csv"
        path.write_text("39.2718,Ann Smith,secret\n40,Bob,b\n")
        (tmp_path / "s.json").write_text(
            f'{{"classes": ["a", "b"], "num_records": 9, "table": {{"columns": [{json.dumps(KIND)}]}}}}'
        )
        budget = ("--epsilon", 1, "--delta", 1e-5, "--schema", tmp_path / "s.json")
        for words in (
            ("schema", path),
            ("schema", path, "--label", "y"),
            (
                "extract",
                path,
                "--label",
                "y",
                "--extractor",
                "tabular",
                "--out",
                tmp_path / "o.parquet",
                *budget[4:],
            ),
            ("release", path, "--label", "y", "--out", tmp_path / "r", *budget),
        ):
            refused = run(*words)
            assert refused.code == 2
            assert not any(word in refused.err + refused.out for word in ("Ann", "secret", "39.27"))


class TestShares:
    def test_too_many_bad_records_stop_before_anything_is_charged(self, tmp_path, run):
        days = ["2001-01-01"] * 5 + ["31.12.2001"] * 95
        frame = pd.DataFrame({"d": days, "y": ["a", "b"] * 50})
        frame.to_csv(tmp_path / "t.csv", index=False)
        schema = {"classes": ["a", "b"], "num_records": 100, "table": {"columns": [DAY]}}
        (tmp_path / "s.json").write_text(json.dumps(schema))
        ledger = tmp_path / "l.sqlite"
        run(
            "ledger",
            "open",
            "--ledger",
            ledger,
            "--dataset-id",
            "p",
            "--epsilon-limit",
            5,
            "--delta",
            1e-5,
        )
        words = ("release", tmp_path / "t.csv", "--label", "y", "--extractor", "tabular")
        words += ("--schema", tmp_path / "s.json", "--epsilon", 1, "--delta", 1e-5)
        words += ("--out", tmp_path / "r", "--on-bad-record", "zero")
        for more in (("--dry-run",), ("--ledger", ledger, "--dataset-id", "p")):
            refused = run(*words, *more)
            assert refused.code == 2 and "95 of 100" in refused.err
            assert "d: 95 bad cells" in refused.err and "such as 2000-01-01" in refused.err
            assert "everything is in order" not in refused.err
        assert not (tmp_path / "r").exists()
        allowed = run(*words, "--dry-run", "--max-bad-share", 0.96)
        assert allowed.code == 0 and "d: 95 bad cells" in allowed.err

    def test_the_first_fault_of_every_column_is_told_at_once(self):
        """Also those that are far behind the first."""
        count = 20_000
        frame = pd.DataFrame({"x": ["1"] * count, "d": ["2001-01-01"] * count})
        frame.loc[[1, 3], "x"], frame.loc[count - 1, "d"] = "-", "n"
        told, notes = stopped(table(NUMBER, DAY), frame)
        assert "table[1], x" in told
        assert notes[0] == f"3 of {count} records read are bad"
        assert "x: 2 bad cells, first table[1]" in notes[1]
        assert f"d: 1 bad cell, first table[{count - 1}]" in notes[2]

    @pytest.mark.parametrize("word", ["na", "-", "#N/A", "<null>", " "])
    def test_words_among_numbers_name_the_option(self, word):
        assert "missing_values" in stopped(table(NUMBER), pd.DataFrame({"x": ["1", word]}))[0]
        column = {**NUMBER, "missing_values": [word]}
        found = cells(table(column), pd.DataFrame({"x": ["1", word]}))
        assert found == [{"x": 1.0}, {"x": None}]

    @pytest.mark.parametrize(
        ("column", "values", "hint"),
        [
            (KIND, ["1"] * 9 + ["a"], "leading zeros"),
            (KIND, [" a"] * 9 + ["a"], '"strip": true'),
            (NUMBER, [1e9] * 9 + [1], "miss the schema"),
            (DAY, ["1900-01-01"] * 9 + [None], "miss the schema"),
            ({**KIND, "type": "ordinal"}, ["z"] * 9 + ["a"], "miss the schema"),
            ({**KIND, "unknown": "zero"}, ["z"] * 9 + ["a"], "miss the schema"),
        ],
    )
    def test_a_column_that_misses_the_schema_stops(self, column, values, hint):
        frame = pd.DataFrame({column["name"]: values})
        told, notes = stopped(table(column), frame)
        assert "max_missed_share" in told and "got 9 of" in told and hint in notes[0]
        assert len(cells(table(column), frame, max_missed_share=1.0)) == 10

    def test_python_releases_stop_too(self, tmp_path):
        schema = Schema(classes=[0, 1], num_records=20, table=table(NUMBER))
        plan = plan_release(schema, target_epsilon=1.0, target_delta=1e-5, design="stratified")
        frame = pd.DataFrame({"x": [1e9] * 20})
        options = {"extractor": TabularExtractor(schema.table), "out": tmp_path / "r"}
        with pytest.raises(InvalidInputError, match="max_missed_share"):
            release(frame, [0, 1] * 10, plan, **options)
        with pytest.raises(InvalidInputError, match="max_bad_share"):
            release(
                np.full((20, 2), np.nan), [0] * 20, plan, out=tmp_path / "r", on_bad_record="zero"
            )
        assert not (tmp_path / "r").exists()

    def test_vectors_name_every_bad_column(self, tmp_path):
        (tmp_path / "t.csv").write_text("u,v,y\n1,2,a\nx,3,b\n3,NA,b\n")
        data = open_labelled(tmp_path / "t.csv", label="y", classes=["a", "b"])
        schema = Schema(classes=["a", "b"], num_features=2, num_records=3, feature_clip_norm=1.0)
        with pytest.raises(InvalidInputError, match=r"features\[1, 0\]") as error:
            bound_records(data.features, data.labels, schema)
        assert ["'u': 1 bad cell" in note for note in error.value.__notes__] == [False, True, False]
        assert "'v': 1 bad cell, first features[2, 1]" in error.value.__notes__[2]

    def test_shares_decide_nothing_about_a_record(self):
        """What is made of a record is the same whatever share of the others is bad."""
        few = pd.DataFrame({"x": ["1"] * 99 + ["?"]})
        many = pd.DataFrame({"x": ["1"] + ["?"] * 99})
        options = {"on_bad_record": "zero", "max_bad_share": 1.0}
        assert cells(table(NUMBER), few, **options)[0] == cells(table(NUMBER), many, **options)[0]


class TestLabels:
    @pytest.mark.parametrize(
        ("label", "words"),
        [("1.0", 'state "classes"'), ("True", "write integers"), (" 1", "blanks around")],
    )
    def test_labels_written_in_another_way_are_refused_with_the_remedy(
        self, tmp_path, label, words
    ):
        (tmp_path / "t.csv").write_text(f"x,k,y\n1,a,{label}\n")
        assert words in stopped(table(NUMBER), tmp_path / "t.csv", label="y", classes=[0, 1])[0]
        (tmp_path / "v.csv").write_text(f"u,v,y\n1,2,{label}\n")
        data = read_labelled(tmp_path / "v.csv", label="y", classes=[0, 1])
        schema = Schema(classes=[0, 1], num_features=2, num_records=3, feature_clip_norm=1.0)
        with pytest.raises(InvalidInputError, match=words):
            bound_records(data.features, data.labels, schema)

    def test_blanks_around_labels_come_off_where_that_is_declared(self, tmp_path):
        (tmp_path / "t.csv").write_text("x,y\n1, 1\n")
        schema = table(NUMBER, strip=True)
        (block,) = open_records(
            tmp_path / "t.csv", kind="table", table=schema, label="y", classes=[0, 1]
        ).blocks(4)
        assert block.labels.tolist() == [1]

    @pytest.mark.parametrize(
        "classes", [[-1, 2**63], [0, 2**63], ["a", "a\0"], ["a\0", "b"], ["\ud800", "a"]]
    )
    def test_classes_that_arrays_would_merge_are_refused(self, classes):
        with pytest.raises(InvalidInputError, match="classes"):
            Schema(classes=classes, num_features=2, num_records=9, feature_clip_norm=1.0)

    def test_one_list_of_words_for_missing_values(self):
        frame = pd.DataFrame({"k": sorted(MISSING)})
        assert all(row == {"k": None} for row in cells(table(KIND), frame))


class TestVectors:
    def test_a_nameless_column_is_named_by_its_place(self, tmp_path):
        pd.DataFrame({"u": [1.0], "y": ["a"]}).to_csv(tmp_path / "t.csv")
        with pytest.raises(InvalidInputError, match="column 1 has no name"):
            open_labelled(tmp_path / "t.csv", label="y", classes=["a", "b"])

    @pytest.mark.parametrize("name", [None, "patient"])
    def test_a_stored_index_is_no_feature(self, tmp_path, name):
        frame = pd.DataFrame({"u": [1.0, 2.0], "y": [0, 1]}, index=pd.Index([5, 7], name=name))
        frame.to_parquet(tmp_path / "t.parquet", index=True)
        data = read_labelled(tmp_path / "t.parquet", label="y", classes=[0, 1])
        assert data.features.tolist() == [[1.0], [2.0]]

    def test_text_is_streamed_to_the_same_numbers(self, tmp_path):
        x = np.random.default_rng(0).normal(size=(3000, 40)) * 10.0 ** np.arange(-20, 20)
        frame = pd.DataFrame(x, columns=[f"f{i}" for i in range(40)]).assign(y="a")
        frame.to_csv(tmp_path / "t.csv", index=False)
        data = open_labelled(tmp_path / "t.csv", label="y", classes=["a", "b"])
        assert data.features.resident_bytes < 16 << 20
        assert (data.features.read(1500, 1700) == x[1500:1700]).all()
        assert (data.features.read(0, 3000) == x).all()


class TestFiles:
    def test_a_pipe_is_refused(self, tmp_path, run):
        (tmp_path / "s.json").write_text(
            '{"classes": [0, 1], "num_records": 9, "num_features": 1, "feature_clip_norm": 1}'
        )
        for name in ("t.csv", "t.parquet", "t.npz", "t.npy", "t.csv.gz"):
            os.mkfifo(tmp_path / name)
            with pytest.raises(InvalidInputError, match="a regular file, got a pipe"):
                open_labelled(tmp_path / name, label="y", classes=[0, 1])
        with pytest.raises(InvalidInputError, match="a regular file, got a pipe"):
            open_records(tmp_path / "t.csv", kind="table", table=table(NUMBER))
        with pytest.raises(InvalidInputError, match="a regular file"):
            open_labelled(tmp_path, label="y", classes=[0, 1])
        refused = run("schema", tmp_path / "t.csv")
        assert refused.code == 2 and "a pipe" in refused.err

    def test_a_replaced_file_is_not_read_for_the_mapped_one(self, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros((4, 2)))
        mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
        source = as_source("x", mapped)
        assert isinstance(source, FileSource)
        np.save(tmp_path / "new.npy", np.ones((4, 2)))
        (tmp_path / "new.npy").replace(tmp_path / "x.npy")
        assert isinstance(as_source("x", mapped), ArraySource)
        assert not as_source("x", mapped).read(0, 4).any()
        assert not source.read(0, 4).any()  # opened before

    def test_fields_that_are_there_twice_are_refused(self):
        for text in (
            '{"classes": [0, 1], "classes": [0, 2], "num_records": 9, "num_features": 1, '
            '"feature_clip_norm": 1}',
            '{"classes": [0, 1], "num_records": 9, "table": {"columns": [{"name": "x", "type": '
            '"numeric", "lower": 0, "lower": 1, "upper": 2}]}}',
        ):
            with pytest.raises(InvalidInputError, match="twice"):
                Schema.from_json(text)

    @pytest.mark.parametrize("lost", ["x", "y"])
    def test_a_missing_zarr_chunk_is_named(self, tmp_path, lost):
        zarr = pytest.importorskip("zarr")
        group = zarr.open_group(tmp_path / "d.zarr", mode="w")
        for name, values in (("x", np.ones((8, 2))), ("y", np.arange(8) % 2 + 1)):
            chunks = (2, *values.shape[1:])
            array = group.create_array(name, shape=values.shape, chunks=chunks, dtype=values.dtype)
            array[...] = values
        options = {"features_key": "x", "label_key": "y"}
        assert read_labelled(tmp_path / "d.zarr", **options).features.all()
        (chunk,) = [p for p in (tmp_path / "d.zarr" / lost / "c").rglob("*") if p.is_file()][2:3]
        chunk.unlink()
        name = chunk.relative_to(tmp_path / "d.zarr" / lost).as_posix()
        with pytest.raises(InvalidInputError, match=f"{lost}, chunk {name}"):
            read_labelled(tmp_path / "d.zarr", **options)

    def test_a_file_of_out_is_there_whole_or_not_at_all(self, tmp_path, run, monkeypatch):
        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        (tmp_path / "t.csv").write_text("x,y\n1,a\n")
        (tmp_path / "s.json").write_text(
            '{"classes": [0, 1], "num_records": 900, "num_features": 3, "feature_clip_norm": 1}'
        )
        monkeypatch.setattr("privmix.cli._common.os.fsync", full)
        plan = ("plan", "--schema", tmp_path / "s.json", "--epsilon", 1, "--delta", 1e-5)
        plan += ("--design", "stratified")
        for words in (("schema", tmp_path / "t.csv"), plan):
            refused = run(*words, "--out", tmp_path / "o.json")
            assert refused.code == 2 and "No space left" in refused.err
            assert sorted(p.name for p in tmp_path.iterdir()) == ["s.json", "t.csv"]


class TestExtractorNames:
    @pytest.mark.parametrize(
        "model",
        [
            "/home/ann/model",
            "./model",
            "~/model",
            "local-dir:/home/ann/model",
            "ViT-B-32//home/ann/weights.pt",
            "ViT-B-32/home/ann/weights.pt",
            "C:\\Users\\ann\\model",
            "here",
            "ViT-B-32/here",
        ],
    )
    def test_no_path_becomes_a_models_name(self, model, tmp_path, monkeypatch):
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path)
        assert public_model(model) == {}

    @pytest.mark.parametrize(
        "model",
        ["resnet18.a1_in1k", "owner/name", "hf-hub:owner/name", "ViT-B-32/laion2b_s34b_b79k"],
    )
    def test_names_of_hubs_are_told(self, model):
        assert public_model(model) == {"model": model}

    @pytest.mark.parametrize("name", ["timm", "open_clip"])
    def test_libraries_that_download_are_not_asked_unasked(self, name):
        with local_only(), pytest.raises(InvalidInputError, match="--allow-download"):
            _ = make_extractor(name, model="ViT/some").num_features  # type: ignore[attr-defined]
