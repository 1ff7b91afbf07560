"""The command line as a user meets it: a process, its streams and its exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import privmix

COMMANDS = ["plan", "account", "release", "verify", "train", "evaluate", "demo"]


def test_the_main_job(run, files):
    plan = run(
        "plan",
        "--schema",
        files / "schema.json",
        "--epsilon",
        8,
        "--delta",
        "1e-5",
        "--design",
        "stratified",
        "--out",
        files / "plan.json",
        "--json",
    )
    assert plan.code == 0
    assert plan.json["epsilon"] <= 8
    assert plan.json["label_noise_multiplier"] is None
    made = run(
        "release",
        files / "train.parquet",
        "--label",
        "label",
        "--plan",
        files / "plan.json",
        "--out",
        files / "r",
        "--json",
    )
    assert made.code == 0
    assert "for your eyes only: 400 records" in made.err
    assert "400 records" not in made.out
    verified = run("verify", files / "r", "--expect-digest", made.json["digest"], "--json")
    assert verified.code == 0
    assert verified.json["valid"] is True
    assert verified.json["reasons"] == []
    assert verified.json["epsilon"] == plan.json["guarantee"]["epsilon"]
    for learner in ("noise-aware", "kl-softmax"):
        model = files / f"{learner}.safetensors"
        assert run("train", files / "r", "--out", model, "--learner", learner, "--json").code == 0
        score = run(
            "evaluate",
            model,
            files / "test.npz",
            "--features-key",
            "x",
            "--label-key",
            "y",
            "--json",
        )
        assert score.code == 0
        assert score.json["accuracy"] > 0.6
        assert "nothing here protects" in score.json["note"]
    assert sorted(p.name for p in (files / "r").iterdir()) == [
        "README.md",
        "certificate.json",
        "data",
        "preprocessing.safetensors",  # class counts
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(run, command):
    told = run(command, "--help")
    assert told.code == 0
    assert f"privmix {command}" in told.out


PLAN = ["plan", "--num-records", 100, "--num-classes", 3, "--num-features", 5]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            [*PLAN, "--epsilon", 0, "--delta", "1e-5"],
            "epsilon.*at least 1e-06 and at most 10000, got 0",
        ),
        ([*PLAN, "--epsilon", "nan", "--delta", "1e-5"], "epsilon.*got nan"),
        ([*PLAN, "--epsilon", 1, "--delta", 0], "delta.*at least 1e-300"),
        ([*PLAN, "--epsilon", 1, "--delta", 1], "delta.*below 1"),
        ([*PLAN, "--epsilon", 1, "--delta", 2], "delta"),
        ([*PLAN, "--epsilon", 1, "--delta", "1e-5", "--mix-size", 101], "mix_size.*at most 100"),
        (
            [*PLAN, "--epsilon", 1, "--delta", "1e-5", "--design", "x"],
            "poisson, signed, stratified",
        ),
        ([*PLAN, "--epsilon", 1], "--delta"),
        ([*PLAN, "--epsilon", "one", "--delta", "1e-5"], "--epsilon.*valid number"),
        ([*PLAN, "--epsilon", 1, "--delta", "1e-5", "--out", "p.json"], "--out.*--schema"),
        (["ledger", "show", "--ledger", "no.db"], "existing ledger"),
        (["plan", "--num-records", 5, "--epsilon", 1, "--delta", "1e-5"], "--num-classes"),
        (
            ["account", "--design", "poisson", "--noise-multiplier", 1, "--delta", "1e-5"],
            "--num-records",
        ),
        (
            ["account", "--design", "stratified", "--noise-multiplier", -1, "--delta", "1e-5"],
            "noise-multiplier",
        ),
        (["frobnicate"], "frobnicate"),
        (["verify", "no-such-folder"], "no-such-folder: .*no such folder"),
        (["train", "no-such-folder", "--out", "m.safetensors"], "no-such-folder"),
        (
            ["train", "no-such-folder", "--out", "m", "--learner", "magic"],
            "noise-aware, adaptive, kl-softmax",
        ),
        (["evaluate", "no-such-model", "t.csv", "--label", "y"], "no-such-model"),
    ],
)
def test_bad_arguments(run, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    told = run(*arguments)
    assert told.code == 2
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert re.search(words, told.err), told.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--label": "lable"}, "missing column 'lable'; .*train.parquet: x, label"),
        ({"--schema": "no.json"}, "no.json"),
        ({"--epsilon": 0}, "epsilon"),
        ({"--epsilon": None}, "--epsilon"),
        ({"--schema": None}, "--schema"),
        ({"--mix-size": 401}, "mix_size.*at most 400"),
        ({"--out": "no/such"}, "out=.*no such folder"),
        ({"--out": "."}, "out=.*empty"),
        ({"--out": "schema.json"}, "out=.*a file"),
        ({"--on-bad-record": "skip"}, "error, zero"),
        ({"--threads": 0}, "threads"),
        ({"INPUT": "empty.csv"}, "empty.csv"),
        ({"INPUT": "nan.csv"}, r"features\[1, 0\]"),
        ({"INPUT": "wide.csv"}, r"shape \(records, 5\), got shape \(2, 6\)"),
        ({"INPUT": "label.csv"}, r"labels\[1\].*got '9'"),
        ({"--schema": "bounds.json"}, "feature_clip_norm.*required"),
    ],
)
def test_bad_input_writes_nothing(run, files, monkeypatch, change, words):
    monkeypatch.chdir(files)
    head = "a,b,c,d,e,label\n"
    (files / "empty.csv").write_text(head)
    (files / "nan.csv").write_text(head + "1,2,3,4,5,0\n,2,3,4,5,1\n")
    (files / "wide.csv").write_text("f," + head + "0,1,2,3,4,5,0\n0,1,2,3,4,5,1\n")
    (files / "label.csv").write_text(head + "1,2,3,4,5,0\n1,2,3,4,5,9\n")
    schema = json.loads((files / "schema.json").read_text())
    (files / "bounds.json").write_text(
        json.dumps({k: v for k, v in schema.items() if k != "feature_clip_norm"})
    )
    before = sorted(files.iterdir())
    options = {
        "--label": "label",
        "--schema": "schema.json",
        "--epsilon": 2,
        "--delta": "1e-5",
        "--out": "r",
        "--num-mixtures": 20,
    } | change
    source = options.pop("INPUT", "train.parquet")
    given = [part for name, value in options.items() if value is not None for part in (name, value)]
    told = run("release", source, *given)
    assert told.code == 2, told.err
    assert told.out == ""
    assert re.search(words, told.err), told.err
    assert told.err.splitlines()[-1].startswith("error: ")
    assert sorted(files.iterdir()) == before


def test_csv_labels_are_matched_as_they_are_written(run, tmp_path):
    for classes, texts in ((["007", "7"], ["007", "7"]), ([7, 8], ["7", "8"])):
        schema = {"classes": classes, "num_features": 1, "num_records": 10, "feature_clip_norm": 1}
        (tmp_path / "s.json").write_text(json.dumps(schema))
        rows = "".join(f"0.5,{text}\n" for text in texts)
        (tmp_path / "t.csv").write_text("x,label\n" + rows)
        told = run(
            "release",
            tmp_path / "t.csv",
            "--label",
            "label",
            "--schema",
            tmp_path / "s.json",
            "--epsilon",
            1,
            "--delta",
            "1e-5",
            "--out",
            tmp_path / f"r{len(classes[0:1])}{texts[0]}",
        )
        assert told.code == 0, told.err
    (tmp_path / "t.csv").write_text("x,label\n0.5,07\n")
    told = run(
        "release", tmp_path / "t.csv", "--label", "label", "--schema", tmp_path / "s.json",
        "--epsilon", 1, "--delta", "1e-5", "--out", tmp_path / "never",
    )  # fmt: skip
    assert told.code == 2
    assert "got '07'" in told.err


def test_version(run):
    told = run("--version")
    assert (told.code, told.out) == (0, f"privmix {privmix.__version__}\n")


def test_unexpected_failures_are_one_line(run, files, monkeypatch):
    from privmix import engine

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(engine, "release_records", full)
    told = run(
        "release",
        files / "train.parquet",
        "--label",
        "label",
        "--schema",
        files / "schema.json",
        "--epsilon",
        2,
        "--delta",
        "1e-5",
        "--out",
        files / "r",
    )
    assert told.code == 1
    assert told.err.splitlines()[-1] == "error: OSError: [Errno 28] No space left on device"


def test_the_installed_command_runs():
    path = Path(sys.executable).parent / "privmix"
    told = subprocess.run([path, "--help"], capture_output=True, text=True, check=False)
    assert told.returncode == 0
    assert all(command in told.stdout for command in COMMANDS)


class TestOptionsThatWouldSayNothing:
    """An option that nothing looks at is refused: whoever gives it counts on it."""

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--max-missed-share", "7"), "--max-missed-share: .* at most 1"),
            (("--max-bad-share", "nan"), "--max-bad-share: .*finite"),
            (("--max-bad-share", "-1", "--on-bad-record", "zero"), "--max-bad-share: .*at least 0"),
            (("--max-missed-share", "0.5"), "--max-missed-share: .*without --extractor tabular"),
            (("--max-bad-share", "0.5"), "--max-bad-share: .*without --on-bad-record zero"),
            (("--device", "banana"), "--device: .*without --extractor"),
            (("--who", "me"), "--who: .*without --ledger"),
            (("--passphrase-file", "/nonexistent"), "--passphrase-file: .*without --sign-key"),
            (("--features-key", "x"), "--features-key: .*except for an .npz"),
            (("--label-key", "y"), "--label-key: .*except for an .npz"),
        ],
    )
    def test_release(self, run, files, options, words):
        budget = ("--epsilon", "2", "--delta", "1e-5", "--design", "stratified")
        schema = ("--schema", files / "schema.json", "--label", "label", "--dry-run")
        told = run(
            "release", files / "train.parquet", *schema, *budget, *options, "--out", files / "r"
        )
        assert told.code == 2
        assert re.search(words, told.err)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--max-missed-share", "0.5"), "without --extractor tabular"),
            (("--who", "me"), "--who: .*without --ledger"),
            (("--model", "cnn-26k", "--feature-cache", "views"), "--feature-cache: .*from scratch"),
            (("--method", "plain", "--mix", "cutmix"), "--mix: .*beside --method plain"),
            (("--transforms", "flip"), "--transforms: .*records of shape"),
            (("--extractor", "sentence", "--label-key", "y"), "--label-key: .*beside --extractor"),
        ],
    )
    def test_fit(self, run, files, options, words):
        keys = ("--features-key", "x") if "sentence" not in options else ()
        keys += ("--label-key", "y") if "--label-key" not in options else ()
        budget = ("--epsilon", "2", "--delta", "1e-5", "--schema", files / "schema.json")
        told = run("fit", files / "test.npz", *keys, *budget, *options, "--out", files / "m")
        assert told.code == 2
        assert re.search(words, told.err)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--max-missed-share", "0.5"), "without --extractor tabular"),
            (("--max-bad-share", "0.5"), "without --on-bad-record zero"),
        ],
    )
    def test_extract(self, run, files, options, words):
        told = run(
            "extract", files / "train.parquet", "--extractor", "sentence", "--text-column", "label",
            *options, "--out", files / "f.parquet",
        )  # fmt: skip
        assert told.code == 2
        assert re.search(words, told.err)
