from __future__ import annotations

import numpy as np
import pytest

from extractors import make_images, save_vision_model
from privmix.features import get_extractor

Image = pytest.importorskip("PIL.Image")


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
