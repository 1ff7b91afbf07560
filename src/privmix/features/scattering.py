"""The scattering transform: a fixed convolutional network without learnt weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from privmix import _validate
from privmix.features.base import BatchExtractor, choose_device, load, make_identity
from privmix.features.images import check_geometry, to_square
from privmix.inputs.extractor import ExtractorIdentity, InputKind

_GROUPS = 27


@dataclass(eq=False)
class ScatteringExtractor(BatchExtractor):
    """Scattering coefficients of depth 2 over 4 pixels and 8 angles, normalised in groups.

    An image gives 81 maps of (size / 4)^2 for each of its channels. They are divided into 27 groups
    in order, and each group is brought to mean 0 and variance 1, by that image alone (Tramer & Boneh
    2021, group normalisation); then the vector is scaled to norm 1.

    Attributes:
        size: Height and width, a multiple of 4; images of another size are resized (bicubic).
        channels: 1 for grey, 3 for colour.
        device: Where to run; a GPU where there is one, by default.

    """

    name: ClassVar[str] = "scattering"
    kind: ClassVar[InputKind] = "image"
    batch_size: ClassVar[int] = 32
    size: int = 28
    channels: int = 1
    device: str | None = None

    def __post_init__(self) -> None:
        check_geometry(self.size, self.channels)
        if self.size % 4 or self.size < 8:
            _validate.fail("size", "a multiple of 4 of at least 8", self.size)

    @property
    def num_features(self) -> int:
        """Width of a feature vector."""
        return self.channels * 81 * (self.size // 4) ** 2

    @property
    def norm_bound(self) -> float:
        """The largest L2 norm that a vector can have."""
        return 1.0

    @cached_property
    def identity(self) -> ExtractorIdentity:
        """Name, parameters and digest, for the certificate."""
        parameters: dict[str, Any] = {"size": self.size, "channels": self.channels}
        libraries = ("kymatio", "torch")
        return make_identity(
            self.name, parameters, libraries=libraries, scale=2, angles=8, groups=_GROUPS
        )

    @property
    def _input_shape(self) -> tuple[int, ...]:
        return self.channels, self.size, self.size

    @cached_property
    def _transform(self) -> Any:
        # kymatio.torch would import its 3-D part, which needs a function that SciPy 1.17 removed.
        module = load("kymatio.scattering2d.frontend.torch_frontend", "vision")
        transform = module.ScatteringTorch2D(J=2, shape=(self.size, self.size), L=8)
        return transform.to(choose_device(self.device))

    def _prepare(self, record: Any) -> Any:
        return load("torch", "vision").from_numpy(to_square(record, self.size, self.channels))

    def _forward(self, batch: Any) -> Any:
        groups = self._transform(batch).reshape(len(batch), _GROUPS, -1)
        groups = groups - groups.mean(dim=2, keepdim=True)
        groups = groups / (groups.square().mean(dim=2, keepdim=True) + 1e-10).sqrt()
        flat = groups.reshape(len(batch), -1)
        # A hair below 1: rounding must not make a vector longer than the clip norm.
        return flat * ((1 - 1e-6) / flat.norm(dim=1, keepdim=True).clamp_min(1e-30))
