"""Run a plan on records and seal the release."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.accounting import account
from privmix.backends import Backend, BackendName, Job, open_backend
from privmix.backends.local import LocalBackend
from privmix.certificate import FILE_NAME, Certificate
from privmix.designs import (
    WEIGHT_SCALE,
    Choices,
    Inclusions,
    RowBlock,
    balanced_eligibility,
    bernoulli_inclusions,
    dirichlet_weights,
    random_eligibility,
    split_inclusions,
    transposed_choices,
    uniform_inclusions,
)
from privmix.extractor import Extractor, ExtractorIdentity
from privmix.journal import Charge, Journal, RunFolder, check_out, make_once, write_durably
from privmix.ledger import ledger_charge
from privmix.mechanism import MixtureConfig, ReleaseConfig
from privmix.mixing import BlockSums, divide
from privmix.noise import rounded_gaussian
from privmix.plan import ReleasePlan
from privmix.preprocess import FILE_NAME as PREPROCESSING_NAME
from privmix.records import (
    BadRecordPolicy,
    FixedPoint,
    Progress,
    Records,
    bound_records,
    feature_source,
)
from privmix.resources import parse_bytes, return_memory, spare_memory
from privmix.rng import KeyStream, MasterKey, fresh_name
from privmix.shared_store import STATE_NAME, SharedParts, store_location
from privmix.sources import Source
from privmix.store import (
    CARD_NAME,
    Piece,
    Release,
    Rows,
    dataset_card,
    empty_preprocessor,
    file_digests,
    part_layout,
    part_name,
    write_part,
)

# 1 January 2000: a date that archives of every kind can hold, the same for every release.
_FILE_TIME = 946684800
_NOISE_AT_ONCE = 1 << 16  # draws that stay in the cache until they are added


class Mixer:
    """Makes the rows of one table of mixtures, block by block, under one master key.

    Records count in shards, fixed runs of them: the sums of a block are the sums over shards, in any
    order and wherever they are made. The same key, mechanism and records give the same bits.

    Args:
        config: The table's mechanism.
        records: The private records.
        key: The release's key.
        table: Number of the table in the release; each has its own streams.
        sums: What adds records up.

    """

    def __init__(
        self,
        config: MixtureConfig,
        records: Records,
        key: MasterKey,
        table: int = 0,
        sums: type[BlockSums] = BlockSums,
    ) -> None:
        records.check_sampled()
        self.config, self._records, self._key, self._table = config, records, key, table
        self._new_sums = sums
        self._eligible = self._draw_eligibility()
        self._lock = Lock()
        self._split: dict[int, list[Inclusions]] = {}  # uniform: of blocks in the making
        # What follows from a shard is kept for all of them only where their features are as well.
        kept = None if records.in_memory else 1
        self._classes = lru_cache(kept)(self._split_by_class)
        self._choices = lru_cache(kept)(self._draw_choices)

    @property
    def shards(self) -> list[tuple[int, int]]:
        """The runs of records (start, stop) that sums are made of."""
        count, size = self._records.count, self.config.shard_records
        return [(start, min(start + size, count)) for start in range(0, count, size)]

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

    def _split_by_class(self, shard: int) -> list[NDArray[np.int32]]:
        """Return the places of each class's records in a shard, in their order in the input."""
        labels = self._records.labels[slice(*self.shards[shard])]
        order = np.argsort(labels, kind="stable").astype(np.int32)
        bounds = np.searchsorted(labels[order], np.arange(self.config.num_classes + 1))
        return [order[a:b] for a, b in pairwise(bounds)]

    def _draw_choices(self, shard: int) -> Choices:
        config, (start, stop) = self.config, self.shards[shard]
        assert config.rows_per_record is not None
        stream = self._stream("choice", shard=shard)
        rows = config.rows_per_record
        return transposed_choices(stream, rows, config.num_mixtures, stop - start)

    def new_sums(self, block: RowBlock) -> BlockSums:
        """Return sums of nothing, for a block to be added to."""
        config = self.config
        width = config.num_classes if config.labels == "mixed" else 0
        weighted = config.weight_clip is not None
        return self._new_sums(block.num_rows, config.num_features, width, weighted=weighted)

    def sums(self, block: RowBlock, shards: Iterable[int] | None = None) -> BlockSums:
        """Return the exact integer sums of a block, over all shards or some. Private.

        Two inputs that differ by the last record differ, under the same key, by that record alone
        in the rows that include it.
        """
        sums = self.new_sums(block)
        for shard in range(len(self.shards)) if shards is None else shards:
            self.add(block, shard, self._records.part(*self.shards[shard]), sums)
        self._split.pop(block.index, None)
        return sums

    def add(self, block: RowBlock, shard: int, values: NDArray[np.int16], sums: BlockSums) -> None:
        """Add to a block's sums a shard's records, whose features are ``values``."""
        labels, one = self._records.labels[slice(*self.shards[shard])], self._records.label_one
        for rows, members, inclusions in self._inclusions(block, shard):
            if inclusions is None:
                sums.add_all(values, labels, one, rows, members)
            else:
                sums.add(values, labels, one, rows, inclusions)

    def _inclusions(
        self, block: RowBlock, shard: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], Inclusions | None]]:
        """Yield (rows of the block, a pool of a shard's records, who of it enters these rows).

        No inclusions stand for the whole pool in every row.
        """
        config, everywhere = self.config, np.arange(block.num_rows)
        start, stop = self.shards[shard]
        everybody = np.arange(stop - start, dtype=np.int32)
        if config.design == "transposed":
            with self._lock:
                choices = self._choices(shard)
            yield everywhere, everybody, choices.of_block(block)
        elif config.design == "uniform":
            yield everywhere, everybody, self._uniform(block)[shard]
        elif self._eligible is not None:
            for k, pool in enumerate(self._classes(shard)):
                rows = np.flatnonzero(self._eligible[block.start : block.stop, k])
                if rows.size and pool.size:
                    inclusions = self._bernoulli(block, shard, rows.size, pool, f"class={k}/")
                    yield rows, pool, inclusions
        else:
            pool = everybody
            if block.class_index is not None:
                pool = self._classes(shard)[block.class_index]
            yield everywhere, pool, self._bernoulli(block, shard, block.num_rows, pool, "")

    def _bernoulli(
        self, block: RowBlock, shard: int, num_rows: int, pool: NDArray[np.int32], name: str
    ) -> Inclusions | None:
        config, signed = self.config, self.config.design == "signed"
        if config.inclusion_prob == 1 and not signed:
            return None
        inclusions = bernoulli_inclusions(
            self._stream(f"{name}inclusion", shard=shard, block=block.index),
            self._stream(f"{name}inclusion-extra", shard=shard, block=block.index),
            config.inclusion_prob,
            num_rows,
            pool.size,
            signed=signed,
        )
        start, stop = self.shards[shard]
        if pool.size == stop - start:  # everybody, in order
            return inclusions
        return inclusions._replace(records=pool[inclusions.records])

    def _uniform(self, block: RowBlock) -> list[Inclusions]:
        """Draw a block's inclusions, once, and divide them by shards."""
        shards = self._split.get(block.index)
        if shards is None:
            config, size = self.config, round(self.config.mix_size)
            stream = self._stream("inclusion", block=block.index)
            drawn = uniform_inclusions(stream, size, block.num_rows, config.num_records)
            if config.weight_alpha is not None and config.weight_clip is not None:
                stream = self._stream("weight", block=block.index)
                weights = dirichlet_weights(
                    stream, config.weight_alpha, config.weight_clip, block.num_rows, size
                )
                drawn = drawn._replace(weights=weights)
            shards = split_inclusions(drawn, config.shard_records, len(self.shards))
            self._split[block.index] = shards
        return shards

    def rows(self, block: RowBlock) -> Rows:
        """Return the published rows of a block: each value is a function of one noisy integer."""
        return self.publish(block, self.sums(block))

    def publish(self, block: RowBlock, sums: BlockSums) -> Rows:
        """Add the noise to the whole sums of a block, and divide."""
        self._split.pop(block.index, None)
        published = self._publish(sums.features, self._records.feature_grid, block, "feature")
        if self.config.labels == "mixed":
            mixed = self._publish(sums.labels, self._records.label_grid, block, "label")
            return Rows(published, label_weights=mixed)
        if block.class_index is None:
            return Rows(published)
        return Rows(published, labels=np.full(block.num_rows, block.class_index, dtype=np.int64))

    def _publish(
        self,
        sums: NDArray[np.int64] | NDArray[np.int32],
        grid: FixedPoint,
        block: RowBlock,
        part: Literal["feature", "label"],
    ) -> NDArray[np.float32]:
        weighted = self.config.weight_clip is not None
        unit = WEIGHT_SCALE if weighted else 1
        stddev = self.config.noise_stddev(grid.sensitivity * unit, part)
        stream = self._stream(f"{part}-noise", block=block.index)
        extra = self._stream(f"{part}-noise-extra", block=block.index)
        published = np.empty(sums.shape, dtype=np.float32)
        step = max(1, _NOISE_AT_ONCE // sums.shape[1])
        room = np.empty(min(step, len(sums)) * sums.shape[1], dtype=np.int64)
        for start in range(0, len(sums), step):
            some = sums[start : start + step]
            noise = rounded_gaussian(stream, extra, stddev, some.size, out=room[: some.size])
            divisor = grid.scale * unit * self.config.divisor
            divide(some, noise.reshape(some.shape), divisor, published[start : start + step])
        return published


def make_mixers(
    mechanism: ReleaseConfig,
    records: Records,
    key: MasterKey,
    sums: type[BlockSums] = BlockSums,
) -> list[Mixer]:
    """Return the mixers of a release's tables; see :class:`Mixer`."""
    return [
        Mixer(config, records, key, table, sums)
        for table, config in enumerate(mechanism.components)
    ]


def release(
    features: ArrayLike | Source,
    labels: ArrayLike,
    plan: ReleasePlan,
    *,
    out: str | Path,
    units: ArrayLike | None = None,
    on_bad_record: BadRecordPolicy = "error",
    resume: bool = False,
    ledger: str | Path | None = None,
    dataset_id: str | None = None,
    test_seed: int | None = None,
    backend: BackendName = "local",
    scheduler: str | None = None,
    workers: int | None = None,
    store: str | Path | None = None,
    threads: int | None = None,
    extractor: Extractor | None = None,
    max_memory: int | str | None = None,
    progress: Progress | None = None,
) -> Release:
    """Publish private records under a plan. Spends the plan's budget.

    Args:
        features: (count, num_features) real numbers; longer vectors are clipped. A memory-mapped
            array or a source (``readers.read_labelled``) is read in runs. With an ``extractor``: the
            records that it turns into features.
        labels: (count,) values out of the schema's classes; (count, num_classes) numbers for other
            targets.
        plan: A plan with a schema.
        out: Release folder; must not exist, or be empty. It appears whole or not at all.
        units: (count,) integers or strings, the owner of each record, for a plan with a
            ``unit_column``; a sample of at most ``max_records_per_unit`` of each is mixed.
        on_bad_record: ``error`` or ``zero``; see ``records.bound_records``.
        resume: Go on with a run into ``out`` that was cut off: same plan, same records, same bits,
            no second charge.
        ledger: Ledger file to charge before anything is drawn.
        dataset_id: The data set's name in the ledger.
        test_seed: For tests only: repeatable rows that are **not private**; the certificate says
            so and ``verify`` rejects it.
        backend: Where the mixing runs: ``local``, ``dask`` or ``cuda``; see
            ``privmix.backends.open_backend``. The rows do not depend on it.
        scheduler: ``dask``: address of the cluster's scheduler.
        workers: ``dask`` without a scheduler: number of worker processes on this machine.
        store: A folder that does not exist yet or is empty, or the URL of an object store
            (``s3://...``), for the parts: the process that has finished a part writes it there, with
            ``dask`` a worker. In the end the store holds the whole release, and ``out`` all but the
            parts.
        threads: Number of threads; all processors by default. The rows do not depend on it.
        extractor: A public extractor (``privmix.features.get_extractor``), which the certificate
            then names; without one, features are taken as given.
        max_memory: Bytes that the process may take, a number or a text such as ``"1GB"``; half of
            the machine's memory by default. Records that do not fit are read again and again. The
            rows do not depend on it.
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
    if extractor is not None and not hasattr(extractor, "transform"):
        allowed = "an extractor, such as privmix.features.get_extractor('sentence')"
        _validate.fail("extractor", allowed, repr(extractor))
    if threads is not None:
        _validate.integer("threads", threads)
    target = check_out(out)
    location = None if store is None else store_location(store)
    if max_memory is not None:
        spare_memory()  # before the accountant
    recheck_plan(plan)
    check_units(plan, units is not None)
    limit = None if max_memory is None else parse_bytes("max_memory", max_memory)
    threads = plan.most_threads(limit) if threads is None else threads
    charge = ledger_charge(ledger, dataset_id, plan.event, note=target.name)
    if extractor is not None:
        features = extractor.transform(features)  # type: ignore[arg-type]
    records, sums_bytes = read_records(
        features, labels, plan, on_bad_record, units=units, max_memory=limit, threads=threads
    )
    with open_backend(backend, threads, scheduler, workers) as place:
        return release_records(
            records,
            plan,
            out=target,
            sums_bytes=sums_bytes,
            resume=resume,
            charge=charge,
            test_seed=test_seed,
            backend=place,
            store=location,
            extractor=None if extractor is None else extractor.identity,
            progress=progress,
        )


def read_records(
    features: ArrayLike | Source,
    labels: ArrayLike,
    plan: ReleasePlan,
    on_bad_record: BadRecordPolicy,
    *,
    units: ArrayLike | None,
    max_memory: int | None,
    threads: int,
    place: str = "max_memory",
    progress: Progress | None = None,
) -> tuple[Records, int]:
    """Bound the records of a plan with a schema, in memory or left where they are.

    Returns:
        The records, and the bytes that sums may take where the records are read in sweeps.

    """
    assert plan.data_schema is not None
    source = feature_source(features, plan.data_schema.num_features)
    layout = plan.memory(
        source.shape[0], max_memory, threads, resident_bytes=source.resident_bytes, place=place
    )
    records = bound_records(
        source,
        labels,
        plan.data_schema,
        on_bad_record,
        units=units,
        in_memory=layout.in_memory,
        threads=threads,
        progress=progress,
    )
    return records, layout.sums_bytes


def release_records(
    records: Records,
    plan: ReleasePlan,
    *,
    out: Path,
    sums_bytes: int = 0,
    resume: bool = False,
    charge: Charge | None = None,
    test_seed: int | None = None,
    backend: Backend | None = None,
    threads: int = 1,
    store: str | None = None,
    extractor: ExtractorIdentity | None = None,
    progress: Progress | None = None,
) -> Release:
    """Publish bounded records: draw and write in a private run folder, seal, and move into place.

    ``charge`` is called with the run's name before the key is drawn, and again, with the same name,
    when the run is resumed.
    ``sums_bytes`` bounds the sums of one sweep over streamed records. Without a ``backend``, that many
    ``threads`` of this process do the mixing. ``store`` is a shared store for the parts, out of
    ``shared_store.store_location``.
    """
    # Validated here, where every release passes: a copy with changed fields (``model_copy``) was not.
    plan = ReleasePlan.from_json(plan.to_json())
    check_units(plan, records.units is not None)
    _check_count(plan, records)
    certificate = Certificate.for_plan(plan, private=True, files={}, extractor=extractor)
    return_memory()  # the accountant's grids
    origin = b"" if extractor is None else extractor.model_dump_json().encode()
    context = hashlib.sha256(plan.digest() + records.digest() + origin).digest()

    place = LocalBackend(threads) if backend is None else backend

    def prepare(run: RunFolder) -> None:
        if store is not None and Path(store).is_relative_to(out):
            _validate.fail("store", "a place outside the release folder", store)
        if store is not None and not (run.folder / STATE_NAME).exists():
            SharedParts(location=store, token=fresh_name()).write(run)
        shared = SharedParts.of_run(run, store)
        if shared is not None:
            shared.store.claim()
            try:
                place.check_store(shared.store)
            finally:
                shared.store.give_up()

    def make(run: RunFolder, journal: Journal) -> None:
        folder, key = run.release_folder, journal.key
        mixed = _preprocess(folder, plan, _sampled(plan, records, key), key)
        job = Job(plan.mechanism, mixed, key, make_mixers, sums_bytes)
        shared = SharedParts.of_run(run, store)
        if shared is None:
            _write_parts(folder, plan, job, place, progress)
        else:
            shared = _write_shared_parts(run, plan, job, place, shared, progress)
        digests = {} if shared is None else shared.digests
        _seal(folder, plan, certificate.model_copy(update={"private": journal.private}), digests)

    def finish(run: RunFolder) -> None:
        shared, folder = SharedParts.of_run(run, store), run.release_folder
        sealed = Release(folder).certificate
        if sealed.model_copy(update={"files": {}, "private": True}) != certificate:
            # Cut off between sealing and publishing: the journal is gone, the plan is known still.
            _validate.fail(f"resuming {out}", "the plan it was begun with", "another")
        if shared is not None:
            shared.store.complete(folder, FILE_NAME)
            if "://" not in shared.location:
                with suppress(PermissionError):  # files of workers that run as somebody else
                    _make_alike(Path(shared.location))
        _make_alike(folder)

    begun = Journal(context=context.hex())
    make_once(
        out,
        begun,
        make,
        finish,
        prepare=prepare,
        resume=resume,
        charge=charge,
        test_seed=test_seed,
    )
    return Release(out)


def check_units(plan: ReleasePlan, given: bool) -> None:
    """Refuse records without owners where a plan protects owners, and the other way round."""
    if plan.unit_column is None and given:
        _validate.fail("units", "nothing: the plan protects records, not units", "some")
    if plan.unit_column is not None and not given:
        allowed = f"the {plan.unit_column!r} of each record, which the plan protects"
        _validate.fail("units", allowed, "nothing")


def _sampled(plan: ReleasePlan, records: Records, key: MasterKey) -> Records:
    """Return the records that take part: all, or a sample of each unit's."""
    if plan.max_records_per_unit is None:
        return records
    return records.sampled(key.stream("units"), plan.max_records_per_unit)


def _check_count(plan: ReleasePlan, records: Records) -> None:
    for config in plan.mechanism.components:
        if config.design == "uniform" and records.count != config.num_records:
            # Under replace_one the number of records is public, so saying it gives nothing away.
            _validate.fail("records", f"exactly num_records = {config.num_records}", records.count)


def _preprocess(folder: Path, plan: ReleasePlan, records: Records, key: MasterKey) -> Records:
    """Run the plan's steps and return the records to mix.

    What a step publishes is kept as soon as it is made, and a resumed run reads it: another
    machine may round eigenvectors apart, and records transformed apart must never meet the same
    noise twice.
    """
    preprocessor = empty_preprocessor(plan)
    if preprocessor is None:
        return records
    path = folder / PREPROCESSING_NAME
    preprocessor = preprocessor.with_results(path.read_bytes() if path.exists() else None)
    while not preprocessor.is_complete:
        preprocessor = preprocessor.run_next(records, key)
        if preprocessor.is_charged:
            write_durably(path, preprocessor.to_bytes())
    return preprocessor.transform_records(records)


def _write_parts(
    folder: Path, plan: ReleasePlan, job: Job, backend: Backend, progress: Progress | None
) -> None:
    """Write the parts that are not there yet."""
    missing = []
    done = 0
    for number, pieces in enumerate(part_layout(plan.mechanism)):
        if (folder / part_name(number)).exists():
            done += sum(block.num_rows for _, block in pieces)
        else:
            missing.append((number, pieces))
    tasks = [piece for _, pieces in missing for piece in pieces]
    with closing(backend.rows(job, tasks)) as rows:

        def pieces_done(pieces: list[Piece]) -> Iterator[tuple[int, Rows]]:
            nonlocal done
            for table, block in pieces:
                yield table, next(rows)
                done += block.num_rows
                if progress is not None:
                    progress(done, plan.num_mixtures)

        for number, pieces in missing:
            write_part(folder / part_name(number), plan.mechanism, pieces_done(pieces))


def _write_shared_parts(
    run: RunFolder,
    plan: ReleasePlan,
    job: Job,
    backend: Backend,
    shared: SharedParts,
    progress: Progress | None,
) -> SharedParts:
    """Have the parts written to a store that are not known to be there, and read all of them back."""
    shared.store.claim()
    layout = list(enumerate(part_layout(plan.mechanism)))
    sizes = {part_name(n): sum(block.num_rows for _, block in pieces) for n, pieces in layout}
    missing = [part for part in layout if part_name(part[0]) not in shared.digests]
    with closing(backend.parts(job, missing, shared.store)) as written:
        for name, digest in written:
            shared = shared.with_digest(name, digest)
            shared.write(run)
            if progress is not None:
                progress(sum(sizes[part] for part in shared.digests), plan.num_mixtures)
    damaged = shared.store.check(shared.digests)
    if damaged:
        shared.without(damaged).write(run)
        allowed = "parts as they were written; resume (--resume) makes others again"
        _validate.fail(shared.store.place, allowed, f"others: {', '.join(damaged)}")
    return shared


def _seal(
    folder: Path, plan: ReleasePlan, certificate: Certificate, shared: dict[str, str]
) -> None:
    """Write the card and the certificate, which makes the folder a release.

    ``shared`` are the digests of parts that are elsewhere.
    """
    for leftover in folder.rglob("*.tmp"):
        leftover.unlink()
    write_durably(folder / CARD_NAME, dataset_card(plan).encode())
    digests = dict(sorted((file_digests(folder) | shared).items()))
    certificate = certificate.model_copy(update={"files": digests})
    write_durably(folder / FILE_NAME, certificate.to_bytes())


def _make_alike(folder: Path) -> None:
    """Give all files the usual modes and one fixed time: how long each took depends on the data."""
    mask = os.umask(0)
    os.umask(mask)
    for path in [*folder.rglob("*"), folder]:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
        os.utime(path, (_FILE_TIME, _FILE_TIME))


def recheck_plan(plan: ReleasePlan) -> None:
    """Account for the plan anew: a plan file that claims too little is refused."""
    epsilon = account(plan.event, plan.delta).epsilon
    if epsilon > plan.epsilon * (1 + 1e-6):
        _validate.fail(
            "plan.epsilon", f"at least {epsilon!r}, what the mechanism costs", plan.epsilon
        )
