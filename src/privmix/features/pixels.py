"""Pixels as features, as DPMix mixes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.features.base import BaseExtractor, make_identity
from privmix.features.images import check_geometry, to_square
from privmix.inputs.extractor import ExtractorIdentity, InputKind


@dataclass(eq=False)
class PixelExtractor(BaseExtractor):
    """Pixel values in [0, 1], channel by channel; norms are at most sqrt(num_features).

    Attributes:
        size: Height and width; images of another size are resized (bicubic).
        channels: 1 for grey, 3 for colour.

    """

    name: ClassVar[str] = "pixels"
    kind: ClassVar[InputKind] = "image"
    size: int = 28
    channels: int = 1

    def __post_init__(self) -> None:
        check_geometry(self.size, self.channels)

    @property
    def num_features(self) -> int:
        """Width of a feature vector."""
        return self.channels * self.size**2

    @property
    def norm_bound(self) -> float:
        """The largest L2 norm that a vector can have."""
        return math.sqrt(self.num_features)

    @cached_property
    def identity(self) -> ExtractorIdentity:
        """Name, parameters and digest, for the certificate."""
        return make_identity(self.name, {"size": self.size, "channels": self.channels})

    def _features(self, records: Sequence[Any]) -> NDArray[np.float32]:
        return np.stack([to_square(r, self.size, self.channels).reshape(-1) for r in records])
