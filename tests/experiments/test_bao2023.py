"""The experiments on DP-Mix, at sizes of a few images, on made-up ones."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments" / "bao2023"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs a checkout with its experiments")


@pytest.fixture(autouse=True)
def digits(tmp_path, monkeypatch):
    """MNIST's layout: a class is the place of a bright square."""
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    parts = {}
    for name, count in (("train", 300), ("test", 100)):
        labels = rng.integers(10, size=count)
        images = rng.integers(60, size=(count, 28, 28))
        for image, label in zip(images, labels, strict=True):
            row, column = divmod(int(label), 4)
            image[2 + 8 * row : 9 + 8 * row, 1 + 7 * column : 7 + 7 * column] += 180
        parts |= {f"x_{name}": images.astype(np.uint8), f"y_{name}": labels.astype(np.uint8)}
    np.savez(tmp_path / "mnist.npz", **parts)
    monkeypatch.setenv("PRIVMIX_DATA", str(tmp_path))
    from experiments.bao2023 import common, linear, order

    kept = (common.read, linear.shared_head, linear.judged_features, order.head_of, order.judges)
    for one in kept:
        one.cache_clear()
    yield
    for one in kept:
        one.cache_clear()


@pytest.fixture
def small():
    from experiments.bao2023.linear import DIGITS, Bench

    return Bench("mnist", None, 100, 40, 60, 2, 2, 1, 50, 6, (4.0,), 1, DIGITS)


def test_every_arm_of_the_linear_tables_trains(small):
    from experiments.bao2023 import linear, table3, table5, table6, table9, table10, table12

    arms = {}
    for script in (table3, table5, table6, table9, table10, table12):
        arms |= script.arms(small)
    assert {"plain", "A", "B", "C", "Pure-DP-Mix-Diff", "Self-Aug, pretrained"} <= set(arms)
    for name in ("plain", "Mixed Ghost", "B", "C", "Self-Aug, pretrained"):
        found = linear.accuracy(small, arms[name], None, 4.0, 0)
        assert found["accuracy"] > 40, name  # chance is 10, and squares are easy


def test_a_head_starts_where_public_images_left_it(small):
    from experiments.bao2023 import linear, table6

    found = linear.accuracy(small, table6.arms(small)["Self-Aug, pretrained"], 8.0, 1e-6, 0)
    coef, intercept = linear.pretrained(small)
    features, labels = linear.judged_features("mnist", None, small.judged)[1]
    due = 100 * np.mean((features @ coef.T + intercept).argmax(axis=1) == labels)
    assert found["accuracy"] == pytest.approx(due)
    assert due > 40


def test_generated_images_are_of_their_classes(small):
    from experiments.bao2023 import linear

    pool, made = small.pool(), linear.generated(small)
    assert made.images.shape == pool.images.shape
    assert np.array_equal(made.labels, pool.labels)
    assert not np.array_equal(made.images, pool.images)
    for label in np.unique(pool.labels):
        means = [part.images[part.labels == label].mean(axis=0) for part in (pool, made)]
        assert np.corrcoef(*(mean.ravel() for mean in means))[0, 1] > 0.7


def test_the_backbone_of_full_size_is_found():
    pytest.importorskip("efficientnet_lite_pytorch")
    import torch
    from experiments.bao2023 import linear

    with torch.inference_mode():
        found = linear.backbone("cifar10", 32).eval()(torch.zeros((1, 3, 32, 32)))
    assert found.shape == (1, 1280)


def test_the_pools_are_disjoint(small):
    records, pool = small.private(), small.pool()
    judges = small.judges()
    seen = [{image.tobytes() for image in part.images} for part in (records, pool, *judges)]
    for i in range(4):
        for j in range(i):
            assert not seen[i] & seen[j]


def test_table_1_has_all_arms_and_doubles_the_noise_of_pairs():
    from experiments.bao2023 import common, table1

    size = table1.QUICK._replace(records=24, judged=20, batch_size=8, epochs=1, num_base=2)
    arms = table1.arms(size)
    assert len(arms) == 6
    found = table1.accuracy(size, arms["mixup", 2], 8.0, 2, 1.0, 0)
    assert 0 <= found["accuracy"] <= 100
    with (FOLDER / "table1.paper.csv").open() as file:
        stated = {(row["method"], int(row["microbatch"])) for row in csv.DictReader(file)}
    assert stated == set(arms)
    records = common.read("mnist", "train").part(0, 24)
    plan = common.training_plan(
        records, arms["mixup", 2], epsilon=8.0, epochs=1, batch_size=8, microbatch_size=2
    )
    assert plan.epsilon <= 8


def test_the_ablation_measures_every_factor(monkeypatch):
    from experiments.bao2023 import order

    full = list(order.settings(quick=False))
    assert len({tuple(key.values()) for key in full}) == len(full)
    assert {key["method"] for key in full} == set(order.METHODS)
    assert {None, 8.0, 2.0, 1.0} == {key["epsilon"] for key in full}
    key = {**next(order.settings(quick=True)), "records": 60, "epochs": 3, "rate": 4.0}
    monkeypatch.setattr(order, "judges", lambda backbone, quick: judged(order, backbone))
    assert order.measure(key, True)["accuracy"] > 20


def judged(order, backbone):
    from experiments.bao2023 import common

    parts = (common.read("mnist", name).part(0, 60) for name in ("train", "test"))
    return [(common.features_of(order.head_of(backbone), part), part.labels) for part in parts]


def test_a_summary_takes_the_rate_from_validation_images_alone():
    from experiments.bao2023 import order

    common = dict(zip(order.KEYS, ("b", "1", "8.0", "10", "1", "plain", "r", "0"), strict=True))
    rows = [
        {**common, "rate": "1.0", "validation": "80", "accuracy": "10"},
        {**common, "rate": "4.0", "validation": "70", "accuracy": "90"},
    ]
    assert [line[-2:] for line in order.summary(rows)] == [("1.0", "10.0 (0.0)")]


def test_figure_2_keeps_histograms(small, tmp_path, monkeypatch):
    from experiments.bao2023 import figure2

    monkeypatch.setattr(figure2, "QUICK", small._replace(records=30, batch_size=15, epochs=2))
    monkeypatch.setattr(sys, "argv", ["figure2", "--quick", "--out", str(tmp_path)])
    figure2.main()
    with (tmp_path / "bao2023" / "figure2-quick.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"plain", "Self-Aug", "DP-Mix-Self", "DP-Mix-Diff"}
    assert all(float(row["stddev"]) > 0 for row in rows.values())
    assert (tmp_path / "bao2023" / "figure2-quick.svg").is_file()


def test_a_table_is_printed_with_the_papers_values(small, tmp_path, monkeypatch, capsys):
    from experiments.bao2023 import linear, table10

    monkeypatch.setattr(sys, "argv", ["table10", "--quick", "--out", str(tmp_path)])
    linear.table(table10.__file__, table10.__doc__, table10.arms, (2.0,), small)
    out = capsys.readouterr().out
    assert "(96.9)" in out and "(97.0)" in out
