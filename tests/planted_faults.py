"""Faults that an audit must catch, put into the code that releases and trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privmix import mixer, sampling
from privmix.dpsgd import linear_head, trainer
from privmix.rounds import residuals

Patch = Callable[[pytest.MonkeyPatch], None]


def too_little_noise(patch: pytest.MonkeyPatch) -> None:
    """The noise is 30 % too small."""
    for module in (mixer, residuals, trainer):
        _less_noise(patch, module)


def _less_noise(patch: pytest.MonkeyPatch, module: Any) -> None:
    def draw(stream, extra, stddev, size, *, true=module.rounded_gaussian, **options: Any):
        return true(stream, extra, 0.7 * stddev, size, **options)

    patch.setattr(module, "rounded_gaussian", draw)


def too_little_label_noise(patch: pytest.MonkeyPatch) -> None:
    """The noise of label weights alone is 30 % too small."""
    _less_noise_where(patch, lambda config, part: part == "label")


def too_little_noise_in_class_sums(patch: pytest.MonkeyPatch) -> None:
    """The noise of one table of ``hybrid`` is 30 % too small."""
    _less_noise_where(patch, lambda config, part: config.rows_per_class is not None)


def too_little_noise_in_rounds(patch: pytest.MonkeyPatch) -> None:
    """The noise of one table of ``adaptive`` is 30 % too small."""
    _less_noise(patch, residuals)


def _less_noise_where(patch: pytest.MonkeyPatch, chosen: Callable[[Any, str], bool]) -> None:
    publish = mixer.Mixer._publish

    def published(self, sums, grid, block, part):
        with patch.context() as within:
            if chosen(self.config, part):
                _less_noise(within, mixer)
            return publish(self, sums, grid, block, part)

    patch.setattr(mixer.Mixer, "_publish", published)


def realised_count(patch: pytest.MonkeyPatch) -> None:
    """Rows are divided by the number of records in them, instead of the public one."""
    publish, publish_round = mixer.Mixer.publish, residuals.Rounds.publish

    def divided(self, block, sums):
        rows = publish(self, block, sums)
        share = self.config.divisor / np.maximum(sums._counts, 1.0)[:, None]
        labels = None if rows.label_weights is None else rows.label_weights * share
        return rows._replace(features=rows.features * share, label_weights=labels)

    def round_divided(self, number, weights, sums):
        rows = publish_round(self, number, weights, sums)
        share = self.config.divisor / self._records.count
        return rows._replace(features=rows.features * np.float32(share))

    patch.setattr(mixer.Mixer, "publish", divided)
    patch.setattr(residuals.Rounds, "publish", round_divided)


def twice_the_rate(patch: pytest.MonkeyPatch) -> None:
    """Records are sampled at twice the rate that is accounted for."""
    bernoulli, uniform = sampling.bernoulli_inclusions, sampling.uniform_inclusions
    transposed = sampling.transposed_choices

    def twice(stream, extra, prob, *sizes, **options):
        return bernoulli(stream, extra, min(1.0, 2 * prob), *sizes, **options)

    patch.setattr(mixer, "bernoulli_inclusions", twice)
    patch.setattr(trainer, "bernoulli_inclusions", twice)
    patch.setattr(
        mixer,
        "uniform_inclusions",
        lambda stream, size, *sizes: uniform(stream, 2 * size, *sizes),
    )
    patch.setattr(
        mixer,
        "transposed_choices",
        lambda stream, rows, *sizes: transposed(stream, 2 * rows, *sizes),
    )


def reused_noise(patch: pytest.MonkeyPatch) -> None:
    """All rows of a block have the noise of its first one."""
    for module in (mixer, residuals):

        def divide(sums, noise, divisor, out, *, true=module.divide):
            true(sums, np.ascontiguousarray(np.broadcast_to(noise[0], noise.shape)), divisor, out)

        patch.setattr(module, "divide", divide)


def same_noise_every_step(patch: pytest.MonkeyPatch) -> None:
    """All steps of a training have the noise of the first one."""
    stream = trainer.MasterKey.stream

    def marked(self, purpose, *, shard=0, block=0):
        return stream(self, purpose, shard=shard, block=0 if "noise" in purpose else block)

    patch.setattr(trainer.MasterKey, "stream", marked)


RELEASE_FAULTS: list[Patch] = [too_little_noise, realised_count, twice_the_rate, reused_noise]
# Each in one part or table alone, and the designs that have it.
PARTIAL_FAULTS: list[tuple[Patch, tuple[str, ...]]] = [
    (too_little_label_noise, ("poisson", "signed", "hierarchical", "uniform", "transposed")),
    (too_little_noise_in_class_sums, ("hybrid",)),
    (too_little_noise_in_rounds, ("adaptive",)),
]


def realised_batch(patch: pytest.MonkeyPatch) -> None:
    """Gradients are divided by the number of records in the batch, instead of the public one."""
    true = trainer.Steps.gradient

    def divided(self, step, parameters):
        share = self.config.batch_size / max(1, len(self.sample(step)))
        return true(self, step, parameters) * share

    patch.setattr(trainer.Steps, "gradient", divided)


def no_clipping(patch: pytest.MonkeyPatch) -> None:
    """Gradients are summed as they are."""
    true = linear_head._integer_residuals

    def unclipped(*arguments: Any) -> None:
        *given, bound, residuals, sizes = arguments
        assert isinstance(bound, float)
        true(*given, 2.0**51, residuals, sizes)

    patch.setattr(linear_head, "_integer_residuals", unclipped)


TRAINING_FAULTS: list[Patch] = [
    too_little_noise,
    twice_the_rate,
    same_noise_every_step,
    realised_batch,
    no_clipping,
]
