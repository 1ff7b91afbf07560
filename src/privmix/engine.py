"""Run a plan on records and seal the release."""

from __future__ import annotations

import hashlib
import os
from contextlib import nullcontext, suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import ArrayLike

from privmix import _validate
from privmix._validate import printable
from privmix.backends import Backend, BackendName, Job, open_backend
from privmix.backends.local import LocalBackend
from privmix.backends.parts import write_parts, write_rounds, write_shared_parts
from privmix.foreign.files import MOST_JSON_BYTES
from privmix.inputs.arrays import Source
from privmix.inputs.extractor import Extractor, ExtractorIdentity, check_table
from privmix.inputs.feature_names import check_names, names_of
from privmix.inputs.labels import BadRecordPolicy
from privmix.inputs.tally import MAX_BAD_SHARE, MAX_MISSED_SHARE, Shares
from privmix.mechanism import AdaptiveConfig
from privmix.planning.plan import ReleasePlan
from privmix.planning.recheck import recheck
from privmix.preprocess import FILE_NAME as PREPROCESSING_NAME
from privmix.publishing.card import CARD_NAME, dataset_card
from privmix.publishing.certificate import FILE_NAME, Certificate
from privmix.publishing.folder import part_layout, seal_folder
from privmix.publishing.release import Release, empty_preprocessor
from privmix.publishing.sealing import set_file_times
from privmix.publishing.signature import sign_folder
from privmix.records.binding import bound_records, feature_source
from privmix.records.bounded import Progress, Records
from privmix.rng import MasterKey, fresh_name
from privmix.running.durable import write_durably
from privmix.running.finished import FinishedFiles, check_sealed, warn_of_damage
from privmix.running.journal import Journal, RunFolder, RunTerms, check_out, make_once
from privmix.running.ledger import ledger_charge
from privmix.running.resources import parse_bytes, return_memory, spare_memory
from privmix.running.shared_store import STATE_NAME, SharedParts, store_location
from privmix.running.unrecorded import unrecorded


