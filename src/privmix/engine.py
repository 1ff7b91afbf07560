"""Run a plan on records and seal the release."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.accounting import account
from privmix.certificate import FILE_NAME, Certificate
from privmix.designs import (
    WEIGHT_SCALE,
    Inclusions,
    RowBlock,
    balanced_eligibility,
    bernoulli_inclusions,
    block_of,
    dirichlet_weights,
    random_eligibility,
    transposed_inclusions,
    uniform_inclusions,
)
from privmix.extractor import Extractor, ExtractorIdentity
from privmix.journal import Journal, RunFolder, write_durably
from privmix.ledger import Ledger
from privmix.mechanism import MixtureConfig
from privmix.mixing import add_features, add_labels, add_weighted_features
from privmix.noise import rounded_gaussian
from privmix.plan import ReleasePlan, default_threads
from privmix.records import BadRecordPolicy, BoundedRecords, FixedPoint, bound_records
from privmix.rng import KeyStream, MasterKey, fresh_secret, guessable_secret
from privmix.store import (
    CARD_NAME,
    Piece,
    Release,
    Rows,
    dataset_card,
    file_digests,
    part_layout,
    part_path,
    write_part,
)

Progress = Callable[[int, int], None]
# 1 January 2000: a date that archives of every kind can hold, the same for every release.
_FILE_TIME = 946684800


class Mixer:
    """Makes the rows of one table of mixtures, block by block, under one master key.

    The same key, mechanism and records give the same bits for any number of threads.

    Args:
        config: The table's mechanism.
        records: The private records.
        key: The release's key.
        table: Number of the table in the release; each has its own streams.

    """

    def __init__(
        self, config: MixtureConfig, records: BoundedRecords, key: MasterKey, table: int = 0
    ) -> None:
        self.config, self._records, self._key, self._table = config, records, key, table
        self._everybody = np.arange(records.count, dtype=np.int32)
        by_class = config.design in ("stratified", "hierarchical")
        self._classes = _split_by_class(records, config.num_classes) if by_class else []
        self._eligible = self._draw_eligibility()
        self._transposed = self._draw_transposed()

    def _stream(self, purpose: str, *, shard: int = 0, block: int = 0) -> KeyStream:
        return self._key.stream(f"table={self._table}/{purpose}", shard=shard, block=block)

    def _draw_eligibility(self) -> NDArray[np.bool_] | None:
        config = self.config
        if config.class_prob is None:
            return None
        stream, shape = self._stream("eligibility"), (config.num_mixtures, config.num_classes)
        if config.eligible_rows is not None:
            return balanced_eligibility(stream, config.eligible_rows, *shape)
        return random_eligibility(
            stream, self._stream("eligibility-extra"), config.class_prob, *shape
        )

    def _draw_transposed(self) -> Inclusions | None:
        config = self.config
        if config.rows_per_record is None:
            return None
        return transposed_inclusions(
            self._stream("choice"), config.rows_per_record, config.num_mixtures, self._records.count
        )

    def sums(self, block: RowBlock) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the exact integer sums of a block: features and labels. Private.

        Two inputs that differ by the last record differ, under the same key, by that record alone
        in the rows that include it.
        """
        config, records = self.config, self._records
        features = np.zeros((block.num_rows, config.num_features), dtype=np.int64)
        labels = np.zeros((block.num_rows, config.num_classes), dtype=np.int64)
        for rows, members, inclusions in self._inclusions(block):
            included = members[inclusions.records]
            starts, weights = inclusions.starts, inclusions.weights
            if weights is None:
                add_features(records.features, rows, starts, included, features)
            else:
                add_weighted_features(records.features, rows, starts, included, weights, features)
            if config.labels == "mixed":
                some = np.empty(0, dtype=np.int32) if weights is None else weights
                add_labels(records.labels, records.label_one, rows, starts, included, some, labels)
        return features, labels

    def _inclusions(
        self, block: RowBlock
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], Inclusions]]:
        """Yield (rows of the block, a pool of records, who of the pool enters these rows)."""
        config, everywhere = self.config, np.arange(block.num_rows)
        if self._transposed is not None:
            yield everywhere, self._everybody, block_of(self._transposed, block)
        elif config.design == "uniform":
            yield everywhere, self._everybody, self._uniform(block)
        elif self._eligible is not None:
            for k, pool in enumerate(self._classes):
                rows = np.flatnonzero(self._eligible[block.start : block.stop, k])
                if rows.size:
                    yield from self._bernoulli(block, rows, pool, f"class={k}/")
        else:
            pool = self._everybody
            if block.class_index is not None:
                pool = self._classes[block.class_index]
            yield from self._bernoulli(block, everywhere, pool, "")

    def _bernoulli(
        self, block: RowBlock, rows: NDArray[np.int64], pool: NDArray[np.int32], name: str
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], Inclusions]]:
        config = self.config
        for shard, start in enumerate(range(0, pool.size, config.shard_records)):
            members = pool[start : start + config.shard_records]
            inclusions = bernoulli_inclusions(
                self._stream(f"{name}inclusion", shard=shard, block=block.index),
                self._stream(f"{name}inclusion-extra", shard=shard, block=block.index),
                config.inclusion_prob,
                rows.size,
                members.size,
                signed=config.design == "signed",
            )
            yield rows, members, inclusions

    def _uniform(self, block: RowBlock) -> Inclusions:
        config, size = self.config, round(self.config.mix_size)
        inclusions = uniform_inclusions(
            self._stream("inclusion", block=block.index), size, block.num_rows, config.num_records
        )
        if config.weight_alpha is None or config.weight_clip is None:
            return inclusions
        stream = self._stream("weight", block=block.index)
        weights = dirichlet_weights(
            stream, config.weight_alpha, config.weight_clip, block.num_rows, size
        )
        return inclusions._replace(weights=weights)

    def rows(self, block: RowBlock) -> Rows:
        """Return the published rows of a block: each value is a function of one noisy integer."""
        features, labels = self.sums(block)
        published = self._publish(features, self._records.feature_grid, block, "feature")
        if self.config.labels == "mixed":
            mixed = self._publish(labels, self._records.label_grid, block, "label")
            return Rows(published, label_weights=mixed)
        if block.class_index is None:
            return Rows(published)
        return Rows(published, labels=np.full(block.num_rows, block.class_index, dtype=np.int64))

    def _publish(
        self,
        sums: NDArray[np.int64],
        grid: FixedPoint,
        block: RowBlock,
        part: Literal["feature", "label"],
    ) -> NDArray[np.float32]:
        weighted = self.config.weight_clip is not None
        unit = WEIGHT_SCALE if weighted else 1
        stddev = self.config.noise_stddev(grid.sensitivity * unit, part)
        stream = self._stream(f"{part}-noise", block=block.index)
        extra = self._stream(f"{part}-noise-extra", block=block.index)
        sums += rounded_gaussian(stream, extra, stddev, sums.size).reshape(sums.shape)
        return (sums / (grid.scale * unit * self.config.divisor)).astype(np.float32)


