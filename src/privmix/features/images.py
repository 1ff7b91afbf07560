"""Images as extractors take them: NumPy arrays and PIL images, converted one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.features.base import WrongRecord, load

_ALLOWED = "a PIL image, or a uint8 array of shape (height, width) or (height, width, 1 or 3)"


def to_pil(record: Any, channels: int) -> Any:
    """Return a record as a PIL image in grey (1 channel) or in colour (3); WrongRecord if it is none."""
    given = record
    image = load("PIL.Image", "vision")
    if not isinstance(record, image.Image):
        array = record if isinstance(record, np.ndarray) else None
        if array is None or array.dtype != np.uint8 or not array.size:
            found = type(record).__name__ if array is None else f"{array.dtype} {array.shape}"
            raise WrongRecord(given, _ALLOWED, found)
        if array.ndim == 3 and array.shape[2] == 1:
            array = array[:, :, 0]
        if not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)):
            raise WrongRecord(given, _ALLOWED, f"shape {array.shape}")
        record = image.fromarray(np.ascontiguousarray(array))
    mode = "L" if channels == 1 else "RGB"
    return record if record.mode == mode else record.convert(mode)


def to_square(record: Any, size: int, channels: int) -> NDArray[np.float32]:
    """Return a record as (channels, size, size) in [0, 1], resized where it has another size."""
    image = to_pil(record, channels)
    if image.size != (size, size):
        image = image.resize((size, size), load("PIL.Image", "vision").Resampling.BICUBIC)
    return channels_first(image)


def channels_first(image: Any) -> NDArray[np.float32]:
    """Return a grey or colour PIL image as (channels, height, width) in [0, 1]."""
    pixels = np.asarray(image, dtype=np.float32) / np.float32(255)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def check_geometry(size: int, channels: int) -> None:
    """Check the parameters ``size`` and ``channels`` of an extractor."""
    _validate.integer("size", size, at_most=4096)
    if channels not in (1, 3):
        _validate.fail("channels", "1 (grey) or 3 (colour)", channels)