def release(
    features: ArrayLike | Source,
    labels: ArrayLike,
    plan: ReleasePlan,
    *,
    out: str | Path,
    units: ArrayLike | None = None,
    on_bad_record: BadRecordPolicy = "error",
    max_bad_share: float = MAX_BAD_SHARE,
    max_missed_share: float = MAX_MISSED_SHARE,
    resume: bool = False,
    ledger: str | Path | None = None,
    dataset_id: str | None = None,
    sign_key: Ed25519PrivateKey | None = None,
    who: str | None = None,
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
        max_bad_share: With ``zero``, a larger share of bad records stops before anything is spent.
        max_missed_share: A larger share of a column's values outside the schema of the ``tabular``
            extractor stops likewise.
        resume: Go on with a run into ``out`` that was cut off: same plan, same records, same bits,
            no second charge.
        ledger: Ledger file to charge before anything is drawn. Without one, a second release or
            training in a process warns with what all of them cost together.
        dataset_id: The data set's name in the ledger.
        sign_key: Key that signs the certificate; see ``privmix.publishing.signature``.
        who: Who releases, for the ledger: free text; the login name by default.
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

    Example:
        >>> import numpy as np
        >>> from privmix import Schema, plan_release, release
        >>> schema = Schema(classes=[0, 1], num_features=3, num_records=200, feature_clip_norm=1.0)
        >>> plan = plan_release(
        ...     schema, target_epsilon=2.0, target_delta=1e-5, design="stratified", rows_per_class=5
        ... )
        >>> x, y = np.eye(3)[np.arange(200) % 2], np.arange(200) % 2
        >>> made = release(x, y, plan, out="made")
        >>> made.features.shape, made.certificate.private
        ((10, 3), True)

    """
    if plan.data_schema is None:
        _validate.fail(
            "plan.schema", "a schema; plan with --schema or plan_release(schema)", "none"
        )
    if extractor is not None and not (
        hasattr(extractor, "transform")
        # Without one it is not known to be public: scikit-learn's are fitted to records.
        and isinstance(getattr(extractor, "identity", None), ExtractorIdentity)
    ):
        allowed = "an extractor, such as privmix.features.get_extractor('sentence')"
        _validate.fail("extractor", allowed, repr(extractor))
    if threads is not None:
        _validate.integer("threads", threads)
    target = check_out(out)
    location = None if store is None else store_location(store)
    if max_memory is not None:
        spare_memory()  # before the accountant
    recheck_plan(plan)
    plan.unit.check_given(units is not None)
    limit = None if max_memory is None else parse_bytes("max_memory", max_memory)
    threads = plan.most_threads(limit) if threads is None else threads
    charge = ledger_charge(
        ledger,
        dataset_id,
        plan.event,
        name=printable(out),
        kind="release",
        private=test_seed is None,
        who=who,
    )
    if extractor is not None:
        if getattr(extractor, "name", None) == "tabular":
            check_table(extractor.identity, plan.data_schema.table, "extractor")
        if hasattr(extractor, "tally"):
            shares = Shares(max_bad_share, max_missed_share)
            extractor.tally(features).check("features", shares)
        features = extractor.transform(features)  # type: ignore[arg-type]
    check_names("features", names_of(features), plan.data_schema.feature_names, "the schema")
    records, sums_bytes = read_records(
        features,
        labels,
        plan,
        on_bad_record,
        units=units,
        max_bad_share=max_bad_share,
        max_memory=limit,
        threads=threads,
    )
    # A run that goes on was counted when it began, in this process or in another one.
    silent = charge is not None or test_seed is not None or resume
    spending = nullcontext() if silent else unrecorded(plan.event, plan.delta, "privmix.release")
    with open_backend(backend, threads, scheduler, workers) as opened, spending:
        return release_records(
            records,
            plan,
            RunTerms(target, resume, charge, test_seed),
            sums_bytes=sums_bytes,
            backend=opened,
            store=location,
            extractor=None if extractor is None else extractor.identity,
            sign_key=sign_key,
            progress=progress,
        )


def read_records(
    features: ArrayLike | Source,
    labels: ArrayLike,
    plan: ReleasePlan,
    on_bad_record: BadRecordPolicy,
    *,
    units: ArrayLike | None,
    max_bad_share: float = MAX_BAD_SHARE,
    max_memory: int | None,
    threads: int,
    position: str = "max_memory",
    progress: Progress | None = None,
) -> tuple[Records, int]:
    """Bound the records of a plan with a schema, in memory or left where they are.

    Returns:
        The records, and the bytes that sums may take where the records are read in sweeps.

    """
    assert plan.data_schema is not None
    source = feature_source(features, plan.data_schema.num_features)
    layout = plan.memory(
        source.shape[0],
        max_memory,
        threads,
        resident_bytes=source.resident_bytes,
        position=position,
    )
    records = bound_records(
        source,
        labels,
        plan.data_schema,
        on_bad_record,
        units=units,
        max_bad_share=max_bad_share,
        in_memory=layout.in_memory,
        threads=threads,
        progress=progress,
    )
    return records, layout.sums_bytes


def release_records(
    records: Records,
    plan: ReleasePlan,
    terms: RunTerms,
    *,
    sums_bytes: int = 0,
    backend: Backend | None = None,
    threads: int = 1,
    store: str | None = None,
    extractor: ExtractorIdentity | None = None,
    sign_key: Ed25519PrivateKey | None = None,
    progress: Progress | None = None,
) -> Release:
    """Publish bounded records: draw and write in a private run folder, seal, and move into place.

    ``terms`` say where, whether a run is resumed, and how it is charged. ``sums_bytes`` bounds the
    sums of one sweep over streamed records. Without a ``backend``, that many ``threads`` of this
    process do the mixing. ``store`` is a shared store for the parts, out of
    ``shared_store.store_location``.
    """
    # Validated here, where every release passes: a copy with changed fields (``model_copy``) was not.
    plan = ReleasePlan.from_json(plan.to_json())
    plan.unit.check_given(records.units is not None)
    _check_count(plan, records)
    if sign_key is not None and terms.test_seed is not None:
        _validate.fail("sign_key", "nothing beside test_seed, which protects nobody", "a key")
    certificate = Certificate.for_plan(plan, private=True, files={}, extractor=extractor)
    size = len(certificate.to_bytes()) + 128 * len(part_layout(plan.mechanism))
    if size > MOST_JSON_BYTES:  # nobody would read it
        _validate.fail("plan", f"one whose certificate has at most {MOST_JSON_BYTES} bytes", size)
    return_memory()  # the accountant's grids
    origin = b"" if extractor is None else extractor.content()
    context = hashlib.sha256(plan.digest() + records.digest() + origin).digest()

    opened = LocalBackend(threads) if backend is None else backend
    if plan.design == "adaptive":
        _check_rounds_store(store)
    made_here = False

    def prepare(run: RunFolder) -> None:
        if store is not None and Path(store).is_relative_to(terms.out):
            _validate.fail("store", "a path outside the release folder", store)
        if store is not None and not (run.folder / STATE_NAME).exists():
            SharedParts(location=store, token=fresh_name()).write(run)
        shared = SharedParts.of_run(run, store)
        if shared is not None:
            shared.store.claim()
            try:
                opened.check_store(shared.store)
            finally:
                shared.store.give_up()

    def make(run: RunFolder, journal: Journal) -> str:
        nonlocal made_here
        folder, key, finished = run.release_folder, journal.key, FinishedFiles(run)
        mixed = _preprocess(folder, plan, _sampled(plan, records, key), key, finished)
        job = Job(plan.mechanism, mixed, key, sums_bytes=sums_bytes)
        shared = SharedParts.of_run(run, store)
        if isinstance(plan.mechanism, AdaptiveConfig):
            write_rounds(folder, certificate, job, opened, finished, progress)
        elif shared is None:
            layout = part_layout(plan.mechanism)
            write_parts(folder, plan, job, opened, finished, progress, layout)
        else:
            shared = write_shared_parts(run, plan, job, opened, shared, progress)
        digests = {} if shared is None else shared.digests
        stamped = certificate.sealed(private=journal.private, files={})
        digest = _seal(folder, stamped, finished, digests)
        made_here = True
        return digest

    def finish(run: RunFolder) -> None:
        shared, folder = SharedParts.of_run(run, store), run.release_folder
        sealed = Release(folder).certificate
        if sealed.sealed(private=True, files={}) != certificate:
            # Cut off between sealing and publishing: the journal is gone, the plan is known still.
            _validate.fail(f"resuming {terms.out}", "the plan it was begun with", "another")
        if not made_here:  # the key is gone, so that nothing can be made again
            check_sealed(run, sealed.files, {} if shared is None else shared.digests)
        if sign_key is not None:
            sign_folder(folder, sign_key)
        if shared is not None:
            shared.store.complete(folder, FILE_NAME)
            if "://" not in shared.location:
                with suppress(PermissionError):  # files of workers that run as somebody else
                    _make_alike(Path(shared.location))
        _make_alike(folder)

    make_once(terms, Journal(context=context.hex()), make, finish, prepare=prepare)
    return Release(terms.out)


def _check_rounds_store(store: str | None) -> None:
    """Refuse a store for rounds, each of which is read for the next."""
    if store is not None:
        allowed = "nothing for design adaptive; plan another, such as --design hybrid"
        _validate.fail("store", allowed, store)


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


def _preprocess(
    folder: Path, plan: ReleasePlan, records: Records, key: MasterKey, finished: FinishedFiles
) -> Records:
    """Run the plan's steps and return the records to mix.

    What a step publishes is kept as soon as it is made, and a resumed run reads it: another
    machine may round eigenvectors apart, and records transformed apart must never meet the same
    noise twice. Results that were damaged are made again, and must be the same.
    """
    preprocessor = empty_preprocessor(plan)
    if preprocessor is None:
        return records
    path = folder / PREPROCESSING_NAME
    preprocessor = preprocessor.with_results(_whole_results(path, finished))
    while not preprocessor.is_complete:
        preprocessor = preprocessor.run_next(records, key)
        if preprocessor.is_charged:
            content = preprocessor.to_bytes()
            digest = hashlib.sha256(content).hexdigest()
            finished.record(f"{PREPROCESSING_NAME}: {len(preprocessor.results)}", digest)
            write_durably(path, content)
    return preprocessor.transform_records(records)


def _whole_results(path: Path, finished: FinishedFiles) -> bytes | None:
    """Return what charged steps have published so far; None where there is nothing, or it is damaged."""
    if not path.exists() and not path.is_symlink():
        return None
    if path.is_file() and not path.is_symlink():
        content = path.read_bytes()
        if finished.knows(PREPROCESSING_NAME, hashlib.sha256(content).hexdigest()):
            return content
    warn_of_damage(PREPROCESSING_NAME)
    path.unlink()
    return None


def _seal(
    folder: Path, certificate: Certificate, finished: FinishedFiles, shared: dict[str, str]
) -> str:
    """Write the card and the certificate, which makes the folder a release; return its digest.

    ``shared`` are the digests of parts that are elsewhere.
    """
    card = dataset_card(certificate).encode()
    write_durably(folder / CARD_NAME, card)
    due = {
        CARD_NAME: hashlib.sha256(card).hexdigest(),
        PREPROCESSING_NAME: finished.latest(PREPROCESSING_NAME),
    }
    return seal_folder(
        folder,
        certificate,
        lambda name: due[name] if name in due else finished.digest(name),
        shared,
    )


def _make_alike(folder: Path) -> None:
    """Give all files the usual modes and one fixed time."""
    mask = os.umask(0)
    os.umask(mask)
    for path in [*folder.rglob("*"), folder]:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
    set_file_times(folder)


def recheck_plan(plan: ReleasePlan) -> None:
    """Account for the plan anew, before anything is spent: a plan that states more epsilon or less
    than its parameters give is refused.
    """
    recheck(plan.event, plan.epsilon, plan.delta, plan.accountants, plan.risk)
