"""Image encoders of ``open_clip``, where it is installed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from privmix import _validate
from privmix.features.base import (
    choose_device,
    load,
    make_identity,
    public_model,
    refuse_download,
    weights_digest,
)
from privmix.features.images import to_pil
from privmix.features.pretrained import PretrainedImageExtractor
from privmix.inputs.extractor import ExtractorIdentity


@dataclass(eq=False)
class OpenClipExtractor(PretrainedImageExtractor):
    """The image embedding of an ``open_clip`` model, as its own transform prepares images.

    Attributes:
        model: Architecture and weights: ``ViT-B-32/laion2b_s34b_b79k``.
        device: Where to run; a GPU where there is one, by default.

    """

    name: ClassVar[str] = "open_clip"

    @cached_property
    def identity(self) -> ExtractorIdentity:
        """Name, parameters and digest, for the certificate."""
        network, _ = self._loaded
        stated = {key: str(value) for key, value in network.visual.preprocess_cfg.items()}
        weights = weights_digest(network)
        return make_identity(
            self.name,
            public_model(self.model),
            weights,
            libraries=("open-clip-torch", "torch"),
            processing=stated,
        )

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        architecture, _, weights = self.model.partition("/")
        if not weights:
            _validate.fail("model", "ARCHITECTURE/WEIGHTS", repr(self.model))
        refuse_download(self.model)
        open_clip = load("open_clip", "")
        try:
            network, _, process = open_clip.create_model_and_transforms(
                architecture, pretrained=weights
            )
        except (RuntimeError, OSError, ValueError) as error:
            allowed = "the architecture and weights of an open_clip model"
            _validate.fail(f"model {self.model}", allowed, str(error).strip().splitlines()[0])
        return network.eval().to(choose_device(self.device)), process

    @cached_property
    def _input_shape(self) -> tuple[int, ...]:
        _, process = self._loaded
        image = load("PIL.Image", "vision")
        return tuple(process(image.new("RGB", (64, 48))).shape)

    def _prepare(self, record: Any) -> Any:
        return self._loaded[1](to_pil(record, 3))

    def _forward(self, batch: Any) -> Any:
        return self._loaded[0].encode_image(batch)
