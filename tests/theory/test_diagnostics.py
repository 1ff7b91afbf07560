import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.theory.diagnostics import label_histogram, mixed_distances, neural_collapse


def data(num_classes=4, width=6, count=400, spread=0.3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(count) % num_classes
    x = 2 * np.eye(num_classes, width)[y] + spread * rng.standard_normal((count, width))
    return x, y


def test_neural_collapse_equals_the_papers_formula():
    x, y = data()
    means = np.array([x[y == k].mean(0) for k in range(4)])
    within = (x - means[y]).T @ (x - means[y]) / len(x)
    between = (means - x.mean(0)).T @ (means - x.mean(0)) / 4
    expected = np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / 4
    assert neural_collapse(x, y) == pytest.approx(expected, rel=1e-9)
    assert neural_collapse(1e6 * x, y) == pytest.approx(expected, rel=1e-9)
    assert neural_collapse(x, np.array(list("abcd"))[y]) == pytest.approx(expected, rel=1e-9)


def test_neural_collapse_extremes():
    x, y = data(spread=0.0)
    assert neural_collapse(x, y) == pytest.approx(0, abs=1e-20)
    assert neural_collapse(np.tile([[1.0], [-1.0]], (8, 1)), np.arange(16) // 8) == np.inf
    assert neural_collapse(*data(spread=0.1)) < neural_collapse(*data(spread=0.5))


def test_distances_equal_brute_force():
    x, y = data(count=40)
    found = mixed_distances(x, y, mix_size=2, num_mixtures=30, clip_norm=1.0, seed=3)
    clipped = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    rng = np.random.default_rng(3)
    for distance in found:
        chosen = rng.choice(40, 2, replace=False)
        others = ~np.isin(y, y[chosen])
        gaps = np.linalg.norm(clipped[others] - clipped[chosen].mean(0), axis=1)
        assert distance == pytest.approx(gaps.min())


def test_a_mixture_of_all_classes_has_no_other():
    x, y = data(num_classes=2, count=20)
    assert np.isinf(mixed_distances(x, y, mix_size=20, num_mixtures=3)).all()


def test_histogram():
    found = label_histogram([[0.0, 1.0], [0.1, 0.9]], bins=2)
    assert found.counts.tolist() == [2, 2]
    np.testing.assert_allclose(found.edges, [0, 0.5, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: neural_collapse(x[0], y), "features"),
        (lambda x, y: neural_collapse(x, y[:3]), "features"),
        (lambda x, y: neural_collapse(np.where(x > 1, np.nan, x), y), "finite"),
        (lambda x, y: neural_collapse(x, 0 * y), "two distinct"),
        (lambda x, y: mixed_distances(x, y, mix_size=401), "mix_size"),
        (lambda x, y: mixed_distances(x, y, clip_norm=float("nan")), "clip_norm"),
        (lambda x, y: mixed_distances(x, y, num_mixtures=0), "num_mixtures"),
        (lambda x, y: label_histogram(x[0]), "label_weights"),
        (lambda x, y: label_histogram(x, bins=0), "bins"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(*data())


@pytest.mark.parametrize("offset", [1e4, 1e6, 1e8])
def test_what_all_records_have_in_common_is_no_matter(offset):
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    x = rng.standard_normal((300, 8)) + 2 * rng.standard_normal((3, 8))[labels]
    assert neural_collapse(x + offset, labels) == pytest.approx(
        neural_collapse(x, labels), rel=1e-5
    )
    np.testing.assert_allclose(
        mixed_distances(x + offset, labels), mixed_distances(x, labels), rtol=1e-5
    )
