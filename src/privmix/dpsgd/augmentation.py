"""Augmentations of one record: self-augmentations, synthetic images, mixtures of both.

Everything made of a record is a function of that record, of public synthetic images, and of random
words of its own: no other record enters, and no other record changes it by a bit. Its gradients are
averaged and clipped once, so that the sensitivity is that of a single gradient, however many
augmentations there are (DP-Mix, section 3.1, Algorithm 1).

``torch`` is imported when the first record is augmented.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator, model_validator

from privmix import _validate
from privmix._validate import FrozenModel

if TYPE_CHECKING:
    from torch import Tensor

Transform = Literal["crop", "flip", "jitter", "affine", "cutout", "noise", "blur", "sobel"]
TRANSFORMS: tuple[Transform, ...] = (
    "crop",
    "flip",
    "jitter",
    "affine",
    "cutout",
    "noise",
    "blur",
    "sobel",
)

MOST_BASE_VIEWS = 10_000
_JITTER = 0.4  # brightness, contrast and saturation within 1 +- this
_HUE = 0.1  # of the colour circle
_DEGREES = 15.0
_SHIFT = 0.1  # of the image's side
_CUTOUT = 0.5  # side of the blank square, of the image's
_NOISE_STDDEV = 0.05
_BLUR_SIGMA = 0.1, 2.0


class AugmentationPlan(FrozenModel):
    """How many augmentations of each kind a record is turned into in every step.

    Attributes:
        num_base: Self-augmentations of the record, K_base; 0 for ``pure_diff``.
        num_synthetic: Synthetic public images drawn at random, K_diff.
        num_mixed: Mixtures of two random members of the set of the two kinds above, K_self.
        mix: ``mixup`` (weighted averages) or ``cutmix`` (a rectangle of the one in the other).
        mix_alpha: Both parameters of the beta distribution of a mixture's weight.
        transforms: What a self-augmentation consists of, in this order. Without any it is the
            record itself.
        crop_padding: Pixels of reflected border that random crops may reach into.
        random_transforms: Of these, each self-augmentation is put through one more, drawn at random.

    """

    _omitted_if_default: ClassVar[tuple[str, ...]] = ("random_transforms",)

    num_base: int = 16
    num_synthetic: int = 0
    num_mixed: int = 0
    mix: Literal["mixup", "cutmix"] = "mixup"
    mix_alpha: float = 0.2
    transforms: tuple[Transform, ...] = ("crop", "flip")
    crop_padding: int = 4
    random_transforms: tuple[Transform, ...] = ()

    @field_validator("num_base", "num_synthetic", "num_mixed", mode="before")
    @classmethod
    def _check_counts(cls, value: object, info: Any) -> int:
        return _validate.integer(info.field_name, value, at_least=0, at_most=MOST_BASE_VIEWS)

    @field_validator("crop_padding", mode="before")
    @classmethod
    def _check_padding(cls, value: object) -> int:
        return _validate.integer("crop_padding", value, at_least=0)

    @field_validator("mix_alpha", mode="before")
    @classmethod
    def _check_alpha(cls, value: object) -> float:
        return _validate.real("mix_alpha", value, at_least=1e-3, at_most=1e6)

    @field_validator("transforms", "random_transforms", mode="before")
    @classmethod
    def _check_transforms(cls, value: object, info: Any) -> object:
        names = tuple(value) if isinstance(value, list | tuple) else ()
        texts = isinstance(value, list | tuple) and all(isinstance(name, str) for name in names)
        if not texts or len(set(names)) != len(names):
            _validate.fail(info.field_name, "a list of distinct transforms", repr(value)[:80])
        for name in names:
            _validate.one_of(info.field_name, name, TRANSFORMS)
        return names

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.num_base + self.num_synthetic == 0:
            _validate.fail("num_base + num_synthetic", "at least 1 augmentation (K)", 0)
        return self

    def check_mixtures(self, num_records: int = 1) -> None:
        """Refuse mixtures where what is made of ``num_records`` records has no two members to mix."""
        if self.num_mixed and num_records * self.num_base + self.num_synthetic < 2:
            _validate.fail("num_mixed", "0 for a single augmentation", self.num_mixed)

    @classmethod
    def plain(cls) -> AugmentationPlan:
        """Plain DP-SGD: the record itself, K = 1."""
        return cls(num_base=1, transforms=())

    @classmethod
    def self_aug(cls, num_base: int = 16, **options: Any) -> AugmentationPlan:
        """Self-augmentations only (De et al. 2022)."""
        return cls(num_base=num_base, **options)

    @classmethod
    def dp_mix_self(
        cls, num_base: int = 16, num_mixed: int = 18, **options: Any
    ) -> AugmentationPlan:
        """DP-Mix-Self: self-augmentations and mixtures of them."""
        return cls(num_base=num_base, num_mixed=num_mixed, **options)

    @classmethod
    def dp_mix_diff(
        cls, num_base: int = 16, num_mixed: int = 18, num_synthetic: int = 2, **options: Any
    ) -> AugmentationPlan:
        """DP-Mix-Diff: as DP-Mix-Self, with synthetic images in the set that is mixed."""
        return cls(num_base=num_base, num_mixed=num_mixed, num_synthetic=num_synthetic, **options)

    @classmethod
    def pure_diff(
        cls, num_synthetic: int = 18, num_mixed: int = 18, **options: Any
    ) -> AugmentationPlan:
        """Pure DP-Mix-Diff (K_base = 0): synthetic images and their mixtures alone."""
        return cls(num_base=0, num_mixed=num_mixed, num_synthetic=num_synthetic, **options)

    @classmethod
    def mixup_of_pairs(cls, **options: Any) -> AugmentationPlan:
        """Mixup across records, for microbatches of 2: both records and one mixture of them."""
        return cls(num_base=1, num_mixed=1, **{"transforms": (), **options})

    @property
    def all_transforms(self) -> tuple[Transform, ...]:
        """Everything that a self-augmentation may be put through."""
        return tuple(dict.fromkeys(self.transforms + self.random_transforms))

    @property
    def num_augmentations(self) -> int:
        """Number of augmentations of a record, K = K_base + K_diff + K_self."""
        return self.num_base + self.num_synthetic + self.num_mixed

    def check_input(self, shape: tuple[int, ...], num_synthetic_images: int) -> None:
        """Refuse inputs that the plan cannot be applied to.

        Args:
            shape: Shape of a record: (channels, height, width), or (features,).
            num_synthetic_images: Size of the synthetic set; 0 without one.

        """
        if len(shape) != 3 and self.all_transforms:
            named = ", ".join(self.all_transforms)
            _validate.fail("transforms", f"none for records of shape {shape}", named)
        if len(shape) != 3 and self.num_mixed and self.mix == "cutmix":
            _validate.fail("mix", f"mixup for records of shape {shape}", self.mix)
        if "crop" in self.all_transforms and self.crop_padding >= min(shape[1:]):
            allowed = f"fewer pixels than an image's side, {min(shape[1:])}"
            _validate.fail("crop_padding", allowed, self.crop_padding)
        if "jitter" in self.all_transforms and shape[0] != 3:
            _validate.fail("transforms", "jitter for images of 3 channels only", shape[0])
        if self.num_synthetic and not num_synthetic_images:
            _validate.fail("synthetic", "synthetic images, for num_synthetic above 0", "none")
        if num_synthetic_images and not self.num_synthetic:
            _validate.fail("synthetic", "nothing for num_synthetic = 0", "synthetic images")


class Augmented(NamedTuple):
    """The augmentations of one record: inputs (K, ...), and their targets (K, classes)."""

    inputs: Tensor
    targets: Tensor


class Samples(NamedTuple):
    """Public examples: inputs (count, ...) and targets (count, classes)."""

    inputs: Tensor
    targets: Tensor


def augment(
    record: Tensor,
    target: Tensor,
    plan: AugmentationPlan,
    generator: np.random.Generator,
    synthetic: Samples | None = None,
) -> Augmented:
    """Turn one record into its augmentations.

    Args:
        record: A float tensor of shape (channels, height, width) with values from 0 to 1, or
            (features,).
        target: (classes,) one-hot or soft label.
        plan: What to make.
        generator: The record's own randomness in this step.
        synthetic: Public examples for ``num_synthetic``.

    Returns:
        ``plan.num_augmentations`` inputs: base, synthetic, mixed, in this order.

    """
    plan.check_mixtures()
    base = base_views(record, plan, generator)
    return complete(Samples(base, target.expand(len(base), -1)), plan, generator, synthetic)


def check_augmentation(plan: AugmentationPlan, shape: tuple[int, ...], device: Any) -> None:
    """Try a plan on a blank record: what a transform cannot do is told before anything is spent."""
    import torch

    blank, target = torch.zeros(shape, device=device), torch.ones(1, device=device)
    public = Samples(blank[None], target[None])
    # Every random transform is tried, not only the one that is drawn.
    tried = plan.model_copy(update={"transforms": plan.all_transforms, "random_transforms": ()})
    try:
        views = base_views(blank, tried, np.random.default_rng(0))
        both = Samples(torch.cat([views, views]), target.expand(2 * len(views), -1))
        complete(both, plan, np.random.default_rng(0), public)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        _validate.fail("transforms", f"some that apply to records of shape {shape}", reason)


def base_views(record: Tensor, plan: AugmentationPlan, generator: np.random.Generator) -> Tensor:
    """Return the ``num_base`` self-augmentations of a record, (num_base, ...)."""
    views = record.expand(plan.num_base, *record.shape)
    if not plan.num_base:
        return views
    if (moves := {"crop", "flip"} & set(plan.transforms)) != set():
        views = _crop_and_flip(record, plan, moves, generator)
    for name in plan.transforms:
        if name not in ("crop", "flip"):
            views = _TRANSFORM[name](views, generator)
    return _one_more(views, plan, generator) if plan.random_transforms else views


def _one_more(views: Tensor, plan: AugmentationPlan, generator: np.random.Generator) -> Tensor:
    """Put each view through one of ``random_transforms``."""
    import torch

    names = plan.random_transforms
    chosen = [names[place] for place in generator.integers(len(names), size=len(views))]
    alone = {
        name: plan.model_copy(
            update={"num_base": 1, "transforms": (name,), "random_transforms": ()}
        )
        for name in names
    }
    return torch.cat(
        [base_views(view, alone[name], generator) for view, name in zip(views, chosen, strict=True)]
    )


def complete(
    base: Samples,
    plan: AugmentationPlan,
    generator: np.random.Generator,
    synthetic: Samples | None,
) -> Augmented:
    """Add random synthetic examples to a record's base views, then mixtures of random pairs."""
    import torch

    inputs, targets = base
    if plan.num_synthetic:
        assert synthetic is not None
        chosen = _tensor(
            generator.integers(len(synthetic.inputs), size=plan.num_synthetic), inputs.device
        )
        inputs = torch.cat([inputs, synthetic.inputs[chosen].to(inputs.dtype)])
        targets = torch.cat([targets, synthetic.targets[chosen]])
    if not plan.num_mixed:
        return Augmented(inputs.contiguous(), targets.contiguous())
    first, second = _pairs(generator, len(inputs), plan.num_mixed, inputs.device)
    weights = generator.beta(plan.mix_alpha, plan.mix_alpha, size=plan.num_mixed)
    if plan.mix == "cutmix":
        mixed, weights = _cutmix(inputs[first], inputs[second], weights, generator)
        shares = _tensor(weights, inputs.device, inputs.dtype)
    else:
        shares = _tensor(weights, inputs.device, inputs.dtype)
        share = shares.reshape(-1, *[1] * (inputs.ndim - 1))
        mixed = share * inputs[first] + (1 - share) * inputs[second]
    share = shares[:, None].to(targets.dtype)
    mixed_targets = share * targets[first] + (1 - share) * targets[second]
    return Augmented(torch.cat([inputs, mixed]), torch.cat([targets, mixed_targets]))


