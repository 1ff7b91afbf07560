"""The command line as a user meets it: a process, its streams and its exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privmix
from builders import make_data, make_schema
from privmix.cli import _common

COMMANDS = ["plan", "account", "release", "verify", "train", "evaluate", "demo"]


@pytest.fixture
def files(tmp_path) -> Path:
    schema = make_schema(num_records=400)
    (tmp_path / "schema.json").write_text(schema.model_dump_json())
    x, y = make_data(schema, 400)
    pq.write_table(
        pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 5), "label": y}),
        tmp_path / "train.parquet",
    )
    np.savez(tmp_path / "test.npz", x=x, y=y)
    return tmp_path


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


def test_release_without_a_plan_file(run, files):
    made = run(
        "release",
        files / "test.npz",
        "--features-key",
        "x",
        "--label-key",
        "y",
        "--schema",
        files / "schema.json",
        "--epsilon",
        2,
        "--delta",
        "1e-5",
        "--mix-size",
        20,
        "--num-mixtures",
        50,
        "--out",
        files / "r",
    )
    assert made.code == 0
    assert "privmix verify" in made.out
    assert run("verify", files / "r").out.startswith("valid: (1.9")


def test_plan_from_sizes(run):
    plan = run(
        "plan",
        "--num-records",
        10003,
        "--num-classes",
        77,
        "--num-features",
        384,
        "--epsilon",
        1,
        "--delta",
        "1e-5",
        "--json",
    ).json
    assert (plan["design"], plan["num_mixtures"]) == ("adaptive", 2000 + 20 * 77)
    steps = ["center", "unit_norm", "intercept"]
    assert [step["step"] for step in plan["preprocessing"]] == steps
    assert 0.99 < plan["epsilon"] <= 1
    assert plan["neighboring_relation"] == "add_or_remove_one"
    assert plan["accountants"]["gdp"]["guarantee"] is False
    assert plan["peak_memory_bytes"] > plan["disk_bytes"] > 7700 * 384 * 4


def test_account_poisson(run):
    told = run(
        "account",
        "--design",
        "poisson",
        "--num-records",
        50000,
        "--num-mixtures",
        50000,
        "--mix-size",
        64,
        "--noise-multiplier",
        1.26,
        "--delta",
        "1e-5",
        "--json",
    ).json
    assert told["epsilon"] == pytest.approx(1.0108, rel=0.005)
    assert set(told["accountants"]) >= {"pld", "rdp", "gdp"}
    pld, gdp = told["accountants"]["pld"], told["accountants"]["gdp"]
    assert pld["lower"] <= pld["epsilon"] <= pld["upper"] == told["epsilon"]
    assert gdp["epsilon"] == pytest.approx(1.0, abs=0.002)
    assert gdp["guarantee"] is False
    assert told["accountants"]["rdp"]["guarantee"] is True


@pytest.mark.parametrize(
    "others", [("--design", "poisson"), ("--mix-size", 5), ("--noise-multiplier", 3)]
)
def test_nothing_is_ignored_beside_releases_to_account_for(run, tmp_path, others):
    told = run("account", "--release", tmp_path, "--delta", "1e-5", *others)
    assert told.code == 2
    assert f"{others[0]}: not accepted beside --release" in told.err


def test_account_stratified(run):
    told = run(
        "account",
        "--design",
        "stratified",
        "--rows-per-class",
        1500,
        "--sampling-prob",
        0.0427,
        "--noise-multiplier",
        1.26,
        "--delta",
        "1e-5",
        "--json",
    ).json
    assert told["epsilon"] == pytest.approx(7.604, rel=0.01)
    assert (
        run(
            "account",
            "--design",
            "stratified",
            "--rows-per-class",
            1500,
            "--sampling-prob",
            0.0427,
            "--noise-multiplier",
            1.26,
            "--delta",
            "1e-5",
        ).out.count("yes")
        >= 2
    )


GOLDEN = {
    "signed": (["--num-records", 10000, "--num-mixtures", 10003, "--mix-size", 36,
                "--noise-multiplier", 1], 1.031),
    "hierarchical": (["--num-records", 50000, "--num-mixtures", 50000, "--mix-size", 64,
                      "--class-prob", 0.03, "--noise-multiplier", 1.26], 7.604),
    "hierarchical-random": (["--num-records", 50000, "--num-mixtures", 50000, "--mix-size", 64,
                             "--classes-per-row", 3, "--num-classes", 100, "--eligibility",
                             "random", "--noise-multiplier", 1.26], 7.617),
    "hierarchical-many": (["--num-records", 50000, "--num-mixtures", 50000, "--mix-size", 64,
                           "--class-prob", 0.3, "--noise-multiplier", 1.26], 1.981),
    # one Gaussian with sensitivity 8 under noise 8 / 0.268051: (1, 1e-5)
    "transposed": (["--num-records", 1000, "--num-mixtures", 50000, "--rows-per-record", 64,
                    "--noise-multiplier", 1.26], 1.003),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_account_golden_values(run, name):
    arguments, epsilon = GOLDEN[name]
    told = run("account", "--design", name.split("-")[0], *arguments, "--delta", "1e-5", "--json")
    assert told.code == 0, told.err
    assert told.json["epsilon"] == pytest.approx(epsilon, rel=0.005)
    if name.startswith("hierarchical"):
        claimed = told.json["claimed_by_paper"]
        assert claimed["epsilon"] == pytest.approx(1.011, rel=0.005)
        assert claimed["epsilon_central_limit"] == pytest.approx(1.0, rel=0.005)
        assert claimed["guarantee"] is False
    if name == "transposed":
        assert told.json["accountants"]["gdp"]["guarantee"] is False


def test_account_uniform_and_hybrid(run):
    told = run("account", "--design", "uniform", "--num-records", 5000, "--num-mixtures", 100,
               "--mix-size", 50, "--noise-multiplier", 4, "--delta", "1e-5", "--json").json  # fmt: skip
    readings = told["accountants"]
    assert told["epsilon"] == readings["pld"]["epsilon"] < readings["rdp"]["epsilon"]
    told = run("account", "--design", "hybrid", "--num-records", 5000, "--num-mixtures", 1000,
               "--mix-size", 500, "--feature-budget", 0.3, "--noise-multiplier", 2, "--delta",
               "1e-5", "--json").json  # fmt: skip
    parts = [part["epsilon"] for part in told["components"]]
    assert max(parts) < told["epsilon"] < sum(parts)


def test_releases_and_groups_compose(run, files):
    for name in ("a", "b"):
        run("release", files / "train.parquet", "--label", "label", "--schema",
            files / "schema.json", "--epsilon", 1, "--delta", "1e-5", "--num-mixtures", 20,
            "--out", files / name)  # fmt: skip
    one = run("account", "--release", files / "a", "--delta", "1e-5", "--json").json
    both = run("account", "--release", files / "a", "--release", files / "b", "--delta", "1e-5",
               "--group-size", 2, "--json").json  # fmt: skip
    assert 0.99 < one["epsilon"] <= 1 + 1e-3
    assert one["epsilon"] < both["epsilon"] < 2 * one["epsilon"]
    assert len(both["components"]) == 2
    assert both["group_epsilon"] > both["epsilon"]


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


def test_a_delta_above_one_over_n_is_noted(run):
    assert "above 1 / num_records" in run(*PLAN, "--epsilon", 1, "--delta", 0.02).err
    assert run(*PLAN, "--epsilon", 1, "--delta", "1e-5").err == ""


def test_a_dry_run_reads_checks_and_writes_nothing(run, files):
    before = sorted(files.iterdir())
    told = run(
        "release", files / "train.parquet", "--label", "label", "--schema", files / "schema.json",
        "--epsilon", 2, "--delta", "1e-5", "--out", files / "r", "--dry-run",
    )  # fmt: skip
    assert (told.code, told.out) == (0, "")
    assert "400 records (planned 400), 0.0% clipped" in told.err
    assert "everything is in order; nothing was drawn" in told.err
    assert sorted(files.iterdir()) == before


@pytest.mark.parametrize(("planned", "far"), [(201, False), (199, True), (799, False), (800, True)])
def test_the_holder_is_told_when_the_plan_is_for_others(run, files, planned, far):
    facts = json.loads((files / "schema.json").read_text()) | {"num_records": planned}
    (files / "other.json").write_text(json.dumps(facts))
    told = run(
        "release", files / "train.parquet", "--label", "label", "--schema", files / "other.json",
        "--epsilon", 2, "--delta", "1e-5", "--out", files / "r", "--dry-run",
    )  # fmt: skip
    assert ("far from the plan" in told.err) == far


def test_training_keeps_releases_whole(run, files):
    run(
        "release", files / "train.parquet", "--label", "label", "--schema", files / "schema.json",
        "--epsilon", 2, "--delta", "1e-5", "--num-mixtures", 20, "--test-seed", 3, "--out",
        files / "r",
    )  # fmt: skip
    told = run("train", files / "r", "--out", files / "r" / "m.safetensors")
    assert told.code == 2
    assert "outside of any release" in told.err
    told = run("train", files / "r", "--out", files / "m.safetensors")
    assert told.code == 0
    assert "protects nobody" in told.err
    (files / "r" / "README.md").write_text("another")
    told = run("train", files / "r", "--out", files / "m.safetensors", "--replace")
    assert told.code == 2
    assert "README.md: changed since" in told.err


def test_plan_explains_and_chooses(run):
    told = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", "--explain", "--json")
    found = told.json["alternatives"]
    errors = [alternative["predicted_error"] for alternative in found]
    assert errors == sorted(errors)
    assert {a["design"] for a in found} == {"hybrid", "signed", "poisson", "stratified"}
    table = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", "--explain").out
    assert "centre" in table and "features 0." in table and "balance" in table
    chosen = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", "--design", "auto", "--json").json
    assert chosen["design"] == found[0]["design"]
    assert chosen["epsilon"] <= 1


@pytest.mark.parametrize(
    "others",
    [("--out", "p.json"), ("--design", "poisson"), ("--subspace", 3), ("--mix-size", 5),
     ("--center", 0), ("--class-counts",), ("--noise-multiplier", 3)],
)  # fmt: skip
def test_nothing_is_ignored_beside_explain(run, others):
    told = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", "--explain", *others)
    assert told.code == 2
    assert f"{others[0]}: not accepted beside --explain" in told.err


def test_steps_that_are_given_replace_centring_and_say_so(run):
    plan = (*PLAN, "--epsilon", 1, "--delta", "1e-5", "--design", "signed", "--class-counts")
    assert "replace automatic centring" in run(*plan).err
    assert "replace" not in run(*plan, "--center", 0.01).err


def test_preprocessing_flags_are_steps_in_order(run):
    flags = ("--center", 0.05, "--class-counts", "--subspace", 3, "--design", "signed")
    plan = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", *flags, "--json").json
    names = [step["step"] for step in plan["preprocessing"]]
    assert names == ["center", "unit_norm", "class_counts", "subspace", "unit_norm"]
    assert plan["preprocessing"][0]["budget_share"] == 0.05
    assert plan["num_features"] == 3
    assert 0.99 < plan["epsilon"] <= 1
    shown = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", *flags).out
    assert "center (noise multiplier" in shown and "unit_norm (no cost)" in shown
    plain = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", "--center", 0, "--json").json
    assert plain["preprocessing"] == []
    free = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", "--random-projection", 2, "--json").json
    assert (free["preprocessing"][0]["step"], free["num_features"]) == ("random_projection", 2)


def test_preprocessing_needs_a_budget_to_take_its_share_of(run):
    told = run(*PLAN, "--delta", "1e-5", "--noise-multiplier", 2, "--center", 0.02)
    assert told.code == 2 and "--epsilon" in told.err


def test_version(run):
    told = run("--version")
    assert (told.code, told.out) == (0, f"privmix {privmix.__version__}\n")


def test_an_invalid_release_exits_with_one(run, files):
    run(
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
        "--num-mixtures",
        20,
        "--test-seed",
        3,
        "--out",
        files / "r",
    )
    told = run("verify", files / "r")
    assert told.code == 1
    assert "protects nobody" in told.out
    told = run("verify", files / "r", "--json")
    assert (told.code, told.json["valid"]) == (1, False)


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


def test_progress_on_a_stream_is_plain_lines(capsys, monkeypatch):
    times = iter([10.0, 13.0, 14.0, 23.0])
    monkeypatch.setattr(_common, "monotonic", lambda: next(times))
    printer = _common._LinePrinter("rows")
    for done in (1, 2, 3, 4):
        printer(done, 4)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "2 of 4 rows, 0.33 rows/s, about 6 s left",
        "4 of 4 rows, 0.23 rows/s, about 0 s left",
    ]


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
            (("--features-key", "x"), "--features-key: .*but for an .npz"),
            (("--label-key", "y"), "--label-key: .*but for an .npz"),
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
