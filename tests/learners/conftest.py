"""Small in-memory releases: the mixing of design 4.3 in plain NumPy, not private."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

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
    config: object = None
    tables: tuple = ()
    target: str = "class"
    target_bounds: tuple | None = None

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


def mixed(design, x, y, classes, chosen, *, mix_size, noise, clip_norm, rng, labels=True, **facts):
    """Rows with given weights of the records, (rows, n), and Gaussian noise."""
    label_noise = noise * np.sqrt(2)
    features = chosen @ clip(x, clip_norm)
    features += noise * clip_norm * rng.standard_normal(features.shape)
    weights = chosen @ np.eye(len(classes))[y]
    weights += label_noise * rng.standard_normal(weights.shape)
    if not labels:
        weights = weights[:, :0]
    return FakeRelease(
        design,
        tuple(classes),
        (features / mix_size).astype(np.float32),
        (weights / mix_size).astype(np.float32),
        len(x),
        mix_size,
        mix_size / len(x),
        clip_norm,
        noise * clip_norm / mix_size,
        label_noise / mix_size if labels else None,
        **facts,
    )


def bernoulli(rng, rows, records, prob):
    return (rng.random((rows, records)) < prob).astype(float)


def poisson(x, y, classes, *, rows, mix_size, noise, clip_norm=1.0, seed=0):
    rng = np.random.default_rng(seed)
    chosen = bernoulli(rng, rows, len(x), mix_size / len(x))
    options = {"mix_size": mix_size, "noise": noise, "clip_norm": clip_norm, "rng": rng}
    return mixed("poisson", x, y, classes, chosen, **options)


def signed(x, y, classes, *, rows, mix_size, noise, clip_norm=1.0, seed=0, labels=True):
    rng = np.random.default_rng(seed)
    chosen = bernoulli(rng, rows, len(x), mix_size / len(x))
    chosen *= rng.choice([-1, 1], size=chosen.shape)
    options = {"mix_size": mix_size, "noise": noise, "clip_norm": clip_norm, "rng": rng}
    return mixed("signed", x, y, classes, chosen, **options, labels=labels)


def uniform(x, y, classes, *, rows, mix_size, noise, clip_norm=1.0, seed=0):
    rng = np.random.default_rng(seed)
    order = rng.random((rows, len(x))).argsort(axis=1)
    chosen = (order < mix_size).astype(float)
    options = {"mix_size": mix_size, "noise": noise, "clip_norm": clip_norm, "rng": rng}
    return mixed("uniform", x, y, classes, chosen, **options)


def transposed(x, y, classes, *, rows, mix_size, noise, clip_norm=1.0, seed=0):
    rng = np.random.default_rng(seed)
    per_record = max(1, round(mix_size * rows / len(x)))
    chosen = (rng.random((len(x), rows)).argsort(axis=1) < per_record).T.astype(float)
    mix_size = per_record / rows * len(x)
    options = {"mix_size": mix_size, "noise": noise, "clip_norm": clip_norm, "rng": rng}
    return mixed("transposed", x, y, classes, chosen, **options)


def hierarchical(x, y, classes, *, rows, mix_size, noise, clip_norm=1.0, seed=0, share=0.4):
    """Every row is open to a random set of classes of fixed size: dependent coins."""
    rng = np.random.default_rng(seed)
    count = max(1, round(share * len(classes)))
    share = count / len(classes)
    eligible = rng.random((rows, len(classes))).argsort(axis=1) < count
    chosen = bernoulli(rng, rows, len(x), mix_size / len(x) / share) * eligible[:, y]
    options = {"mix_size": mix_size, "noise": noise, "clip_norm": clip_norm, "rng": rng}
    config = SimpleNamespace(class_prob=share)
    return mixed("hierarchical", x, y, classes, chosen, **options, config=config)


def hybrid(x, y, classes, *, rows, mix_size, noise, clip_norm=1.0, seed=0):
    options = {"noise": noise, "clip_norm": clip_norm, "seed": seed}
    sums = stratified(x, y, classes, rows=1, prob=1.0, **options)
    features = signed(x, y, classes, rows=rows, mix_size=mix_size, **options, labels=False)
    return replace(sums, design="hybrid", tables=(sums, features))


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


MIXED = {
    "hierarchical": hierarchical,
    "hybrid": hybrid,
    "poisson": poisson,
    "signed": signed,
    "transposed": transposed,
    "uniform": uniform,
}


def with_defaults(function, **defaults):
    return lambda x, y, classes, **kw: function(x, y, classes, **defaults | kw)


DESIGNS = {
    name: with_defaults(function, rows=400, mix_size=16.0, noise=0.5)
    for name, function in MIXED.items()
} | {"stratified": with_defaults(stratified, rows=5, noise=1.0)}


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


@dataclass
class Regression:
    """Records of a linear model, and releases of their targets."""

    x: np.ndarray
    z: np.ndarray
    coef: np.ndarray
    bounds: tuple

    def release(self, design, *, rows, mix_size=8.0, noise=1.0, seed=0, **options):
        rng = np.random.default_rng(seed)
        n = len(self.x)
        if design == "uniform":
            chosen = (rng.random((rows, n)).argsort(axis=1) < mix_size).astype(float)
        else:
            chosen = bernoulli(rng, rows, n, mix_size / n)
            if design == "signed":
                chosen *= rng.choice([-1, 1], size=chosen.shape)
        low, high = np.array(self.bounds).T
        scaled = (self.z - (low + high) / 2) / ((high - low) / 2)
        x_noise, z_noise = noise, noise * np.sqrt(2)
        features = chosen @ self.x + x_noise * rng.standard_normal((rows, self.x.shape[1]))
        targets = chosen @ scaled + z_noise * rng.standard_normal((rows, self.z.shape[1]))
        return FakeRelease(
            design,
            tuple(f"output {j}" for j in range(self.z.shape[1])),
            (features / mix_size).astype(np.float32),
            (targets / mix_size).astype(np.float32),
            n,
            mix_size,
            mix_size / n,
            1.0,
            x_noise / mix_size,
            z_noise / mix_size,
            block_rows=500,
            target="regression",
            target_bounds=self.bounds,
            **options,
        )


def regression(seed=0, count=400, intercept=0.1):
    """Two targets in other units; ``intercept`` 0 puts all means at the middle of the bounds."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 5)) * [0.4, 0.3, 0.3, 0.2, 0.2] + intercept
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    coef = np.array([[0.5, -0.3, 0.2, 0, 0.1], [0, 0.4, 0, -0.4, 0.2]])
    scaled = x @ coef.T + 0.1 * rng.standard_normal((count, 2)) + intercept
    return Regression(x, 5 * scaled + 20, 5 * coef, ((15.0, 25.0), (15.0, 25.0)))


@pytest.fixture
def make_regression():
    return regression
