"""``privmix synthesize`` and ``privmix compare``."""

from __future__ import annotations

import hashlib
import json
import os
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import privmix
from builders import make_data, make_plan, make_schema
from privmix.cli import app
from privmix.comparing import measures
from privmix.running import durable
from privmix.synthesis.file import write_synthetic
from privmix.synthesis.synthesizer import Synthesizer

# Releases of tests protect nobody, and say so.
pytestmark = pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    schema = make_schema(num_records=600)
    plan = make_plan(schema, "stratified", 0.05, sampling_prob=1.0, rows_per_class=1)
    x, y = make_data(schema, 600)
    return privmix.release(
        x, y, plan, out=tmp_path_factory.mktemp("released") / "release", test_seed=1
    )


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("ending", ["parquet", "csv", "npz"])
def test_files_open_elsewhere_and_say_what_they_are(release, tmp_path, ending):
    out = tmp_path / f"synthetic.{ending}"
    result = run(
        "synthesize", release.folder, "--num-records", 5000, "--out", out, "--seed", 3, "--json"
    )
    assert result.exit_code == 0, result.output
    due = privmix.synthesize(release, 5000, seed=3)
    if ending == "npz":
        with np.load(out, allow_pickle=False) as file:
            features, labels = file["features"], file["labels"]
    else:
        frame = pd.read_parquet(out) if ending == "parquet" else pd.read_csv(out)
        features, labels = frame.drop(columns="label").to_numpy(np.float32), frame["label"]
    assert np.allclose(features, due.features, atol=1e-6) and np.array_equal(labels, due.labels)
    stated = json.loads(out.with_name(out.name + ".json").read_text())
    assert stated["statement"] == "synthetic: resembles, is not, any record"
    assert stated["certificate_digest"] == release.certificate_digest
    assert stated["release"] == "release" and stated["guarantee"].startswith("NOT PRIVATE")
    assert "NOT PRIVATE" in result.stderr
    assert stated["private"] is False  # a test seed's
    assert stated["verified"] is True and due.facts.verified is False  # only the command checks
    assert stated["file_sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert str(tmp_path) not in json.dumps(stated)


def test_shares_are_numbers_with_or_without_brackets(release, tmp_path):
    files = [tmp_path / f"{name}.npz" for name in "ab"]
    for out, shares in zip(files, ("2,1,1", "[2, 1, 1]"), strict=True):
        words = ("--num-records", 400, "--out", out, "--class-prior", shares)
        assert run("synthesize", release.folder, *words).exit_code == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    with np.load(files[0], allow_pickle=False) as file:
        assert 190 < np.unique(file["labels"], return_counts=True)[1].max() < 210


def test_the_same_seed_gives_the_same_file(release, tmp_path):
    files = [tmp_path / f"{name}.npz" for name in "ab"]
    for out in files:
        assert run("synthesize", release.folder, "--num-records", 100, "--out", out).exit_code == 0
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ("--num-records", "0", "--out", "{}/a.csv"),
        ("--num-records", "100000001", "--out", "{}/a.csv"),
        ("--num-records", "10", "--out", "{}/a.txt"),
        ("--num-records", "10", "--out", "{}/there.csv"),
        ("--num-records", "10", "--out", "{}/no/a.csv"),
        ("--num-records", "10", "--out", "{release}/a.csv"),
        ("--num-records", "10", "--out", "{}/a.csv", "--class-prior", "[1,"),
        ("--num-records", "10", "--out", "{}/a.csv", "--class-prior", "[1, 2]"),
        ("--num-records", "10", "--out", "{}/a.csv", "--label", "x0"),
        ("--num-records", "10", "--out", "{}/a.csv", "--seed", "-1"),
    ],
)
def test_bad_arguments_leave_nothing_behind(release, tmp_path, words):
    (tmp_path / "there.csv").write_text("mine")
    filled = [word.format(tmp_path, release=release.folder) for word in words]
    result = run("synthesize", release.folder, *filled)
    assert isinstance(result.exception, privmix.InvalidInputError)
    assert [p.name for p in tmp_path.iterdir()] == ["there.csv"]
    assert (tmp_path / "there.csv").read_text() == "mine"
    assert not (release.folder / "a.csv").exists()


