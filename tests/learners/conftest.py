"""Small in-memory releases: the mixing of design 4.3 in plain NumPy, not private."""

from dataclasses import dataclass

import numpy as np
import pytest


@dataclass
class FakeRelease:
    design: str
    classes: tuple
    features: np.ndarray
    label_values: np.ndarray
    num_records: int
    mix_size: float
    sampling_prob: float
    feature_clip_norm: float
    feature_noise_stddev: float
    label_noise_stddev: float | None
    certificate_digest: str | None = "ab" * 32
    block_rows: int = 37

    @property
    def num_classes(self):
        return len(self.classes)

    @property
    def num_features(self):
        return self.features.shape[1]

    @property
    def num_mixtures(self):
        return len(self.features)

    def iter_blocks(self):
        for start in range(0, self.num_mixtures, self.block_rows):
            rows = slice(start, start + self.block_rows)
            yield self.features[rows], self.label_values[rows]


def clip(x, clip_norm):
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x * np.minimum(1, clip_norm / np.maximum(norms, 1e-300))


def poisson(x, y, classes, *, rows, mix_size, noise, clip_norm=1.0, seed=0):
    rng = np.random.default_rng(seed)
    prob = mix_size / len(x)
    chosen = (rng.random((rows, len(x))) < prob).astype(float)
    label_noise = noise * np.sqrt(2)
    features = chosen @ clip(x, clip_norm) + noise * clip_norm * rng.standard_normal(
        (rows, x.shape[1])
    )
    weights = chosen @ np.eye(len(classes))[y]
    weights += label_noise * rng.standard_normal(weights.shape)
    return FakeRelease(
        "poisson",
        tuple(classes),
        (features / mix_size).astype(np.float32),
        (weights / mix_size).astype(np.float32),
        len(x),
        mix_size,
        prob,
        clip_norm,
        noise * clip_norm / mix_size,
        label_noise / mix_size,
    )


def stratified(x, y, classes, *, rows, noise, prob=0.5, clip_norm=1.0, seed=0):
    rng = np.random.default_rng(seed)
    mix_size = prob * len(x) / len(classes)
    clipped, features, labels = clip(x, clip_norm), [], []
    for k in range(len(classes)):
        chosen = (rng.random((rows, len(x))) < prob) & (y == k)
        features.append(chosen @ clipped)
        labels += [k] * rows
    sums = np.concatenate(features)
    sums += noise * clip_norm * rng.standard_normal(sums.shape)
    return FakeRelease(
        "stratified",
        tuple(classes),
        (sums / mix_size).astype(np.float32),
        np.array(labels),
        len(x),
        mix_size,
        prob,
        clip_norm,
        noise * clip_norm / mix_size,
        None,
    )


DESIGNS = {
    "poisson": lambda x, y, classes, **kw: poisson(
        x, y, classes, **{"rows": 400, "mix_size": 16.0, "noise": 0.5} | kw
    ),
    "stratified": lambda x, y, classes, **kw: stratified(
        x, y, classes, **{"rows": 5, "noise": 1.0} | kw
    ),
}


@pytest.fixture(params=sorted(DESIGNS))
def design(request):
    """A function that releases (x, y, classes) under each design."""
    return DESIGNS[request.param]


@pytest.fixture
def designs():
    return DESIGNS


def blobs(num_classes=4, num_features=12, num_records=1200, spread=0.3, seed=1):
    """Records around well separated class means; norms vary around 1."""
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((num_classes, num_features)) / np.sqrt(num_features)
    y = rng.integers(num_classes, size=num_records)
    x = means[y] + spread * rng.standard_normal((num_records, num_features)) / np.sqrt(num_features)
    return x, y


@pytest.fixture
def make_blobs():
    return blobs
