"""Models as sources of clipped gradient sums: a head on a frozen backbone, or a whole network.

What is done in floating point is done for one record at a time, in calls of a fixed shape, so that
it is a function of that record alone; what crosses records is exact (see ``grid`` and
``linear_head``). That makes the sensitivity a fact about bits and not about real numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.dpsgd.augmentation import (
    AugmentationPlan,
    Augmented,
    Samples,
    augment,
    base_views,
    complete,
)
from privmix.dpsgd.grid import ClippedSum, ExactSum, HeadGrid, SumGrid, network_grid
from privmix.dpsgd.linear_head import clipped_head_sum
from privmix.dpsgd.modules import (
    Buffers,
    check_device,
    check_memoryless,
    check_module,
    failures_refused,
    module_digest,
    require_module,
)
from privmix.dpsgd.training_plan import TrainingConfig
from privmix.dpsgd.training_records import TrainingRecords, as_tensor, require
from privmix.rng import KeyStream, MasterKey

if TYPE_CHECKING:
    from torch import Tensor, nn

FeatureCache = Literal["none", "views", "base"]
FEATURE_CACHES: tuple[FeatureCache, ...] = ("none", "views", "base")
_BLOCK_ROWS = 4096  # views whose features are held at once


class GradientSource(Protocol):
    """Private records and a model: yields clipped sums."""

    grid: SumGrid

    def clipped_sum(
        self, units: NDArray[np.int32], step: int, parameters: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Sum clipped mean gradients exactly, in points of ``grid``; private without noise.

        Args:
            units: The records of the step (pairs of them, in microbatches of 2).
            step: Number of the step; randomness is keyed by it and by the record.
            parameters: (num_parameters,).

        Sums over disjoint sets of records add up to the sum over their union: bit for bit for a
        network, so that several processes may share a step; for a head, whose sums are rounded once
        more, within a point each.

        """

    def mean_gradients(
        self, units: NDArray[np.int32], step: int, parameters: NDArray[np.float64]
    ) -> Iterator[Tensor]:
        """Yield each record's mean gradient before clipping: private, for research only."""


class PrivateViews:
    """Augmentations of private records, keyed by record and step."""

    def __init__(
        self,
        records: TrainingRecords,
        config: TrainingConfig,
        key: MasterKey,
        synthetic: Samples | None,
        device: Any,
    ) -> None:
        import torch

        records.check_sampled()
        self.records, self.config, self.device = records, config, device
        self.plan: AugmentationPlan = config.augmentation
        self.synthetic = synthetic
        self._key = key
        self._one_hot = torch.eye(config.num_classes, device=device)

    def generator(self, record: int, step: int) -> np.random.Generator:
        """Return the record's own generator; no guarantee rests on its distribution."""
        return _generator(self._key.stream("augment", shard=record, block=step))

    @cached_property
    def _salt(self) -> bytes:
        hasher = hashlib.sha256(self.plan.model_dump_json().encode())
        hasher.update(repr((self.config.classes, self.config.input_shape)).encode())
        for tensor in self.synthetic or ():
            hasher.update(tensor.cpu().contiguous().numpy().data)
        return hasher.digest()

    def name(self, record: int) -> bytes:
        """Return a digest of a record, of its augmentation and its classes, of synthetic images."""
        hasher = hashlib.sha256(self._salt + self.records.inputs[record].tobytes())
        hasher.update(f"{self.records.inputs.dtype} ".encode() + self.records.label_bytes(record))
        return hasher.digest()

    def fixed_generator(self, name: bytes) -> np.random.Generator:
        """Return what draws a record's views once and for all: a function of its content alone."""
        return _generator(MasterKey(name, b"privmix cached views 1").stream("augment-once"))

    def target(self, record: int) -> Tensor:
        """Return a record's label: one-hot, or its weights."""
        import torch

        label = self.records.labels[record]
        if self.records.labels.ndim == 1:
            return self._one_hot[int(label)]
        return torch.as_tensor(label, device=self.device)

    def base(self, record: int, generator: np.random.Generator) -> Samples:
        """Return a record's base views."""
        views = base_views(self.records.tensor(record, self.device), self.plan, generator)
        return Samples(views, self.target(record).expand(len(views), -1))

    def of(self, record: int, generator: np.random.Generator) -> Augmented:
        """Return all augmentations of a record."""
        tensor = self.records.tensor(record, self.device)
        return augment(tensor, self.target(record), self.plan, generator, self.synthetic)

    def of_pair(self, pair: int, step: int) -> Augmented:
        """Return the augmentations of records 2j and 2j + 1 together, mixtures across both."""
        import torch

        members = [r for r in (2 * pair, 2 * pair + 1) if r < self.records.count]
        bases = [self.base(r, self.generator(r, step)) for r in members]
        both = Samples(torch.cat([b.inputs for b in bases]), torch.cat([b.targets for b in bases]))
        plan = self.plan
        if len(both.inputs) < 2:
            plan = plan.model_copy(update={"num_mixed": 0})
        return complete(both, plan, self.generator(members[0], step), None)


