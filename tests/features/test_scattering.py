from __future__ import annotations

import numpy as np
import pytest

from extractors import make_images
from privmix.features import make_extractor


def test_scattering_is_grouped_and_of_unit_norm():
    extractor = make_extractor("scattering", size=16, device="cpu")
    features = extractor.transform([*make_images(2, (16, 16)), np.zeros((16, 16), np.uint8)])
    assert features.shape == (3, 81 * 16) and extractor.num_features == 81 * 16
    assert (features[2] == 0).all()  # an image of one colour has nothing to normalise
    np.testing.assert_allclose(np.linalg.norm(features[:2], axis=1), 1 - 1e-6, atol=2e-7)
    assert (np.linalg.norm(features.astype(np.float64), axis=1) <= 1).all()
    groups = features[:2].reshape(2, 27, -1)
    np.testing.assert_allclose(groups.mean(axis=2), 0, atol=1e-6)
    np.testing.assert_allclose(groups.std(axis=2) * np.sqrt(81 * 16), 1, rtol=1e-3)


def test_scattering_against_its_definition():
    """First coefficients: the image through a low-pass filter, so that its mean stays."""
    extractor = make_extractor("scattering", size=16, device="cpu")
    image = make_images(1, (16, 16))[0]
    coefficients = extractor._transform(extractor._prepare(image)[None])[0, 0]
    assert coefficients.shape == (81, 4, 4)
    assert float(coefficients[0].mean()) == pytest.approx(image.mean() / 255, rel=0.02)
