"""Runs of private training on worst-case records: its own steps, of which every noisy gradient is seen.

A canary is alone on an axis of the features and far longer than the clip norm lets it be. The model is a
linear head whose weights stay at zero, as with a learning rate of next to nothing: the guarantee holds for
all of them. Then a canary's clipped gradient is the same in every step, and known. Networks, backbones,
transforms and class weights are not run.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.accounting.tradeoff import Array
from privmix.auditing import likelihood
from privmix.auditing.canaries import NUM_EMPTY_AXES
from privmix.auditing.trials import NoiseTotals
from privmix.dpsgd.augmentation import MOST_BASE_VIEWS, AugmentationPlan
from privmix.dpsgd.head import LinearHead
from privmix.dpsgd.private_views import PrivateViews
from privmix.dpsgd.trainer import Steps
from privmix.dpsgd.training_plan import TrainingConfig
from privmix.dpsgd.training_records import TrainingRecords
from privmix.noise import noise_stddev
from privmix.rng import MasterKey

_LENGTH = 1000.0  # of a canary's gradient, unclipped, in clip norms, nearly
_BACKGROUND = 4  # expected records in a step that are no canaries


class TrainingSubject:
    """The steps of a training with canaries; see :class:`privmix.auditing.trials.Subject`.

    Args:
        config: The plan's: its sampling probability, noise multiplier, clip norm and steps are run.
        num_canaries: Canaries in one run.

    """

    def __init__(self, config: TrainingConfig, num_canaries: int) -> None:
        if config.microbatch_size != 1:
            allowed = "1: pairs of records are for research"
            _validate.fail("microbatch_size", allowed, config.microbatch_size)
        self.num_canaries = num_canaries
        width = num_canaries + NUM_EMPTY_AXES
        planned = config.augmentation.num_augmentations
        plain = {
            "classes": (0, 1),
            "input_shape": (width,),
            "target": "class",
            # As many augmentations as planned, each the record itself: sums depend on their number.
            "augmentation": AugmentationPlan(num_base=min(planned, MOST_BASE_VIEWS), transforms=()),
            "class_weight": None,  # it comes before the clipping, which cuts more than it adds
        }
        self.config = TrainingConfig(**config.model_dump() | plain)
        background = math.ceil(_BACKGROUND / config.sampling_prob)
        length = _LENGTH * config.clip_norm * math.sqrt(2.0)
        canaries = np.eye(num_canaries, width, dtype=np.float32) * np.float32(length)
        self._inputs = np.concatenate([canaries, np.zeros((background, width), np.float32)])
        self._labels = np.zeros(len(self._inputs), dtype=np.int32)
        self._labels[num_canaries::2] = 1
        self._head = LinearHead()
        self._parameters = self._head.initial_parameters(self.config)

    def digest(self) -> str:
        """See :class:`privmix.auditing.trials.Subject`."""
        everyone = TrainingRecords(self._inputs, self._labels)
        return hashlib.sha256(
            self.config.model_dump_json().encode() + everyone.digest()
        ).hexdigest()

    def run(self, present: NDArray[np.bool_], key: MasterKey) -> tuple[Array, NoiseTotals]:
        """See :class:`privmix.auditing.trials.Subject`."""
        config = self.config
        there = np.ones(len(self._inputs), dtype=bool)
        there[: self.num_canaries] = present
        records = TrainingRecords(self._inputs[there], self._labels[there])
        views = PrivateViews(records, config, key, None, "cpu")
        source = self._head.bind(views, len(self._parameters))
        steps = Steps(config, records, source, key)
        gradients = np.stack(
            [steps.gradient(step, self._parameters) for step in range(config.num_steps)]
        )
        gradients *= config.batch_size / config.clip_norm
        by_class = gradients.reshape(config.num_steps, config.num_classes, -1)
        # At weights of zero the residual of class 0 is (-1, 1) / 2.
        along = (by_class[:, 1] - by_class[:, 0]) / math.sqrt(2.0)
        own = along[:, : self.num_canaries]
        ratios = likelihood.shift_log_ratio(own, config.noise_multiplier)
        scores = np.stack(
            [likelihood.sampled(ratios, config.sampling_prob), likelihood.spread(own)], axis=1
        )
        empty = by_class[:, :, self.num_canaries : -1].reshape(config.num_steps, -1)
        return scores, NoiseTotals.of(
            [empty / config.noise_multiplier],
            [noise_stddev(config.noise_multiplier, source.grid.sensitivity)],
        )
