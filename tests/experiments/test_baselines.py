"""Synthetic digits by other methods, at a size for tests and on made-up images."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from privmix.baselines import P3GM, FourierFeatures, HermiteFeatures, MeanEmbedding

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

    (x, y), (other, labels) = images(600, 0), images(100, 1)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=other, y_test=labels)
    monkeypatch.setenv("PRIVMIX_DATA", str(tmp_path))
    monkeypatch.setattr(mnist, "SYNTHETIC", 600)
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
    """Images that tell nothing of the classes would score 10."""
    few = {"lda": mnist.classifiers(0)["lda"]}
    monkeypatch.setattr(mnist, "classifiers", lambda seed: few)
    monkeypatch.setattr(mnist, "methods", tiny)
    words = ["mnist", "--quick", "--out", str(tmp_path), "--epsilon", "inf"]
    monkeypatch.setattr(sys, "argv", words)
    mnist.main()
    rows = (tmp_path / "baselines" / "mnist-quick.csv").read_text().splitlines()
    header, rows = rows[0].split(","), [row.split(",") for row in rows[1:]]
    assert [row[header.index("method")] for row in rows] == ["DP-MERF", "DP-HP", "P3GM"]
    assert all(float(row[header.index("lda")]) > 30 for row in rows)
    assert all(0 <= float(row[header.index("network")]) <= 100 for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_the_published_values_are_found_for_their_rows(mnist, tmp_path, monkeypatch):
    from experiments.harness import Experiment, parser

    experiment = Experiment(
        mnist.__file__,
        ("part", "method", "epsilon", "seed"),
        parser("Test").parse_args(["--out", str(tmp_path)]),
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


def test_the_ablation_runs_a_variant(mnist, monkeypatch):
    from experiments.baselines import ablation

    train, test = mnist.load(development=False)
    found = ablation.spread(train, train)
    assert found == {"within": pytest.approx(1.0), "margin": 0.0}
    monkeypatch.setattr(ablation, "SYNTHETIC", 200)
    monkeypatch.setattr(ablation, "QUICK", ("lda",))
    small = {"num_steps": 60, "hidden_size": 64, "batch_size": 100, "epsilon": np.inf}
    assert ablation.measured(small, train, test, seed=0)["lda"] > 60


def test_every_variant_is_a_generator(mnist):
    from experiments.baselines import ablation

    for variant in ablation.VARIANTS.values():
        settings = {**ablation.BASE, **variant}
        settings.pop("epsilon", None)
        MeanEmbedding(10, 600, **settings)


def test_the_kernel_is_the_published_one_with_a_fifth_of_its_degrees(mnist):
    """Order 100 and squared length 0.005, whose rho is sqrt(1 + 0.005^2) - 0.005, on numbers from 0 to 1."""
    x = np.linspace(0, 1, 101)[:, None]
    rho = np.sqrt(1 + 0.005**2) - 0.005
    due, found = (
        features.embed(x) for features in (HermiteFeatures(100, rho, 1.0), mnist.PUBLISHED)
    )
    np.testing.assert_allclose(found @ found.T, due @ due.T, atol=0.025)
