"""Synthetic digits by other methods, at a size for tests and on made-up images."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from privmix.baselines import P3GM, FourierFeatures, HermiteFeatures, MeanEmbedding  # noqa: E402

PATH = Path(__file__).parents[2] / "experiments" / "baselines" / "mnist.py"
pytestmark = pytest.mark.skipif(not PATH.is_file(), reason="needs a checkout with its experiments")


def images(count: int, seed: int):
    """Return bytes, (count, 28, 28): each class has two rows of its own, and black margins at the sides."""
    random = np.random.default_rng(seed)
    y = np.arange(count) % 10
    x = np.zeros((count, 28, 28), dtype=np.uint8)
    x[:, :, 6:22] = random.integers(40, size=(count, 28, 16))
    for row in (2, 3):
        x[np.arange(count), 2 * y + row, 6:22] = random.integers(180, 255, size=(count, 16))
    return x, y.astype(np.uint8)


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    from experiments.baselines import mnist

    parts = zip(("x_train", "y_train", "x_test", "y_test"), (*images(600, 0), *images(100, 1)))
    np.savez(tmp_path / "mnist.npz", **dict(parts))
    monkeypatch.setenv("PRIVMIX_DATA", str(tmp_path))
    monkeypatch.setattr(mnist, "SYNTHETIC", 200)
    return mnist


def tiny(num_records: int, quick: bool):
    steps = {"num_steps": 60 if quick else 80, "hidden_size": 64, "batch_size": 100}
    fourier = FourierFeatures(784, 100, 5.0)
    return {
        "DP-MERF": MeanEmbedding(10, num_records, fourier, **steps),
        "DP-HP": MeanEmbedding(10, num_records, HermiteFeatures(4), **steps),
        "P3GM": P3GM(10, num_records, clip_norm=10.0, num_steps=0, num_directions=12),
    }


def test_every_method_has_a_row_with_the_published_value_beside_it(
    mnist, tmp_path, capsys, monkeypatch
):
    """Images without noise are told apart; nothing that is made would score 10."""
    few = {name: mnist.classifiers(0)[name] for name in ("lda", "gaussian bayes")}
    monkeypatch.setattr(mnist, "classifiers", lambda seed: few)
    monkeypatch.setattr(mnist, "methods", tiny)
    words = ["mnist", "--quick", "--out", str(tmp_path), "--epsilon", "inf"]
    monkeypatch.setattr(sys, "argv", words)
    mnist.main()
    rows = (tmp_path / "baselines" / "mnist-quick.csv").read_text().splitlines()
    header, rows = rows[0].split(","), [row.split(",") for row in rows[1:]]
    assert [row[header.index("method")] for row in rows] == ["DP-MERF", "DP-HP", "P3GM"]
    for name in ("mean", "network"):
        assert all(float(row[header.index(name)]) > 60 for row in rows), name
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_the_published_values_are_found_for_their_rows(mnist, tmp_path, monkeypatch):
    from experiments.harness import Experiment, parser

    experiment = Experiment(
        mnist.__file__,
        ("part", "method", "epsilon", "seed"),
        parser("").parse_args(["--out", str(tmp_path)]),
    )
    for name in mnist.methods(10, quick=True):
        known = {"part": "test", "method": name, "epsilon": "1", "seed": "0"}
        assert float(experiment.expected(known)["mean"]) > 60


def test_records_set_aside_are_in_no_release(mnist, tmp_path):
    """With 10,100 images that differ, 10,000 are left out."""
    x = np.arange(10_100, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    x = np.hstack([x, np.zeros((10_100, 782), dtype=np.uint8)]).reshape(-1, 28, 28)
    y = np.zeros(10_100, dtype=np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x[:3], y_test=y[:3])
    (train, _), (test, _) = mnist.load(development=True)
    assert (len(train), len(test)) == (100, 10_000)
    assert len({row.tobytes() for row in (*train, *test)}) == 10_100


def test_the_ablation_runs_a_variant(mnist):
    from experiments.baselines import ablation

    train, test = mnist.load(development=False)
    found = ablation.spread(train, train)
    assert found == {"within": pytest.approx(1.0), "margin": 0.0}
    small = {"num_steps": 60, "hidden_size": 64, "batch_size": 100, "epsilon": np.inf}
    assert ablation.measured(small, train, test, seed=0)["lda"] > 60


def test_every_variant_is_a_generator(mnist):
    from experiments.baselines import ablation

    for variant in ablation.VARIANTS.values():
        settings = {**ablation.BASE, **variant}
        settings.pop("epsilon", None)
        MeanEmbedding(10, 600, **settings)
