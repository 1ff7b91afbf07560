"""What extractors around pretrained image models share: the model by its name, the device, the width."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from privmix.features.base import BatchExtractor
from privmix.inputs.extractor import InputKind


@dataclass(eq=False)
class PretrainedImageExtractor(BatchExtractor):
    """Base of extractors that run a pretrained network on images.

    Attributes:
        model: The model's name, or a folder, as the library that has it takes it.
        device: Where to run; a GPU where there is one, by default.

    """

    kind: ClassVar[InputKind] = "image"
    batch_size: ClassVar[int] = 8
    model: str
    device: str | None = None

    @cached_property
    def num_features(self) -> int:
        """Width of a feature vector."""
        return self._trial_width
