"""Image encoders of ``open_clip``, where it is installed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from privmix import _validate
from privmix.features.base import choose_device, load
from privmix.features.images import to_pil
from privmix.features.pretrained import FetchedImageExtractor


@dataclass(eq=False)
class OpenClipExtractor(FetchedImageExtractor):
    """The image embedding of an ``open_clip`` model, as its own transform prepares images.

    Attributes:
        model: Architecture and weights: ``ViT-B-32/laion2b_s34b_b79k``.
        device: Where to run; a GPU where there is one, by default.

    """

    name: ClassVar[str] = "open_clip"
    libraries: ClassVar[tuple[str, ...]] = ("open-clip-torch", "torch")
    allowed: ClassVar[str] = "the architecture and weights of an open_clip model"

    def _processing(self) -> dict[str, str]:
        return {key: str(value) for key, value in self._network.visual.preprocess_cfg.items()}

    @property
    def _network(self) -> Any:
        return self._loaded[0]

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        architecture, _, weights = self.model.partition("/")
        if not weights:
            _validate.fail("model", "ARCHITECTURE/WEIGHTS", repr(self.model))
        network, _, process = self._fetched(
            "open_clip",
            lambda library: library.create_model_and_transforms(architecture, pretrained=weights),
        )
        return network.eval().to(choose_device(self.device)), process

    @cached_property
    def _input_shape(self) -> tuple[int, ...]:
        _, process = self._loaded
        image = load("PIL.Image", "vision")
        return tuple(process(image.new("RGB", (64, 48))).shape)

    def _prepare(self, record: Any) -> Any:
        return self._loaded[1](to_pil(record, 3))

    def _forward(self, batch: Any) -> Any:
        return self._network.encode_image(batch)
