"""A whole network as a source of clipped gradient sums: the general path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.clipping import ClippedSum
from privmix.dpsgd.augmentation import (
    Augmented,
)
from privmix.dpsgd.grid import network_grid
from privmix.dpsgd.modules import (
    Buffers,
    check_device,
    check_memoryless,
    check_module,
    failures_refused,
    module_digest,
)
from privmix.dpsgd.private_views import PrivateViews
from privmix.dpsgd.training_plan import TrainingConfig
from privmix.dpsgd.training_records import require

if TYPE_CHECKING:
    from torch import Tensor, nn


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
            gives a record the same bits at every position of the batch, which is tried out first.

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

        if config.class_weight is not None:
            _validate.fail("class_weight", "nothing except for a linear head", config.class_weight)
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
                self._check_positions(config)

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

    def _check_positions(self, config: TrainingConfig) -> None:
        """Refuse virtual batches if a record's gradient depends on its position or its companions."""
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
            allowed = "1 here: gradients depend on a record's position in a batch on this device"
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
        self, indices: NDArray[np.int32], step: int, parameters: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """See :class:`GradientSource`."""
        self._network.load(parameters)
        # Of the norm, not of the sensitivity: microbatches are clipped at C, too.
        total = ClippedSum(self._num_parameters, self._config.clip_norm, self.grid.scale)
        for gradient in self._gradients(indices, step):
            total.add(gradient.cpu().numpy())
        return total.total

    def mean_gradients(
        self, indices: NDArray[np.int32], step: int, parameters: NDArray[np.float64]
    ) -> Iterator[Tensor]:
        """Yield each record's mean gradient before clipping: private, for research only."""
        self._network.load(parameters)
        yield from self._gradients(indices, step)

    def _gradients(self, indices: NDArray[np.int32], step: int) -> Iterator[Tensor]:
        if (size := self._network.records_per_call) > 1:
            with self._network.hooked() as sampled:
                for start in range(0, len(indices), size):
                    some = [
                        self._views_of(int(index), step) for index in indices[start : start + size]
                    ]
                    yield from self._restored(self._network.gradients_together(sampled, some))
            return
        for index in indices:
            yield self._restored(self._network.gradient(*self._views_of(int(index), step)))

    def _restored(self, gradients: Tensor) -> Tensor:
        """Return what the module computed, and the module to what it was before."""
        self._buffers.restore()
        return gradients

    def _views_of(self, index: int, step: int) -> Augmented:
        views = self._views
        if self._config.microbatch_size == 2:
            return views.of_pair(index, step)
        return views.of(index, views.generator(index, step))


def _cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.cross_entropy(scores, targets, reduction="none")
