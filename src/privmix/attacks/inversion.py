"""Model inversion: pictures from the features of mixed rows, by regularised maximum likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.attacks.similarity import structural_similarity
from privmix.features.base import load

Pictures = NDArray[np.float32]

_SMOOTHING = 1e-8  # the root of the total variation has no gradient at 0


class ImageExtractor(Protocol):
    """An extractor of images that torch can follow back: ``scattering``, say."""

    @property
    def size(self) -> int:
        """Height and width."""

    @property
    def channels(self) -> int:
        """1 for grey, 3 for colour."""

    def torch_features(self, batch: Any, /) -> Any:
        """Map (count, channels, size, size) in [0, 1] to (count, d), with gradients."""


def invert_rows(
    rows: ArrayLike,
    extractor: ImageExtractor,
    *,
    images_per_row: int,
    clip_norm: float = 1.0,
    steps: int = 5000,
    learning_rate: float = 0.1,
    variation_weight: float = 1e-4,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Pictures:
    """Recover pictures whose mean features explain each published row.

    The attacker knows the rows, the extractor, the clip norm and the mix size, and of pictures that they are
    smooth. From uniform noise, Adam minimises

        || row - mean_i clip(f(x_i)) ||^2 + variation_weight * mean_i TV(x_i)

    over pictures x_i in [0, 1], to which every step is held.

    Args:
        rows: (rows, d) published features: sums over the mix size.
        extractor: The public extractor f.
        images_per_row: The mix size.
        clip_norm: L2 bound of a record's features.
        steps: Of Adam.
        learning_rate: Of Adam.
        variation_weight: Of the total variation, the sum over pixels of the gradient's length.
        seed: Of the first pictures.
        progress: Called with (steps done, steps).

    Returns:
        (rows, images_per_row, channels, size, size) pictures. Needs torch.

    Source: He, Zhang & Lee 2019, as DPFMix (appendix G) and NeuroMixGDP (appendix K) use it; the
    defaults are theirs.

    """
    torch = load("torch", "torch")
    target = np.array(rows, dtype=np.float32)
    if target.ndim != 2 or not np.isfinite(target).all():
        _validate.fail("rows", "finite numbers of shape (rows, d)", f"shape {target.shape}")
    count = _validate.integer("images_per_row", images_per_row)
    _validate.real("clip_norm", clip_norm, above=0.0)
    shape = (len(target), count, extractor.channels, extractor.size, extractor.size)
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.rand(shape, generator=generator).requires_grad_()
    wanted = torch.from_numpy(target)
    optimiser = torch.optim.Adam([pictures], lr=learning_rate)
    for step in range(_validate.integer("steps", steps)):
        optimiser.zero_grad()
        features = extractor.torch_features(pictures.flatten(0, 1))
        norms = features.norm(dim=1, keepdim=True).clamp_min(1e-30)
        features = features * (clip_norm / norms).clamp_max(1.0)
        means = features.unflatten(0, shape[:2]).mean(dim=1)
        loss = (wanted - means).square().sum()
        loss = loss + variation_weight / count * _total_variation(pictures)
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            pictures.clamp_(0.0, 1.0)
        if progress is not None:
            progress(step + 1, steps)
    found: Pictures = pictures.detach().numpy()
    return found


def _total_variation(pictures: Any) -> Any:
    down = pictures[..., 1:, :-1] - pictures[..., :-1, :-1]
    right = pictures[..., :-1, 1:] - pictures[..., :-1, :-1]
    return (down.square() + right.square() + _SMOOTHING).sqrt().sum()


class Recovery(NamedTuple):
    """How near the recovered pictures come to each original.

    Attributes:
        nearest: (originals,) which recovered picture has the smallest error.
        error: (originals,) root of its mean squared error.
        similarity: (originals,) its structural similarity.

    """

    nearest: NDArray[np.intp]
    error: NDArray[np.float64]
    similarity: NDArray[np.float64]


def nearest_pictures(originals: ArrayLike, recovered: ArrayLike) -> Recovery:
    """Compare each original with the recovered picture nearest to it.

    A picture of no original is near to some by chance: compare with the recovery of as many pictures that
    were not there.

    Args:
        originals: (count, ..., height, width) in [0, 1].
        recovered: (pictures, ..., height, width) in [0, 1].

    """
    real, made = (np.asarray(one, dtype=np.float64) for one in (originals, recovered))
    if real.ndim < 3 or real.shape[1:] != made.shape[1:] or not len(made):
        _validate.fail("recovered", f"pictures of shape {real.shape[1:]}", made.shape)
    flat, others = real.reshape(len(real), -1), made.reshape(len(made), -1)
    errors = np.sqrt(((flat[:, None] - others[None]) ** 2).mean(axis=2))
    nearest = errors.argmin(axis=1)
    return Recovery(nearest, errors.min(axis=1), structural_similarity(real, made[nearest]))
