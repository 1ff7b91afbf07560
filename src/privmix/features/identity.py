"""Feature vectors as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.features.base import BaseExtractor, WrongRecord, make_identity
from privmix.inputs.extractor import ExtractorIdentity, InputKind


@dataclass(eq=False)
class IdentityExtractor(BaseExtractor):
    """Vectors of a fixed width, passed on as float32.

    Attributes:
        width: Numbers in a vector.

    """

    name: ClassVar[str] = "identity"
    kind: ClassVar[InputKind] = "vector"
    width: int

    def __post_init__(self) -> None:
        _validate.integer("width", self.width)

    @property
    def num_features(self) -> int:
        """Width of a feature vector."""
        return self.width

    @cached_property
    def identity(self) -> ExtractorIdentity:
        """Name, parameters and digest, for the certificate."""
        return make_identity(self.name, {"width": self.width})

    def _features(self, records: Sequence[Any]) -> NDArray[np.float32]:
        features = np.empty((len(records), self.width), dtype=np.float32)
        for row, record in enumerate(records):
            vector = np.asarray(record)
            if vector.shape != (self.width,) or vector.dtype.kind not in "fiub":
                allowed = f"{self.width} real numbers"
                raise WrongRecord(record, allowed, f"{vector.dtype} of shape {vector.shape}")
            features[row] = vector
        return features
