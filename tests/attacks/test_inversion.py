"""Model inversion recovers what nothing protects, and numbers tell a recovery from a guess."""

from __future__ import annotations

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.attacks import invert_rows, nearest_pictures, structural_similarity

torch = pytest.importorskip("torch")


class Rotation:
    """Pixels in another orthonormal basis: nothing is lost, and nothing can be read off."""

    size, channels = 12, 1

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        matrix = np.linalg.qr(random.standard_normal((144, 144)))[0] / 12
        self.matrix = torch.from_numpy(matrix.astype(np.float32))

    def torch_features(self, batch):
        return batch.flatten(1) @ self.matrix


@pytest.fixture(scope="module")
def pictures() -> np.ndarray:
    """Discs of various places and sizes."""
    random = np.random.default_rng(1)
    grid = np.arange(12.0)
    centre, radius = random.uniform(3, 9, (8, 2, 1, 1)), random.uniform(2, 4, (8, 1, 1))
    apart = np.hypot(grid[:, None] - centre[:, 0], grid - centre[:, 1])
    return (apart < radius).astype(np.float32)[:, None]


def rows_of(pictures, images_per_row, stddev=0.0):
    features = Rotation().torch_features(torch.from_numpy(pictures)).numpy()
    rows = features.reshape(-1, images_per_row, 144).mean(axis=1)
    return rows + stddev * np.random.default_rng(2).standard_normal(rows.shape)


def test_a_row_of_one_record_without_noise_gives_it_away(pictures):
    found = invert_rows(rows_of(pictures, 1), Rotation(), images_per_row=1, steps=150)
    assert found.shape == (8, 1, 1, 12, 12)
    assert found.min() >= 0
    assert found.max() <= 1
    assert structural_similarity(pictures, found[:, 0]).mean() > 0.9


def test_noise_and_mixing_hide_it(pictures):
    plain = nearest_pictures(
        pictures, invert_rows(rows_of(pictures, 1), Rotation(), images_per_row=1, steps=100)[:, 0]
    )
    mixed = invert_rows(rows_of(pictures, 8), Rotation(), images_per_row=8, steps=100)
    noisy = invert_rows(rows_of(pictures, 1, stddev=1.0), Rotation(), images_per_row=1, steps=100)
    for worse in (nearest_pictures(pictures, mixed[0]), nearest_pictures(pictures, noisy[:, 0])):
        assert worse.similarity.mean() < plain.similarity.mean() - 0.2
        assert worse.error.mean() > 2 * plain.error.mean()


def test_features_are_clipped_as_records_are(pictures):
    """At a clip norm below all norms only the direction is published, and found."""
    features = Rotation().torch_features(torch.from_numpy(pictures)).numpy()
    rows = 0.1 * features / np.linalg.norm(features, axis=1, keepdims=True)
    found = invert_rows(rows, Rotation(), images_per_row=1, clip_norm=0.1, steps=300)[:, 0]
    cosines = (
        (found * pictures).sum(axis=(1, 2, 3))
        / np.linalg.norm(found.reshape(8, -1), axis=1)
        / np.linalg.norm(pictures.reshape(8, -1), axis=1)
    )
    assert cosines.min() > 0.9


def test_scattering_features_can_be_followed_back():
    scattering = pytest.importorskip("privmix.features.scattering")
    pytest.importorskip("kymatio.scattering2d.frontend.torch_frontend")
    extractor = scattering.ScatteringExtractor(size=12, device="cpu")
    image = np.zeros((1, 1, 12, 12), dtype=np.float32)
    image[0, 0, 3:9, 4:7] = 1
    with torch.no_grad():
        row = extractor.torch_features(torch.from_numpy(image)).numpy()
    same = extractor.transform([np.rint(image[0, 0] * 255).astype(np.uint8)])
    np.testing.assert_allclose(row, same, atol=1e-5)
    turned = torch.from_numpy(image.transpose(0, 1, 3, 2)).transpose(2, 3)  # of other strides
    np.testing.assert_array_equal(extractor.torch_features(turned).numpy(), row)
    steps = []
    found = invert_rows(
        row, extractor, images_per_row=1, steps=20, progress=lambda *done: steps.append(done)
    )
    start = np.random.default_rng(0).random((1, 1, 12, 12))
    assert nearest_pictures(image, found[0]).error < nearest_pictures(image, start).error
    assert steps[-1] == (20, 20)


def test_the_nearest_picture_is_found(rng):
    one = rng.random((4, 1, 12, 12))
    order = np.array([2, 0, 3, 1])
    found = nearest_pictures(one, one[order])
    assert order[found.nearest].tolist() == [0, 1, 2, 3]
    assert found.error.tolist() == [0.0] * 4


def test_what_is_refused(pictures):
    with pytest.raises(InvalidInputError, match="rows: expected finite numbers"):
        invert_rows([[np.nan]], Rotation(), images_per_row=1)
    with pytest.raises(InvalidInputError, match="images_per_row"):
        invert_rows(rows_of(pictures, 1), Rotation(), images_per_row=0)
    with pytest.raises(InvalidInputError, match="recovered: expected pictures of shape"):
        nearest_pictures(pictures, pictures[:, :, 1:])