def _split_by_class(records: BoundedRecords, num_classes: int) -> list[NDArray[np.int32]]:
    """Return the positions of each class's records, in their order in the input."""
    order = np.argsort(records.labels, kind="stable").astype(np.int32)
    bounds = np.searchsorted(records.labels[order], np.arange(num_classes + 1))
    return [order[a:b] for a, b in pairwise(bounds)]


def release(
    features: ArrayLike,
    labels: ArrayLike,
    plan: ReleasePlan,
    *,
    out: str | Path,
    on_bad_record: BadRecordPolicy = "error",
    resume: bool = False,
    ledger: str | Path | None = None,
    dataset_id: str | None = None,
    test_seed: int | None = None,
    threads: int | None = None,
    extractor: Extractor | None = None,
    progress: Progress | None = None,
) -> Release:
    """Publish private records under a plan. Spends the plan's budget.

    Args:
        features: (count, num_features) real numbers; longer vectors are clipped. With an
            ``extractor``: the records that it turns into features.
        labels: (count,) values out of the schema's classes.
        plan: A plan with a schema.
        out: Release folder; must not exist, or be empty. It appears whole or not at all.
        on_bad_record: ``error`` or ``zero``; see ``records.bound_records``.
        resume: Go on with a run into ``out`` that was cut off: same plan, same records, same bits,
            no second charge.
        ledger: Ledger file to charge before anything is drawn.
        dataset_id: The data set's name in the ledger.
        test_seed: For tests only: repeatable rows that are **not private**; the certificate says
            so and ``verify`` rejects it.
        threads: Number of threads; all processors by default. The rows do not depend on it.
        extractor: A public extractor (``privmix.features.get_extractor``), which the certificate
            then names; without one, features are taken as given.
        progress: Called with (rows done, rows in all).

    Returns:
        The sealed release.

    Raises:
        InvalidInputError: Bad input, or a budget that does not suffice; nothing has been drawn or
            written.

    """
    if plan.data_schema is None:
        _validate.fail(
            "plan.schema", "a schema; plan with --schema or plan_release(schema)", "none"
        )
    threads = default_threads() if threads is None else _validate.integer("threads", threads)
    target = check_out(out)
    recheck_plan(plan)
    if extractor is not None:
        features = extractor.transform(features)  # type: ignore[arg-type]
    records = bound_records(features, labels, plan.data_schema, on_bad_record)
    return release_records(
        records,
        plan,
        out=target,
        resume=resume,
        charge=ledger_charge(ledger, dataset_id, plan, note=target.name),
        test_seed=test_seed,
        threads=threads,
        extractor=None if extractor is None else extractor.identity,
        progress=progress,
    )


