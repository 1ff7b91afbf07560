"""How alike two pictures are."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter

from privmix import _validate

_STDDEV, _RADIUS = 1.5, 5  # of the window: 11 by 11 pixels
_MEAN_CONSTANT, _VARIANCE_CONSTANT = 0.01**2, 0.03**2


def structural_similarity(one: ArrayLike, other: ArrayLike) -> NDArray[np.float64]:
    """Return the mean structural similarity of pictures, pair by pair: 1 for the same, about 0 for noise.

    Windows that reach over the border do not count; channels are averaged.

    Args:
        one: (count, ..., height, width) in [0, 1]; at least 11 pixels either way.
        other: The same shape.

    Returns:
        (count,) numbers from -1 to 1.

    Source: Wang, Bovik, Sheikh & Simoncelli 2004, with their window and constants.

    """
    x, y = (np.asarray(picture, dtype=np.float64) for picture in (one, other))
    if x.shape != y.shape or x.ndim < 3 or min(x.shape[-2:]) <= 2 * _RADIUS:
        _validate.fail("other", "pictures of one shape, of at least 11 by 11 pixels", y.shape)
    mean_x, mean_y = _blurred(x), _blurred(y)
    variance_x, variance_y = _blurred(x * x) - mean_x**2, _blurred(y * y) - mean_y**2
    covariance = _blurred(x * y) - mean_x * mean_y
    similarity = (2 * mean_x * mean_y + _MEAN_CONSTANT) * (2 * covariance + _VARIANCE_CONSTANT)
    similarity /= mean_x**2 + mean_y**2 + _MEAN_CONSTANT
    similarity /= variance_x + variance_y + _VARIANCE_CONSTANT
    inner = similarity[..., _RADIUS:-_RADIUS, _RADIUS:-_RADIUS]
    return np.asarray(inner.reshape(len(x), -1).mean(axis=1))


def _blurred(pictures: NDArray[np.float64]) -> NDArray[np.float64]:
    axes = (pictures.ndim - 2, pictures.ndim - 1)
    return np.asarray(gaussian_filter(pictures, _STDDEV, radius=_RADIUS, axes=axes))
