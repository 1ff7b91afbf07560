from __future__ import annotations

import numpy as np

from extractors import make_images
from privmix.features import make_extractor


def test_pixels():
    array = make_images(1, (8, 8, 3))[0]
    features = make_extractor("pixels", size=8, channels=3).transform([array])
    np.testing.assert_allclose(features[0], array.transpose(2, 0, 1).reshape(-1) / 255, atol=1e-7)