def _tensor(values: NDArray[Any], device: Any, dtype: Any = None) -> Tensor:
    import torch

    return torch.as_tensor(values, device=device, dtype=dtype)


def _pairs(
    generator: np.random.Generator, count: int, num_pairs: int, device: Any
) -> tuple[Tensor, Tensor]:
    """Draw pairs of distinct members of a set of ``count``."""
    first = generator.integers(count, size=num_pairs)
    second = (first + generator.integers(1, count, size=num_pairs)) % count
    return _tensor(first, device), _tensor(second, device)


def _crop_and_flip(
    record: Tensor, plan: AugmentationPlan, moves: set[str], generator: np.random.Generator
) -> Tensor:
    """Shift within a reflected border and mirror, all views in one gather."""
    count, (height, width) = plan.num_base, record.shape[1:]
    padding = plan.crop_padding if "crop" in moves else 0
    offsets = generator.integers(-padding, padding + 1, size=(2, count, 1))
    rows = _reflect(np.arange(height) + offsets[0], height)
    columns = _reflect(np.arange(width) + offsets[1], width)
    if "flip" in moves:
        mirrored = generator.integers(2, size=(count, 1)) == 1
        columns = np.where(mirrored, columns[:, ::-1], columns)
    picked = record[
        :, _tensor(rows, record.device)[:, :, None], _tensor(columns, record.device)[:, None, :]
    ]
    return picked.movedim(1, 0)


