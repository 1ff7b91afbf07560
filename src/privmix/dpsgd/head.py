"""A linear classifier on a frozen backbone as a source of clipped gradient sums: the fast path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.dpsgd.augmentation import (
    Samples,
    complete,
)
from privmix.dpsgd.grid import ExactSum, HeadGrid
from privmix.dpsgd.linear_head import clipped_head_sum
from privmix.dpsgd.modules import (
    Buffers,
    check_device,
    check_memoryless,
    failures_refused,
    module_digest,
    require_module,
)
from privmix.dpsgd.private_views import PrivateViews
from privmix.dpsgd.training_plan import TrainingConfig
from privmix.dpsgd.training_records import require

if TYPE_CHECKING:
    from torch import Tensor, nn

FeatureCache = Literal["none", "views", "base"]
FEATURE_CACHES: tuple[FeatureCache, ...] = ("none", "views", "base")
_BLOCK_ROWS = 4096  # views whose features are held at once


class LinearHead:
    """A linear classifier on a frozen, public backbone: the fast path.

    Args:
        backbone: A module from (count, *input_shape) to (count, width), used without gradients and
            in evaluation mode; None for records that are features already. It must be public.
        feature_cache: ``none``: augmentations are drawn afresh and go through the backbone in every
            step. ``views``: an approximation that draws each record's augmentations once and keeps
            their features for all steps. ``base``: an approximation that keeps the features of each
            record's base views and of the synthetic images, and mixes *features* afresh in every
            step. Views that are kept are a fixed function of the record, so that they serve several
            trainings with the same head. Privacy is the same for all.
        device: Where the backbone and the products run.
        initial: Public weights (num_classes, width) and intercepts (num_classes,) to start from, in place of
            zeros: what was learnt from public examples, say. They must owe nothing to private records; the
            certificate does not name them.

    """

    kind: Literal["linear_head"] = "linear_head"

    def __init__(
        self,
        backbone: nn.Module | None = None,
        *,
        feature_cache: FeatureCache = "none",
        device: Any = "cpu",
        initial: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        require("torch")
        self.backbone, self.device = backbone, device
        self.initial = None if initial is None else _initial(*initial)
        self.feature_cache: FeatureCache = feature_cache
        self.cache: dict[bytes, Samples] = {}  # private: features of records
        _validate.one_of("feature_cache", feature_cache, FEATURE_CACHES)
        if backbone is None and feature_cache != "none":
            _validate.fail("feature_cache", "none without a backbone", feature_cache)
        if backbone is not None:
            require_module("backbone", backbone)
            backbone.eval().to(device)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is kept of private records: a pickled head or classifier may be shared."""
        return self.__dict__ | {"cache": {}}

    @property
    def architecture(self) -> str:
        """Name of the backbone's class."""
        return "identity" if self.backbone is None else type(self.backbone).__name__

    def digest(self) -> bytes:
        """Return a SHA-256 of the backbone's weights."""
        return module_digest(self.backbone)

    def check(self, config: TrainingConfig) -> None:
        """Refuse a plan that this model cannot follow."""
        check_device(self.device)
        if config.microbatch_size != 1:
            _validate.fail("microbatch_size", "1 for a linear head", config.microbatch_size)
        if self.backbone is None and len(config.input_shape) != 1:
            shape = config.input_shape
            _validate.fail("backbone", f"a module, for records of shape {shape}", "none")
        if self.feature_cache == "base" and config.augmentation.mix == "cutmix":
            _validate.fail("feature_cache", "none or views with cutmix", "base")
        if self.backbone is not None:
            self.backbone.eval()
            with failures_refused("backbone", f"one for records of shape {config.input_shape}"):
                self.num_features(config)
                check_memoryless("backbone", self.backbone, self.features, config, self.device)

    def num_features(self, config: TrainingConfig) -> int:
        """Width of the backbone's output, found with a blank input."""
        import torch

        found = self.features(torch.zeros((2, *config.input_shape), device=self.device))
        shape = tuple(found.shape)
        if len(shape) != 2 or shape[0] != 2 or not shape[1]:
            _validate.fail("backbone", "a module with outputs of shape (count, width)", shape)
        return shape[1]

    def initial_parameters(self, config: TrainingConfig) -> NDArray[np.float64]:
        """Return the public weights to start from, the intercepts last in each row; or zeros."""
        shape = config.num_classes, self.num_features(config) + 1
        if self.initial is None:
            return np.zeros(shape[0] * shape[1])
        if self.initial.shape != shape:
            found = (self.initial.shape[0], self.initial.shape[1] - 1)
            allowed = f"weights of shape {(shape[0], shape[1] - 1)}, one intercept for each row"
            _validate.fail("initial", allowed, f"shape {found}")
        return self.initial.reshape(-1).copy()

    def features(self, inputs: Tensor) -> Tensor:
        """Run the backbone, without gradients."""
        import torch

        with torch.inference_mode():
            return inputs if self.backbone is None else self.backbone(inputs).float()

    def bind(self, views: PrivateViews, num_parameters: int) -> HeadGradients:
        """Attach private records."""
        return HeadGradients(self, views, num_parameters)

    def state(
        self, config: TrainingConfig, parameters: NDArray[np.float64]
    ) -> dict[str, NDArray[Any]]:
        """Return the tensors to keep."""
        weights = parameters.reshape(config.num_classes, -1)
        return {"coef": weights[:, :-1].copy(), "intercept": weights[:, -1].copy()}

    def scores(self, inputs: Tensor, state: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return (count, num_classes) scores under kept tensors."""
        features = self.features(inputs).double().cpu().numpy()
        return np.asarray(features @ state["coef"].T + state["intercept"])


class HeadGradients:
    """Clipped sums of a linear head; see :class:`GradientSource`."""

    def __init__(self, head: LinearHead, views: PrivateViews, num_parameters: int) -> None:
        config = views.config
        self._head, self._views, self._config = head, views, config
        self._head_grid = HeadGrid(
            config.clip_norm, config.augmentation.num_augmentations, num_parameters
        )
        self.grid = self._head_grid.published
        self._synthetic = views.synthetic
        self._buffers = Buffers(head.backbone)
        self._backbone_digest = b"" if head.feature_cache == "none" else head.digest()
        if head.feature_cache == "base" and views.synthetic is not None:
            images = views.synthetic.inputs
            # Public images, one at a time for a fixed shape.
            features = [self._run(image[None]) for image in images]
            self._synthetic = Samples(_concatenated(features), views.synthetic.targets)

    def clipped_sum(
        self, indices: NDArray[np.int32], step: int, parameters: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """See :class:`GradientSource`."""
        import torch

        config = self._config
        weights = parameters.reshape(config.num_classes, -1)
        total = ExactSum(torch.empty(weights.shape, device=self._views.device))
        rows = max(1, _BLOCK_ROWS // config.augmentation.num_augmentations)
        for start in range(0, len(indices), rows):
            # One after another: a module may keep something of its input while it runs, which a
            # second thread would take for its own record's.
            parts = [self._features(int(record), step) for record in indices[start : start + rows]]
            features = torch.stack([part.inputs for part in parts])
            targets = torch.stack([part.targets for part in parts])
            clipped_head_sum(
                features, targets, weights, self._head_grid, total, config.class_weight
            )
        return total.shifted(self._head_grid.shift).reshape(-1)

    def mean_gradients(
        self, indices: NDArray[np.int32], step: int, parameters: NDArray[np.float64]
    ) -> Iterator[Tensor]:
        """See :class:`GradientSource`."""
        import torch

        weights = torch.as_tensor(parameters, device=self._views.device)
        weights = weights.reshape(self._config.num_classes, -1)
        for index in indices:
            features, targets = self._features(int(index), step)
            inputs = torch.cat([features.double(), features.new_ones(len(features), 1)], dim=1)
            residuals = torch.softmax(inputs @ weights.T, dim=1) - targets
            if (counts := self._config.class_weight) is not None:
                residuals = (
                    residuals * (targets.double() @ targets.new_tensor(counts).double())[:, None]
                )
            yield (residuals.T @ inputs / len(inputs)).reshape(-1)

    def _features(self, record: int, step: int) -> Samples:
        """Return (K, width) features of a record's augmentations: one call of a fixed shape."""
        views, head = self._views, self._head
        if head.feature_cache == "none":
            inputs, targets = views.of(record, views.generator(record, step))
            return Samples(self._run(inputs), targets)
        name = views.name(record)
        place = self._backbone_digest + head.feature_cache.encode() + name
        if place not in head.cache:
            make = views.of if head.feature_cache == "views" else views.base
            inputs, targets = make(record, views.fixed_generator(name))
            head.cache[place] = Samples(self._run(inputs), targets)
        cached = head.cache[place]
        if head.feature_cache == "views":
            return cached
        return Samples(
            *complete(cached, views.plan, views.generator(record, step), self._synthetic)
        )

    def _run(self, inputs: Tensor) -> Tensor:
        """Return the backbone's features; the backbone is then what it was before."""
        try:
            return self._head.features(inputs)
        finally:
            self._buffers.restore()


def _initial(coef: ArrayLike, intercept: ArrayLike) -> NDArray[np.float64]:
    try:
        found = np.column_stack([np.asarray(part, dtype=np.float64) for part in (coef, intercept)])
    except (TypeError, ValueError):
        found = None
    if (
        found is None
        or np.ndim(coef) != 2
        or np.ndim(intercept) != 1
        or not np.isfinite(found).all()
    ):
        allowed = "finite weights (num_classes, width) and intercepts (num_classes,)"
        _validate.fail("initial", allowed, f"shapes {np.shape(coef)} and {np.shape(intercept)}")
    return found


def _concatenated(tensors: list[Tensor]) -> Tensor:
    import torch

    return torch.cat(tensors)
