"""Decode images under public limits, one at a time."""

from __future__ import annotations

import io
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.inputs.raw.blocks import BadRecord, Limits

# Formats of photographs and scans. Others run interpreters (EPS) or are rarely fuzzed.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_GREY_MODES = ("1", "L", "LA")
_DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L")


def to_image(item: Any, limits: Limits) -> NDArray[np.uint8]:
    """Return a (height, width, 1 or 3) uint8 array.

    Args:
        item: Encoded bytes, a path, Hugging Face's {"bytes", "path"}, whose path is read where there
            are no bytes, a PIL image, an array (height, width[, channels]) or a torch tensor
            (channels, height, width) or (height, width). Arrays hold uint8, or floats in [0, 1]. Grey stays grey; palettes and
            transparency become plain colours; an animation is its first frame; a camera's
            orientation mark is obeyed.
        limits: Public bounds on size.

    Raises:
        BadRecord: No image, a damaged one, or one beyond the limits.

    """
    if isinstance(item, dict):
        item = item.get("path") if item.get("bytes") is None else item["bytes"]
    if item is None:
        raise BadRecord("an image", "nothing")
    if isinstance(item, str | Path):
        item = _read(Path(item), limits)
    if isinstance(item, bytes | bytearray | memoryview):
        return _decode(bytes(item), limits)
    if hasattr(item, "convert") and hasattr(item, "mode"):
        with _decoding(limits):  # opened does not mean decoded
            return _pixels(item, limits)
    if hasattr(item, "detach"):
        try:
            item = item.detach().cpu().numpy()
        except (TypeError, RuntimeError):  # bfloat16, sparse or quantised ones
            raise BadRecord("a tensor that NumPy can hold", f"one of {item.dtype}") from None
        item = np.moveaxis(item, 0, -1) if item.ndim == 3 else item
    try:
        array = np.asarray(item)
    except ValueError:
        raise BadRecord("an image", "rows of different lengths") from None
    return np.asarray(_array(array, limits), dtype=np.uint8)


def _read(path: Path, limits: Limits) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # of a pipe, reading would not end
            raise BadRecord("a file that can be read", "something else")
        with path.open("rb") as file:
            return file.read(limits.max_image_bytes + 1)
    except OSError as error:
        raise BadRecord("a file that can be read", error.strerror) from None
    except ValueError:  # a NUL, or a lone surrogate
        raise BadRecord("a file that can be read", "a path that no file has") from None


def _decode(data: bytes, limits: Limits) -> NDArray[np.uint8]:
    if len(data) > limits.max_image_bytes:
        raise BadRecord(f"at most {limits.max_image_bytes} bytes", "more")
    with (
        _decoding(limits) as pil,
        pil.open(io.BytesIO(data), formats=FORMATS) as image,
    ):
        return _pixels(image, limits)


@contextmanager
def _decoding(limits: Limits) -> Iterator[Any]:
    """Yield Pillow; whatever it makes of damaged data is a bad record."""
    pil = _pil()
    with warnings.catch_warnings():
        # The size is judged by our limit, before anything is decoded; Pillow's other remarks on an
        # odd file are no news.
        warnings.simplefilter("ignore")
        try:
            yield pil
        except BadRecord:
            raise
        except pil.DecompressionBombError:
            raise BadRecord(f"at most {limits.max_image_pixels} pixels", "far more") from None
        except Exception as error:  # Pillow's decoders raise nearly anything on damaged data
            reason = f"a damaged image, or no image ({type(error).__name__})"
            raise BadRecord(f"an image ({', '.join(FORMATS)})", reason) from None


def _pixels(image: Any, limits: Limits) -> NDArray[np.uint8]:
    from PIL import ImageOps

    _check_size(image.height, image.width, limits)
    if image.mode in _DEEP_MODES:
        raise BadRecord("8 bits a channel", f"mode {image.mode}")
    turned = ImageOps.exif_transpose(image)
    grey = turned.mode in _GREY_MODES
    pixels = np.asarray(turned.convert("L" if grey else "RGB"))
    return pixels[:, :, None] if grey else pixels


def _array(array: NDArray[Any], limits: Limits) -> Any:
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 3):
        raise BadRecord("shape (height, width) or (height, width, 1 or 3)", str(array.shape))
    _check_size(array.shape[0], array.shape[1], limits)
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        raise BadRecord("uint8 values, or floats in [0, 1]", str(array.dtype))
    if not ((array >= 0) & (array <= 1)).all():  # NaN fails this
        raise BadRecord("uint8 values, or floats in [0, 1]", "a value outside")
    return np.rint(array * 255)


def _check_size(height: int, width: int, limits: Limits) -> None:
    if min(height, width) < 1 or height * width > limits.max_image_pixels:
        raise BadRecord(f"1 to {limits.max_image_pixels} pixels", f"{height} x {width}")
    if max(height, width) > limits.max_image_aspect * min(height, width):
        allowed = f"a long side of at most {limits.max_image_aspect} times the short one"
        raise BadRecord(allowed, f"{height} x {width}")


def _pil() -> Any:
    try:
        from PIL import Image
    except ImportError:
        _validate.fail("images", "an installed Pillow: pip install 'privmix[vision]'", "none")
    return Image