def test_links_to_nothing_are_no_new_files_and_are_seen_before_anything_is_drawn(
    release, tmp_path, monkeypatch
):
    def refuse(*_, **__):
        raise AssertionError("drawn")

    monkeypatch.setattr("privmix.synthesis.synthesizer.Synthesizer.__init__", refuse)
    for name in ("a.csv", "b.csv.json"):
        (tmp_path / name).symlink_to(tmp_path / "nowhere")
        out = tmp_path / name.removesuffix(".json")
        told = str(run("synthesize", release.folder, "--num-records", 10, "--out", out).exception)
        assert told.startswith("--out: expected a new file, got") and name in told
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_nothing_is_written_through_a_link(release, tmp_path, ending):
    victim, out = tmp_path / "victim", tmp_path / f"a.{ending}"
    victim.write_text("mine")
    (tmp_path / f".a.{ending}.{os.getpid()}.tmp").symlink_to(victim)
    assert run("synthesize", release.folder, "--num-records", 10, "--out", out).exit_code == 0
    assert victim.read_text() == "mine" and not out.is_symlink()


def test_labels_without_a_name_are_refused(release, tmp_path):
    words = ("--num-records", 10, "--out", tmp_path / "a.csv", "--label", "")
    told = str(run("synthesize", release.folder, *words).exception)
    assert told == "label: expected a name, text that is not empty, got ''"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("prior", ["[1,", "much", "1,,3", "[" * 100_000, f"[1{'0' * 400}]"])
def test_a_wrong_prior_is_told_all_that_are_accepted(release, tmp_path, prior):
    words = ("--num-records", 10, "--out", tmp_path / "a.csv", "--class-prior", prior)
    told = str(run("synthesize", release.folder, *words).exception)
    assert "counts, estimated, uniform, or numbers, one a class" in told
    assert len(told) < 300


@pytest.mark.parametrize("own", [None, "outcome"])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_synthetic_labels_may_have_another_name_than_the_records(
    release, tmp_path, ending, own, monkeypatch
):
    linear = {
        "linear": measures._CLASSIFIERS["linear"]
    }  # the quickest of them: names are the matter
    monkeypatch.setattr(measures, "_CLASSIFIERS", linear)
    x, y = make_data(make_schema(), 600)
    real, made = tmp_path / "real.csv", tmp_path / f"made.{ending}"
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])
    frame.assign(died=y).to_csv(real, index=False)
    named = () if own is None else ("--label", own)
    run("synthesize", release.folder, "--num-records", 600, "--out", made, *named)
    told = run("compare", real, made, "--label", "died", "--json")
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["models"]["linear"]["synthetic"] > 0.7
    if own is None:  # a file without its facts
        made.with_name(made.name + ".json").unlink()
        assert run("compare", real, made, "--label", "died", "--json").exit_code == 0
    wrong = run("compare", made, real, "--label", own or "label", "--json")
    assert "--label: missing column" in str(wrong.exception)


def test_records_are_compared_with_a_file_or_a_release(release, tmp_path):
    x, y = make_data(make_schema(), 600)
    np.savez(tmp_path / "real.npz", features=x, labels=y)
    run("synthesize", release.folder, "--num-records", 600, "--out", tmp_path / "made.npz")
    page = tmp_path / "page.html"
    first = run("compare", tmp_path / "real.npz", tmp_path / "made.npz", "--json", "--html", page)
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert found["warning"].startswith("for the data holder's eyes only")
    assert found["models"]["linear"]["synthetic"] > 0.7
    assert "eyes only" in page.read_text()
    second = run("compare", tmp_path / "real.npz", release.folder)
    assert second.exit_code == 0 and "Distance to the nearest record" in second.stdout
    assert "\\n" not in second.stdout and len(second.stdout.splitlines()) > 20
    warning = found["warning"]
    assert warning not in second.stdout and second.stderr.count(warning) == 1
    again = run("compare", tmp_path / "real.npz", release.folder, "--html", page)
    assert isinstance(again.exception, privmix.InvalidInputError)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_memory_does_not_grow_with_the_records(release, tmp_path, ending):
    """What Python and Arrow hold at most, after the first run of records and to the end."""
    source = Synthesizer(release, seed=1)

    def most(num_records: int) -> int:
        held = []

        def watch(*_: object) -> None:
            held.append(tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes())

        tracemalloc.start()
        try:
            write_synthetic(source, num_records, tmp_path / f"{num_records}.{ending}", watch)
            return max(*held, tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()

    few, many = (
        most(16 * 4096),
        most(48 * 4096),
    )  # either file is longer than what is hashed at once
    assert many < 1.2 * few


def test_facts_of_a_file_that_got_no_name_are_taken_back(release, tmp_path, monkeypatch):
    def refuse(finished, path):
        if path.suffix == ".csv":
            raise OSError(28, "No space left on device")
        finished.rename(path)

    monkeypatch.setattr(durable, "name_anew", refuse)
    done = run("synthesize", release.folder, "--num-records", 10, "--out", tmp_path / "some.csv")
    assert "No space left" in str(done.exception)
    assert list(tmp_path.iterdir()) == []