def release_records(
    records: BoundedRecords,
    plan: ReleasePlan,
    *,
    out: Path,
    resume: bool = False,
    charge: Callable[[], object] | None = None,
    test_seed: int | None = None,
    threads: int = 1,
    extractor: ExtractorIdentity | None = None,
    progress: Progress | None = None,
) -> Release:
    """Publish bounded records: draw and write in a private run folder, seal, and move into place.

    ``charge`` is called once for a new run, before the key is drawn, and never for a resumed one.
    """
    _check_count(plan, records)
    certificate = Certificate.for_plan(plan, private=True, files={}, extractor=extractor)
    origin = b"" if extractor is None else extractor.model_dump_json().encode()
    context = hashlib.sha256(plan.digest() + records.digest() + origin).digest()
    with RunFolder(out) as run:
        if run.is_unfinished and not resume:
            allowed = f"resume (--resume), or a new start after removing {run.folder}"
            _validate.fail(f"out={out}", allowed, "a new run beside one that was cut off")
        if resume and not run.is_unfinished:
            _validate.fail(f"out={out}", "a run that was cut off, to resume", "none")
        if not run.is_unfinished:
            if charge is not None:
                charge()
            run.begin(_new_journal(context, test_seed))
        if run.has_journal:
            journal = run.read(context)
            certificate = certificate.model_copy(update={"private": journal.private})
            mixers = [
                Mixer(config, records, journal.key, table)
                for table, config in enumerate(plan.mechanism.components)
            ]
            _write_parts(run.release_folder, plan, mixers, threads, progress)
            _seal(run.release_folder, plan, certificate)
        run.destroy_journal()
        sealed = Release(run.release_folder).certificate
        if sealed.model_copy(update={"files": {}, "private": True}) != certificate.model_copy(
            update={"private": True}
        ):
            # Cut off between sealing and publishing: the journal is gone, the plan is known still.
            _validate.fail(f"resuming {out}", "the plan it was begun with", "another")
        _make_alike(run.release_folder)  # again, for a run that was cut off just before
        run.publish()
    return Release(out)


def _check_count(plan: ReleasePlan, records: BoundedRecords) -> None:
    for config in plan.mechanism.components:
        if config.design == "uniform" and records.count != config.num_records:
            # Under replace_one the number of records is public, so saying it gives nothing away.
            _validate.fail("records", f"exactly num_records = {config.num_records}", records.count)


def _new_journal(context: bytes, test_seed: int | None) -> Journal:
    secret = fresh_secret() if test_seed is None else guessable_secret(test_seed)
    return Journal(secret=secret.hex(), context=context.hex(), private=test_seed is None)


