"""Pretrained vision models of ``timm``, where it is installed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from privmix.features.base import choose_device, load
from privmix.features.images import to_pil
from privmix.features.pretrained import FetchedImageExtractor


@dataclass(eq=False)
class TimmExtractor(FetchedImageExtractor):
    """The pooled output before the classifier of a ``timm`` model.

    Images are prepared as the model's pretrained configuration says.

    Attributes:
        model: A model's name in ``timm``, such as ``resnet18.a1_in1k``.
        device: Where to run; a GPU where there is one, by default.

    """

    name: ClassVar[str] = "timm"
    libraries: ClassVar[tuple[str, ...]] = ("timm", "torch")
    allowed: ClassVar[str] = "the name of a pretrained timm model"

    def _processing(self) -> dict[str, Any]:
        return {key: value for key, value in self._settings.items() if key != "crop_mode"}

    @cached_property
    def _network(self) -> Any:
        network = self._fetched(
            "timm", lambda library: library.create_model(self.model, pretrained=True, num_classes=0)
        )
        return network.eval().to(choose_device(self.device))

    @cached_property
    def _settings(self) -> dict[str, Any]:
        network = self._network  # refused, where it would be fetched
        return dict(load("timm.data", "").resolve_data_config({}, model=network))

    @cached_property
    def _process(self) -> Any:
        return load("timm.data", "").create_transform(**self._settings, is_training=False)

    @property
    def _input_shape(self) -> tuple[int, ...]:
        return tuple(self._settings["input_size"])

    def _prepare(self, record: Any) -> Any:
        return self._process(to_pil(record, 3))

    def _forward(self, batch: Any) -> Any:
        return self._network(batch)
