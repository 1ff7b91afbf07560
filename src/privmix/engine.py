"""Run a plan on records and seal the release."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.accounting import account
from privmix.certificate import FILE_NAME, Certificate
from privmix.designs import RowBlock, bernoulli_inclusions
from privmix.mixing import add_features, add_labels
from privmix.noise import rounded_gaussian
from privmix.plan import ReleasePlan, default_threads
from privmix.records import BadRecordPolicy, BoundedRecords, FixedPoint, bound_records
from privmix.rng import MasterKey
from privmix.store import CARD_NAME, Labels, PartWriter, Release, dataset_card, file_digests

Progress = Callable[[int, int], None]


class Mixer:
    """Makes the rows of a plan, block by block, under one master key.

    The same key, plan and records give the same bits for any number of threads.
    """

    def __init__(self, plan: ReleasePlan, records: BoundedRecords, key: MasterKey) -> None:
        self._plan, self._records, self._key = plan, records, key
        self._groups = _record_groups(plan, records)

    def sums(self, block: RowBlock) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the exact integer sums of a block: features and labels. Private.

        Two inputs that differ by the last record of its group differ, under the same key, by that
        record alone in the rows that include it.
        """
        plan, records = self._plan, self._records
        features = np.zeros((block.num_rows, plan.num_features), dtype=np.int64)
        labels = np.zeros((block.num_rows, plan.num_classes), dtype=np.int64)
        group = self._groups[block.class_index or 0]
        for shard, start in enumerate(range(0, group.size, plan.shard_records)):
            members = group[start : start + plan.shard_records]
            starts, chosen = bernoulli_inclusions(
                self._key.stream("inclusion", shard=shard, block=block.index),
                self._key.stream("inclusion-extra", shard=shard, block=block.index),
                plan.sampling_prob,
                block.num_rows,
                members.size,
            )
            included = members[chosen]
            add_features(records.features, starts, included, features)
            if plan.label_noise_multiplier is not None:
                add_labels(records.labels, records.label_one, starts, included, labels)
        return features, labels

    def rows(self, block: RowBlock) -> tuple[NDArray[np.float32], Labels]:
        """Return the published rows of a block: each value is a function of one noisy integer."""
        plan = self._plan
        features, labels = self.sums(block)
        stddev = plan.feature_noise(self._records.feature_grid.sensitivity)
        features += self._noise("feature-noise", block, stddev, features.shape)
        published = _publish(features, self._records.feature_grid, plan.mix_size)
        label_stddev = plan.label_noise(self._records.label_grid.sensitivity)
        if label_stddev is None:
            return published, np.full(block.num_rows, block.class_index, dtype=np.int64)
        labels += self._noise("label-noise", block, label_stddev, labels.shape)
        return published, _publish(labels, self._records.label_grid, plan.mix_size)

    def _noise(
        self, purpose: str, block: RowBlock, stddev: float, shape: tuple[int, ...]
    ) -> NDArray[np.int64]:
        stream = self._key.stream(purpose, block=block.index)
        extra = self._key.stream(f"{purpose}-extra", block=block.index)
        return rounded_gaussian(stream, extra, stddev, shape[0] * shape[1]).reshape(shape)

    def iter_rows(self, threads: int) -> Iterator[tuple[NDArray[np.float32], Labels]]:
        """Yield all blocks in order, computing a few ahead."""
        blocks = self._plan.blocks
        with ThreadPoolExecutor(threads) as pool:
            pending = [pool.submit(self.rows, block) for block in blocks[: threads + 2]]
            for block in blocks:
                yield pending.pop(0).result()
                ahead = block.index + threads + 2
                if ahead < len(blocks):
                    pending.append(pool.submit(self.rows, blocks[ahead]))


def _record_groups(plan: ReleasePlan, records: BoundedRecords) -> list[NDArray[np.int32]]:
    """Positions of the records that may enter a row together, in their order in the input."""
    if plan.design == "stratified":
        order = np.argsort(records.labels, kind="stable").astype(np.int32)
        bounds = np.searchsorted(records.labels[order], np.arange(plan.num_classes + 1))
        return [order[a:b] for a, b in pairwise(bounds)]
    return [np.arange(records.count, dtype=np.int32)]


