from __future__ import annotations

import numpy as np
import pytest

from extractors import make_images
from privmix.features import make_extractor
from privmix.features.images import to_pil, to_square

Image = pytest.importorskip("PIL.Image")


def test_arrays_and_pil_images_are_the_same():
    array = make_images(1, (8, 8, 3))[0]
    for record in (array, Image.fromarray(array)):
        np.testing.assert_array_equal(
            to_square(record, 8, 3), array.transpose(2, 0, 1) / np.float32(255)
        )
    grey = array[:, :, :1]
    np.testing.assert_array_equal(to_square(grey, 8, 1), to_square(grey[:, :, 0], 8, 1))
    assert to_square(grey, 8, 3).shape == (3, 8, 8)
    assert to_square(array, 5, 1).shape == (1, 5, 5)


@pytest.mark.parametrize(
    "record",
    [np.zeros((8, 8)), np.zeros((8, 8, 2), np.uint8), np.zeros((0, 8), np.uint8), "text"],
)
def test_other_things_are_refused(record):
    with pytest.raises(ValueError, match="a PIL image, or a uint8 array"):
        to_pil(record, 1)
    images = [None, *make_images(300, (8, 8)), record]
    words = r"records\[301\]: expected a PIL image, or a uint8 array"
    for name in ("pixels", "scattering"):
        with pytest.raises(ValueError, match=words):
            make_extractor(name, size=8).transform(images)
