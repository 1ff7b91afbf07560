"""Augmentations of private records, which no guarantee rests on."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from privmix.dpsgd.augmentation import (
    AugmentationPlan,
    Augmented,
    Samples,
    augment,
    base_views,
    complete,
)
from privmix.dpsgd.training_plan import TrainingConfig
from privmix.dpsgd.training_records import TrainingRecords
from privmix.rng import KeyStream, MasterKey

if TYPE_CHECKING:
    from torch import Tensor


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
        self._draws_nothing = self.plan == AugmentationPlan.plain()
        self._idle = np.random.default_rng(0)
        self._one_hot = torch.eye(config.num_classes, device=device)

    def generator(self, record: int, step: int) -> np.random.Generator:
        """Return the record's own generator; no guarantee rests on its distribution.

        Where nothing is drawn, all have one: a generator for each took half of a linear model's time.
        """
        if self._draws_nothing:
            return self._idle
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
