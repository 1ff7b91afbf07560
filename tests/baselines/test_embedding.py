"""Class sums of embedded records, and the generator that learns from them."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from privmix import InvalidInputError  # noqa: E402
from privmix.baselines import FourierFeatures, HermiteFeatures, MeanEmbedding  # noqa: E402


@pytest.mark.parametrize("features", [FourierFeatures(784, 30, 10.0), HermiteFeatures(3)])
def test_a_record_changes_the_sums_by_its_own_integers_and_by_nothing_else(features):
    """In batches, rounding depends on the companions: a tail of few wide records showed it."""
    x = np.random.default_rng(0).uniform(size=(21, 784))
    y = np.zeros(21, dtype=np.int64)
    method = MeanEmbedding(2, 20, features)
    whole, without, own = (
        method._sums(x[s], y[s])[0] for s in (slice(21), slice(20), slice(20, 21))
    )
    np.testing.assert_array_equal(whole - without, own)


def test_a_generator_learns_the_classes_apart():
    random = np.random.default_rng(1)
    y = random.integers(2, size=400)
    x = np.where(y[:, None] == 1, 0.8, 0.2) + 0.05 * random.normal(size=(400, 2))
    method = MeanEmbedding(2, 400, FourierFeatures(2, 50, 0.5), num_steps=150, batch_size=100)
    made = method.release(x, y, target_epsilon=8.0, target_delta=1e-5, test_seed=0)
    rows, labels = made.records(200)
    right = (rows.mean(axis=1) > 0.5) == (labels[:, 1] == 1)
    assert right.mean() > 0.95


def test_images_are_drawn_by_a_convolutional_generator():
    random = np.random.default_rng(1)
    y = random.integers(2, size=200)
    x = np.clip(np.where(y[:, None] == 1, np.arange(64) < 32, np.arange(64) >= 32), 0.1, 0.9)
    method = MeanEmbedding(
        2, 200, HermiteFeatures(4), num_steps=60, batch_size=100, hidden_size=32, image_side=8
    )
    made = method.release(x, y, target_epsilon=50.0, target_delta=1e-5, test_seed=0)
    rows, labels = made.records(100)
    right = (rows[:, :32].mean(axis=1) > rows[:, 32:].mean(axis=1)) == (labels[:, 1] == 1)
    assert rows.shape == (100, 64) and right.mean() > 0.95


@pytest.mark.parametrize("side", [7, 12])
def test_a_side_that_does_not_fit_is_refused(side):
    method = MeanEmbedding(2, 10, HermiteFeatures(2), image_side=side)
    with pytest.raises(InvalidInputError, match="image_side"):
        method.release(np.zeros((10, 49)), np.zeros(10, int), target_epsilon=1.0, target_delta=1e-5)


@pytest.mark.parametrize(
    ("options", "width", "words"),
    [
        ({}, 6, "features"),
        ({}, 4, "features"),
        ({"batch_size": 1}, 5, "batch_size"),
        ({"code_size": 0}, 5, "code_size"),
        ({"code_size": 2.5}, 5, "code_size"),
        ({"num_steps": 0}, 5, "num_steps"),
        ({"learning_rate": 0.0}, 5, "learning_rate"),
        ({"low": float("nan")}, 5, "low"),
        ({"high": -1.0}, 5, "high"),
    ],
)
def test_what_the_map_or_the_generator_cannot_do_is_refused_before_noise_is_drawn(
    options, width, words, monkeypatch
):
    """Records of another width would be read beyond their end."""
    monkeypatch.setattr("privmix.baselines.embedding.noisy", None)  # nothing gets so far
    method = MeanEmbedding(2, 40, FourierFeatures(5, 8), **options)
    x, y = np.zeros((40, width)), np.arange(40) % 2
    with pytest.raises(InvalidInputError, match=words):
        method.release(x, y, target_epsilon=1.0, target_delta=1e-5)
