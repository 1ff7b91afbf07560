"""The format that a schema declares reaches files of vectors and of texts in every command."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from builders import make_data, make_schema
from privmix import InvalidInputError, Schema
from privmix.cli import app
from privmix.inputs.readers import read_labelled
from privmix.schema import TableSchema

FORM = {"delimiter": ";", "encoding": "utf-16", "decimal": ",", "thousands": ".", "strip": True}


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if code:
        assert isinstance(result.exception, InvalidInputError), result.output
        return str(result.exception)
    assert result.exit_code == 0, result.output or result.exception
    return result.stdout


def written(value: float) -> str:
    return f"{value:,.4f}".replace(",", " ").replace(".", ",").replace(" ", ".")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same records in two ways of writing, and schemas of both."""
    folder = tmp_path_factory.mktemp("formats")
    schema = make_schema(num_records=200)
    x, y = make_data(schema, 200)
    x = np.round(x * 5000, 4)  # numbers of more than a thousand
    facts = schema.model_dump() | {"feature_clip_norm": 1e4}
    (folder / "plain.json").write_text(json.dumps(facts))
    (folder / "other.json").write_text(json.dumps(facts | {"format": FORM}))
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])]).assign(y=y)
    frame.to_csv(folder / "plain.csv", index=False, float_format="%.4f")
    lines = [";".join(frame.columns)]
    lines += [";".join([*map(written, row), f" {c} "]) for row, c in zip(x, y, strict=True)]
    (folder / "other.csv").write_text("\n".join(lines) + "\n", encoding="utf-16")
    return folder


def both(folder, tmp_path, *words: object) -> list[str]:
    """Run a command on either file; what it writes goes by the file's name."""
    done = []
    for name in ("plain", "other"):
        shown = [str(word).replace("NAME", name) for word in words]
        done.append(run(*shown))
    return done


def trained(files, tmp_path):
    """Release the plain file, and train on that."""
    run(
        "release", files / "plain.csv", "--schema", files / "plain.json", "--label", "y",
        "--epsilon", 8, "--delta", 1e-5, "--design", "stratified", "--test-seed", 1,
        "--out", tmp_path / "r",
    )  # fmt: skip
    run("train", tmp_path / "r", "--out", tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


def test_released_evaluated_and_predicted_vectors_are_the_same(files, tmp_path):
    source, schema = files / "NAME.csv", files / "NAME.json"
    out = ("--out", tmp_path / "NAME")
    budget = ("--epsilon", 8, "--delta", 1e-5)
    both(
        files, tmp_path, "release", source, "--schema", schema, "--label", "y", *budget, *out,
        "--design", "stratified", "--test-seed", 1,
    )  # fmt: skip
    first, second = (
        read_labelled(
            files / f"{name}.csv",
            label="y",
            classes=(0, 1, 2),
            form=Schema.from_json((files / f"{name}.json").read_text()).text_format,
        )
        for name in ("plain", "other")
    )
    np.testing.assert_array_equal(first.features, second.features)
    assert first.labels.tolist() == second.labels.tolist()
    model = tmp_path / "m.safetensors"
    run("train", tmp_path / "plain", "--out", model)
    told = both(
        files, tmp_path, "evaluate", model, source, "--label", "y", "--schema", schema, "--json"
    )
    assert json.loads(told[0]) == json.loads(told[1])
    both(
        files, tmp_path, "predict", model, source, "--ignore", "y", "--schema", schema,
        "--out", tmp_path / "NAME.csv",
    )  # fmt: skip
    assert (tmp_path / "plain.csv").read_text() == (tmp_path / "other.csv").read_text()


def test_the_remedy_names_the_schema(files, tmp_path):
    words = ("release", files / "other.csv", "--schema", files / "plain.json", "--label", "y")
    told = run(*words, "--epsilon", 1, "--delta", 1e-5, "--out", tmp_path / "r", code=2)
    assert '"format": {"encoding": "utf-16"}' in told and "in the schema" in told


def test_private_training_reads_them_too(files, tmp_path):
    pytest.importorskip("torch")
    words = ("--label", "y", "--epsilon", 8, "--delta", 1e-5, "--epochs", 1, "--batch-size", 50)
    told = both(
        files, tmp_path, "fit", files / "NAME.csv", "--schema", files / "NAME.json", *words,
        "--test-seed", 1, "--out", tmp_path / "NAME", "--json",
    )  # fmt: skip
    assert [json.loads(one)["epsilon"] for one in told] == 2 * [json.loads(told[0])["epsilon"]]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "other")]
    assert weights[0] == weights[1]


def test_a_wrong_cell_to_be_predicted_is_named_by_its_place(files, tmp_path):
    model = trained(files, tmp_path)
    frame = pd.read_csv(files / "plain.csv").drop(columns="y").astype(object)
    frame.loc[3, "x1"] = "?"
    frame.to_csv(tmp_path / "bad.csv", index=False)
    told = run("predict", model, tmp_path / "bad.csv", "--out", tmp_path / "p.csv", code=2)
    assert "x1[3]: expected a finite number" in told


def test_a_format_beside_a_table_is_refused():
    table = {"columns": [{"name": "a", "type": "numeric", "lower": 0, "upper": 1}]}
    with pytest.raises(InvalidInputError, match="format: not accepted beside table"):
        Schema(classes=["a", "b"], num_records=10, table=table, format={"delimiter": ";"})
    made = Schema(classes=["a", "b"], num_records=10, table=table | {"format": {"delimiter": ";"}})
    assert (
        made.text_format.delimiter == ";" == TableSchema(**made.table.model_dump()).format.delimiter
    )
    assert "format" not in make_schema().model_dump()


def test_texts_are_read_as_declared(tmp_path):
    """Through ``extract``, whose extractor is told by a stand-in: the reader is what is looked at."""
    from privmix.cli._raw import RawFlags, SourceFacts, open_raw
    from privmix.inputs.extractor import ExtractorIdentity
    from privmix.schema.text_format import TextFormat

    class Texts:
        kind = "text"
        identity = ExtractorIdentity(name="test", digest=64 * "0")

    (tmp_path / "t.csv").write_text("text\tlabel\nGrüße, alle\t a \n", encoding="latin-1")
    form = TextFormat(delimiter="\t", encoding="latin-1", strip=True)
    records = open_raw(
        tmp_path / "t.csv",
        Texts(),
        RawFlags(text_column="text"),
        SourceFacts(classes=("a", "b"), form=form),
        label=["label"],
    )
    (block,) = records.blocks(8)
    assert list(block.records) == ["Grüße, alle"] and list(block.labels) == ["a"]


def test_a_label_among_the_features_is_told_with_the_remedy(files, tmp_path):
    result = CliRunner().invoke(app, ["schema", str(files / "plain.csv"), "--json"])
    assert "every column becomes a feature, the label too: name that by --label" in result.stderr
    assert "--label" not in CliRunner().invoke(
        app, ["schema", str(files / "plain.csv"), "--label", "y", "--json"]
    ).stderr  # fmt: skip
    frame = pd.read_csv(files / "plain.csv")
    model = trained(files, tmp_path)
    parquet = tmp_path / "labelled.parquet"
    frame.to_parquet(parquet)
    for source in (files / "plain.csv", parquet):
        told = run("predict", model, source, "--out", tmp_path / "p.csv", code=2)
        assert "--ignore COLUMN leaves out one that is no feature, such as the label" in told