def _write_parts(
    folder: Path,
    plan: ReleasePlan,
    mixers: list[Mixer],
    threads: int,
    progress: Progress | None,
) -> None:
    """Write the parts that are not there yet, drawing a few blocks ahead."""
    missing = []
    done = 0
    for number, pieces in enumerate(part_layout(plan.mechanism)):
        if part_path(folder, number).exists():
            done += sum(block.num_rows for _, block in pieces)
        else:
            missing.append((number, pieces))
    tasks = [piece for _, pieces in missing for piece in pieces]
    with ThreadPoolExecutor(threads) as pool:
        rows = _ordered(pool, lambda piece: mixers[piece[0]].rows(piece[1]), tasks, threads + 2)

        def pieces_done(pieces: list[Piece]) -> Iterator[tuple[int, Rows]]:
            nonlocal done
            for table, block in pieces:
                yield table, next(rows)
                done += block.num_rows
                if progress is not None:
                    progress(done, plan.num_mixtures)

        for number, pieces in missing:
            write_part(part_path(folder, number), plan.mechanism, pieces_done(pieces))


def _ordered(
    pool: ThreadPoolExecutor, work: Callable[[Piece], Rows], tasks: list[Piece], ahead: int
) -> Iterator[Rows]:
    """Yield results in the order of their tasks, with at most ``ahead`` of them in the making."""
    pending: deque[Future[Rows]] = deque()
    for task in tasks:
        pending.append(pool.submit(work, task))
        if len(pending) >= ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _seal(folder: Path, plan: ReleasePlan, certificate: Certificate) -> None:
    """Write the card and the certificate, which makes the folder a release."""
    for leftover in folder.rglob("*.tmp"):
        leftover.unlink()
    write_durably(folder / CARD_NAME, dataset_card(plan).encode())
    certificate = certificate.model_copy(update={"files": file_digests(folder)})
    write_durably(folder / FILE_NAME, certificate.to_bytes())


def _make_alike(folder: Path) -> None:
    """Give all files the usual modes and one fixed time: how long each took depends on the data."""
    mask = os.umask(0)
    os.umask(mask)
    for path in [*folder.rglob("*"), folder]:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
        os.utime(path, (_FILE_TIME, _FILE_TIME))


def ledger_charge(
    ledger: str | Path | None, dataset_id: str | None, plan: ReleasePlan, note: str
) -> Callable[[], object] | None:
    """Return what charges a plan to a ledger, or None without one."""
    if (ledger is None) != (dataset_id is None):
        given = "ledger" if dataset_id is None else "dataset_id"
        _validate.fail("ledger and dataset_id", "both, or neither", f"{given} alone")
    if ledger is None or dataset_id is None:
        return None
    if not Path(ledger).is_file():
        _validate.fail("ledger", "an existing ledger; see privmix ledger open", str(ledger))
    book, name = Ledger(ledger), dataset_id
    return lambda: book.charge(name, plan.event, note=note)


def check_out(out: str | Path) -> Path:
    """Return the absolute path of a release folder that can be made, or fail."""
    path = Path(out).absolute()
    free = "a folder that does not exist yet or is empty"
    if path.is_symlink():
        _validate.fail(f"out={out}", free, "a symbolic link")
    if path.exists() and not path.is_dir():
        _validate.fail(f"out={out}", free, "a file")
    if path.is_dir() and any(path.iterdir()):
        _validate.fail(f"out={out}", free, "a folder with files in it")
    if not path.parent.is_dir():
        _validate.fail(f"out={out}", "a place in an existing folder", "no such folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        _validate.fail(f"out={out}", "a place in a writable folder", "one that is not writable")
    return path


def recheck_plan(plan: ReleasePlan) -> None:
    """Account for the plan anew: a plan file that claims too little is refused."""
    epsilon = account(plan.event, plan.delta).epsilon
    if epsilon > plan.epsilon * (1 + 1e-6):
        _validate.fail(
            "plan.epsilon", f"at least {epsilon!r}, what the mechanism costs", plan.epsilon
        )