def _publish(sums: NDArray[np.int64], grid: FixedPoint, mix_size: float) -> NDArray[np.float32]:
    return (sums / (grid.scale * mix_size)).astype(np.float32)


def release(
    features: ArrayLike,
    labels: ArrayLike,
    plan: ReleasePlan,
    *,
    out: str | Path,
    on_bad_record: BadRecordPolicy = "error",
    test_seed: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Release:
    """Publish private records under a plan. Spends the plan's budget.

    Args:
        features: (count, num_features) real numbers; longer vectors are clipped.
        labels: (count,) values out of the schema's classes.
        plan: A plan with a schema.
        out: Release folder; must not exist, or be empty. It appears whole or not at all.
        on_bad_record: ``error`` or ``zero``; see ``records.bound_records``.
        test_seed: For tests only: repeatable rows that are **not private**; the certificate says
            so and ``verify`` rejects it.
        threads: Number of threads; all processors by default. The rows do not depend on it.
        progress: Called with (rows done, rows in all).

    Returns:
        The sealed release.

    Raises:
        InvalidInputError: Bad input; nothing has been drawn or written.

    """
    if plan.data_schema is None:
        _validate.fail(
            "plan.schema", "a schema; plan with --schema or plan_release(schema)", "none"
        )
    threads = default_threads() if threads is None else _validate.integer("threads", threads)
    target = check_out(out)
    recheck_plan(plan)
    records = bound_records(features, labels, plan.data_schema, on_bad_record)
    return release_records(
        records, plan, out=target, test_seed=test_seed, threads=threads, progress=progress
    )


def release_records(
    records: BoundedRecords,
    plan: ReleasePlan,
    *,
    out: Path,
    test_seed: int | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Release:
    """Publish bounded records: draw, write to a hidden folder, seal, and move it into place."""
    context = hashlib.sha256(plan.digest() + records.digest()).digest()
    key = MasterKey.fresh(context) if test_seed is None else MasterKey.for_test(test_seed, context)
    certificate = Certificate.for_plan(plan, private=test_seed is None, files={})
    staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.unsealed-", dir=out.parent))
    try:
        with PartWriter(staging, plan) as writer:
            done = 0
            for row_features, row_labels in Mixer(plan, records, key).iter_rows(threads):
                writer.write(row_features, row_labels)
                done += len(row_features)
                if progress is not None:
                    progress(done, plan.num_mixtures)
        (staging / CARD_NAME).write_text(dataset_card(plan), encoding="utf-8")
        certificate = certificate.model_copy(update={"files": file_digests(staging)})
        (staging / FILE_NAME).write_bytes(certificate.to_bytes())
        _seal(staging, out)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return Release(out)


def check_out(out: str | Path) -> Path:
    """Return the absolute path of a release folder that can be made, or fail."""
    path = Path(out).absolute()
    if path.exists() and not path.is_dir():
        _validate.fail(f"out {out}", "a folder that does not exist yet or is empty", "a file")
    if path.is_dir() and any(path.iterdir()):
        _validate.fail(f"out {out}", "a folder that does not exist yet or is empty", "a full one")
    if not path.parent.is_dir():
        _validate.fail(f"out {out}", "a place in an existing folder", "no such folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        _validate.fail(f"out {out}", "a place in a writable folder", "one that is not writable")
    return path


def recheck_plan(plan: ReleasePlan) -> None:
    """Account for the plan anew: a plan file that claims too little is refused."""
    epsilon = account(plan.event, plan.delta).epsilon
    if epsilon > plan.epsilon * (1 + 1e-6):
        _validate.fail(
            "plan.epsilon", f"at least {epsilon!r}, what the mechanism costs", plan.epsilon
        )


def _seal(staging: Path, out: Path) -> None:
    """Make everything durable, then let the release appear under its name in one step."""
    for path in [*staging.rglob("*"), staging]:
        _sync(path)
        path.chmod(0o755 if path.is_dir() else 0o644)
    staging.rename(out)
    _sync(out.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
