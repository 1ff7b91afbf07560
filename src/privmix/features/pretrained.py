"""What extractors around pretrained image models share: the model by its name, the device, the width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from privmix import _validate
from privmix.features.base import (
    BatchExtractor,
    load,
    make_identity,
    public_model,
    refuse_download,
    weights_digest,
)
from privmix.inputs.extractor import ExtractorIdentity, InputKind


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


@dataclass(eq=False)
class FetchedImageExtractor(PretrainedImageExtractor):
    """Base of extractors whose library fetches a model's weights by its name."""

    libraries: ClassVar[tuple[str, ...]]
    allowed: ClassVar[str]

    @cached_property
    def identity(self) -> ExtractorIdentity:
        """Name, parameters and digest, for the certificate."""
        processing = self._processing()
        return make_identity(
            self.name,
            public_model(self.model),
            weights_digest(self._network),
            libraries=self.libraries,
            processing=processing,
        )

    @property
    def _network(self) -> Any:
        """The model, ready to run."""
        raise NotImplementedError

    def _processing(self) -> dict[str, Any]:
        """Return how images are prepared, as the identity states it."""
        raise NotImplementedError

    def _fetched(self, library: str, make: Callable[[Any], Any]) -> Any:
        """Return what ``make`` makes of the library, unless a download that is not allowed were needed."""
        refuse_download(self.model)
        loaded = load(library, "")
        try:
            return make(loaded)
        except (RuntimeError, OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            _validate.fail(f"model {self.model}", self.allowed, reason)