def _generator(stream: KeyStream) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([int(word) for word in stream.words(4)]))


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

    """

    kind: Literal["linear_head"] = "linear_head"

    def __init__(
        self,
        backbone: nn.Module | None = None,
        *,
        feature_cache: FeatureCache = "none",
        device: Any = "cpu",
    ) -> None:
        require("torch")
        self.backbone, self.device = backbone, device
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
        """Zeros: all classes alike."""
        return np.zeros(config.num_classes * (self.num_features(config) + 1))

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
        self, units: NDArray[np.int32], step: int, parameters: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """See :class:`GradientSource`."""
        import torch

        config = self._config
        weights = parameters.reshape(config.num_classes, -1)
        total = ExactSum(torch.empty(weights.shape, device=self._views.device))
        rows = max(1, _BLOCK_ROWS // config.augmentation.num_augmentations)
        for start in range(0, len(units), rows):
            # One after another: a module may keep something of its input while it runs, which a
            # second thread would take for its own record's.
            parts = [self._features(int(record), step) for record in units[start : start + rows]]
            features = torch.stack([part.inputs for part in parts])
            targets = torch.stack([part.targets for part in parts])
            clipped_head_sum(features, targets, weights, self._head_grid, total)
        return total.shifted(self._head_grid.shift).reshape(-1)

    def mean_gradients(
        self, units: NDArray[np.int32], step: int, parameters: NDArray[np.float64]
    ) -> Iterator[Tensor]:
        """See :class:`GradientSource`."""
        import torch

        weights = torch.as_tensor(parameters, device=self._views.device)
        weights = weights.reshape(self._config.num_classes, -1)
        for unit in units:
            features, targets = self._features(int(unit), step)
            inputs = torch.cat([features.double(), features.new_ones(len(features), 1)], dim=1)
            residuals = torch.softmax(inputs @ weights.T, dim=1) - targets
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


def _concatenated(tensors: list[Tensor]) -> Tensor:
    import torch

    return torch.cat(tensors)


class Network:
    """A whole network trained from its present weights, which must be public: the general path.

    Any module without batch normalisation. It is used in evaluation mode: dropout is off. Every
    training starts from the weights that the module has when it is given here, which must owe
    nothing to private records, whatever it was trained to in between.

    Args:
        module: From (count, *input_shape) to (count, num_classes) scores.
        device: Where it runs.
        records_per_call: 1: each record's augmentations are a batch of their own, whose mean
            gradient is an ordinary backward pass. More: virtual batches of so many records through
            Opacus's per-sample gradients, which is faster for few augmentations on a GPU and
            takes memory for as many gradients as augmentations. It is allowed where the device
            gives a record the same bits at every place of the batch, which is tried out first.

    """

    kind: Literal["network"] = "network"

    def __init__(
        self, module: nn.Module, *, device: Any = "cpu", records_per_call: int = 1
    ) -> None:
        require("torch")
        check_module(module)
        self.module = module.eval().to(device)
        self._initial = {name: t.detach().clone() for name, t in module.state_dict().items()}
        self.device = device
        self.records_per_call = _validate.integer("records_per_call", records_per_call)
        if records_per_call > 1:
            require("opacus")

    @property
    def architecture(self) -> str:
        """Name of the module's class."""
        return type(self.module).__name__

    def digest(self) -> bytes:
        """Return a SHA-256 of the initial weights."""
        return module_digest(self.module)

    def check(self, config: TrainingConfig) -> None:
        """Go back to the initial weights, and refuse a plan that this model cannot follow."""
        import torch

        if config.microbatch_size == 2 and self.records_per_call > 1:
            _validate.fail("records_per_call", "1 in microbatches of 2", self.records_per_call)
        check_device(self.device)
        self.module.load_state_dict(self._initial)
        self.module.eval()
        blank = torch.zeros((2, *config.input_shape), device=self.device)
        allowed = f"one for records of shape {config.input_shape}"
        with failures_refused("module", allowed), torch.no_grad():
            found = tuple(self.module(blank).shape)
        if found != (2, config.num_classes):
            _validate.fail("module", f"scores of shape (2, {config.num_classes})", found)

        def gradient(inputs: Tensor) -> Tensor:
            targets = torch.eye(config.num_classes, device=self.device)[[0] * len(inputs)]
            if self.records_per_call == 1:
                return self.gradient(inputs, targets)
            with self.hooked() as sampled:
                return self.gradients_together(sampled, [Augmented(inputs, targets)])

        with failures_refused("module", "one whose gradients can be taken"):
            check_memoryless("module", self.module, gradient, config, self.device)
            if self.records_per_call > 1:
                self._check_places(config)

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Return the parameters that are trained, with their names."""
        return [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]

    def initial_parameters(self, config: TrainingConfig) -> NDArray[np.float64]:
        """Return the module's present parameters as one vector."""
        return np.concatenate(
            [p.detach().double().cpu().numpy().reshape(-1) for _, p in self.trainable()]
        )

    def load(self, parameters: NDArray[np.float64]) -> None:
        """Set the module's parameters from one vector."""
        import torch

        start = 0
        with torch.no_grad():
            for _, parameter in self.trainable():
                stop = start + parameter.numel()
                values = parameters[start:stop].reshape(parameter.shape)
                parameter.copy_(torch.as_tensor(values, device=parameter.device))
                start = stop

    def bind(self, views: PrivateViews, num_parameters: int) -> NetworkGradients:
        """Attach private records."""
        return NetworkGradients(self, views, num_parameters)

    def state(
        self, config: TrainingConfig, parameters: NDArray[np.float64]
    ) -> dict[str, NDArray[Any]]:
        """Return the tensors to keep: all but the trained ones are those it began with."""
        self.module.load_state_dict(self._initial)
        self.load(parameters)
        return {name: t.detach().cpu().numpy() for name, t in self.module.state_dict().items()}

    def scores(self, inputs: Tensor, state: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return (count, num_classes) scores under kept tensors."""
        import torch

        self.module.load_state_dict({name: torch.tensor(v) for name, v in state.items()})
        with torch.inference_mode():
            return np.asarray(self.module(inputs).double().cpu().numpy())

    @contextmanager
    def hooked(self) -> Iterator[Any]:
        """Let Opacus keep gradients of single samples; it looks at training modules only."""
        from opacus import GradSampleModule
        from torch import nn

        sampled = GradSampleModule(self.module, loss_reduction="sum")
        sampled.train()
        for part in sampled.modules():
            if isinstance(part, nn.modules.dropout._DropoutNd):
                part.eval()
        try:
            yield sampled
        finally:
            sampled.zero_grad(set_to_none=True)  # of private records, and without noise
            sampled.remove_hooks()
            self.module.eval()

    def gradient(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean gradient of one record's augmentations: a plain backward pass."""
        import torch

        parameters = [p for _, p in self.trainable()]
        loss = _cross_entropy(self.module(inputs), targets).mean()
        found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        return torch.cat([gradient.reshape(-1) for gradient in found])

    def gradients_together(self, sampled: Any, records: list[Augmented]) -> Tensor:
        """Return mean gradients of several records, padded to a fixed shape, by Opacus."""
        import torch

        size = self.records_per_call
        num_views = len(records[0].inputs)
        inputs = torch.stack([r.inputs for r in records])
        targets = torch.stack([r.targets for r in records])
        blank = inputs.new_zeros((size - len(records), *inputs.shape[1:]))
        inputs = torch.cat([inputs, blank]).flatten(0, 1)
        targets = torch.cat([targets, targets.new_zeros((len(blank), *targets.shape[1:]))])
        sampled.zero_grad()
        loss = _cross_entropy(sampled(inputs), targets.flatten(0, 1)).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        parts = []
        for _, parameter in self.trainable():
            samples: Any = parameter.grad_sample  # type: ignore[attr-defined]
            if samples is None:  # no part of the scores
                samples = parameter.new_zeros((size * num_views, *parameter.shape))
            mean = samples.reshape(size, num_views, -1).mean(dim=1)
            parts.append(mean)
            parameter.grad_sample = None  # type: ignore[attr-defined]
        return torch.cat(parts, dim=1)[: len(records)]

    def _check_places(self, config: TrainingConfig) -> None:
        """Refuse virtual batches if a record's gradient depends on its place or its companions."""
        import torch

        size = self.records_per_call
        shape = (size, config.augmentation.num_augmentations)
        random = torch.Generator().manual_seed(0)
        device = self.device
        inputs = torch.rand((*shape, *config.input_shape), generator=random).to(device)
        targets = torch.eye(config.num_classes)[
            torch.randint(config.num_classes, shape, generator=random)
        ].to(device)
        records = [Augmented(*pair) for pair in zip(inputs, targets, strict=True)]
        with self.hooked() as sampled:
            due = self.gradients_together(sampled, records)
            same = True
            for turn in range(1, size):
                rolled = self.gradients_together(sampled, records[turn:] + records[:turn])
                same &= bool(torch.equal(rolled, torch.roll(due, -turn, dims=0)))
                same &= bool(
                    torch.equal(self.gradients_together(sampled, records[:turn]), due[:turn])
                )
                # A scale that is shared by a batch may show beside large records only.
                for scale in (-1e3, 1e6):
                    loud = [Augmented(scale * one.inputs, one.targets) for one in records[1:]]
                    beside = self.gradients_together(
                        sampled, [*loud[:turn], records[0], *loud[turn:]]
                    )
                    same &= bool(torch.equal(beside[turn], due[0]))
        if not same:
            allowed = "1 here: gradients depend on a record's place in a batch on this device"
            _validate.fail("records_per_call", allowed, size)


class NetworkGradients:
    """Clipped sums of a whole network; see :class:`GradientSource`."""

    def __init__(self, network: Network, views: PrivateViews, num_parameters: int) -> None:
        config = views.config
        self._network, self._views, self._config = network, views, config
        self._num_parameters = num_parameters
        self.grid = network_grid(config.clip_norm, config.microbatch_size)
        self._buffers = Buffers(network.module)

    def clipped_sum(
        self, units: NDArray[np.int32], step: int, parameters: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """See :class:`GradientSource`."""
        self._network.load(parameters)
        # Of the norm, not of the sensitivity: microbatches are clipped at C, too.
        total = ClippedSum(self._num_parameters, self._config.clip_norm, self.grid)
        for gradient in self._gradients(units, step):
            total.add(gradient.cpu().numpy())
        return total.total

    def mean_gradients(
        self, units: NDArray[np.int32], step: int, parameters: NDArray[np.float64]
    ) -> Iterator[Tensor]:
        """Yield each record's mean gradient before clipping: private, for research only."""
        self._network.load(parameters)
        yield from self._gradients(units, step)

    def _gradients(self, units: NDArray[np.int32], step: int) -> Iterator[Tensor]:
        if (size := self._network.records_per_call) > 1:
            with self._network.hooked() as sampled:
                for start in range(0, len(units), size):
                    some = [self._views_of(int(unit), step) for unit in units[start : start + size]]
                    yield from self._restored(self._network.gradients_together(sampled, some))
            return
        for unit in units:
            yield self._restored(self._network.gradient(*self._views_of(int(unit), step)))

    def _restored(self, gradients: Tensor) -> Tensor:
        """Return what the module computed, and the module to what it was before."""
        self._buffers.restore()
        return gradients

    def _views_of(self, unit: int, step: int) -> Augmented:
        views = self._views
        if self._config.microbatch_size == 2:
            return views.of_pair(unit, step)
        return views.of(unit, views.generator(unit, step))


def _cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.cross_entropy(scores, targets, reduction="none")


def predict_in_batches(
    model: LinearHead | Network, inputs: NDArray[Any], state: dict[str, NDArray[Any]], size: int
) -> Iterable[NDArray[np.float64]]:
    """Yield scores of ``size`` inputs at a time."""
    for start in range(0, len(inputs), size):
        yield model.scores(as_tensor(inputs[start : start + size], model.device), state)