def _reflect(places: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Fold places less than ``size`` beyond an edge back, not repeating the edge itself."""
    return np.asarray((size - 1) - np.abs((size - 1) - np.abs(places)))


def _uniform(
    generator: np.random.Generator, low: float, high: float, views: Tensor, *shape: int
) -> Tensor:
    drawn = generator.uniform(low, high, size=(len(views), *shape))
    return _tensor(drawn, views.device, views.dtype)


def _jitter(views: Tensor, generator: np.random.Generator) -> Tensor:
    from kornia import enhance

    brightness, contrast, saturation = (
        _uniform(generator, 1 - _JITTER, 1 + _JITTER, views) for _ in range(3)
    )
    views = (views * brightness[:, None, None, None]).clamp(0, 1)
    mean = views.mean(dim=(1, 2, 3), keepdim=True)
    views = (mean + contrast[:, None, None, None] * (views - mean)).clamp(0, 1)
    views = enhance.adjust_saturation(views, saturation)
    return enhance.adjust_hue(views, _uniform(generator, -_HUE, _HUE, views) * 2 * math.pi)


def _affine(views: Tensor, generator: np.random.Generator) -> Tensor:
    """Rotate and translate, with reflected borders."""
    import torch
    from torch.nn import functional

    angle = _uniform(generator, -_DEGREES, _DEGREES, views) * (math.pi / 180)
    shift = _uniform(generator, -2 * _SHIFT, 2 * _SHIFT, views, 2)
    cosine, sine = torch.cos(angle), torch.sin(angle)
    rows = [
        torch.stack([cosine, -sine, shift[:, 0]], 1),
        torch.stack([sine, cosine, shift[:, 1]], 1),
    ]
    grid = functional.affine_grid(torch.stack(rows, 1), list(views.shape), align_corners=False)
    return functional.grid_sample(views, grid, padding_mode="reflection", align_corners=False)


def _cutout(views: Tensor, generator: np.random.Generator) -> Tensor:
    """Blank a square about a random centre."""
    height, width = views.shape[2:]
    inside = _boxes(generator, len(views), height, width, np.full(len(views), _CUTOUT), views)
    return views.masked_fill(inside, 0.0)


def _boxes(
    generator: np.random.Generator,
    count: int,
    height: int,
    width: int,
    side: NDArray[np.float64],
    like: Tensor,
) -> Tensor:
    """Mark rectangles about random centres, ``side`` of the image's sides, cut at its edges."""

    def run(size: int) -> NDArray[np.bool_]:
        centre = generator.integers(size, size=(count, 1))
        half = np.rint(side * size / 2)[:, None]
        places = np.arange(size)
        return np.asarray((places >= centre - half) & (places < centre + half))

    rows, columns = run(height), run(width)
    return _tensor(rows[:, None, :, None] & columns[:, None, None, :], like.device)


def _noise(views: Tensor, generator: np.random.Generator) -> Tensor:
    drawn = generator.standard_normal(tuple(views.shape), dtype=np.float32)
    return (views + _NOISE_STDDEV * _tensor(drawn, views.device, views.dtype)).clamp(0, 1)


def _blur(views: Tensor, generator: np.random.Generator) -> Tensor:
    from kornia import filters

    size = max(3, min(views.shape[2:]) // 10 | 1)
    sigma = _uniform(generator, *_BLUR_SIGMA, views, 1).expand(-1, 2)
    return filters.gaussian_blur2d(views, (size, size), sigma)


def _sobel(views: Tensor, generator: np.random.Generator) -> Tensor:
    """Replace each view by its edges, with probability one half."""
    import torch
    from kornia import filters

    chosen = _tensor(generator.integers(2, size=len(views)) == 1, views.device)
    return torch.where(chosen[:, None, None, None], filters.sobel(views), views)


_TRANSFORM: dict[str, Any] = {
    "jitter": _jitter,
    "affine": _affine,
    "cutout": _cutout,
    "noise": _noise,
    "blur": _blur,
    "sobel": _sobel,
}


def _cutmix(
    first: Tensor, second: Tensor, weights: NDArray[np.float64], generator: np.random.Generator
) -> tuple[Tensor, NDArray[np.float64]]:
    """Paste a rectangle of ``second`` into ``first``; the weight becomes the area that is left."""
    import torch

    height, width = first.shape[2:]
    inside = _boxes(generator, len(first), height, width, np.sqrt(1 - weights), first)
    pasted = inside.double().mean(dim=(1, 2, 3)).cpu().numpy()
    return torch.where(inside, second, first), 1 - pasted
