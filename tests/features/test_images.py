from __future__ import annotations

import numpy as np
import pytest

from extractors import make_images, save_vision_model
from privmix.features import get_extractor, make_extractor
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


def test_pixels():
    array = make_images(1, (8, 8, 3))[0]
    features = make_extractor("pixels", size=8, channels=3).transform([array])
    np.testing.assert_allclose(features[0], array.transpose(2, 0, 1).reshape(-1) / 255, atol=1e-7)


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


def test_vision_prepares_images_as_the_processor_does(tmp_path):
    """The features are those that transformers computes by itself."""
    import torch
    import transformers

    folder = save_vision_model(tmp_path / "vit", "vit")
    image = make_images(1, (20, 24, 3))[0]
    features = get_extractor(f"vision:{folder}", device="cpu").transform([image])
    processor = transformers.ViTImageProcessorPil.from_pretrained(folder)
    model = transformers.ViTModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        inputs = processor(images=[Image.fromarray(image)], return_tensors="pt")
        due = model(**inputs).pooler_output.numpy()
    np.testing.assert_allclose(features, due, atol=1e-5)
