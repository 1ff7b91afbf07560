"""The Parquet files of a release, each written by a back end and recorded once it is finished."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from privmix import _validate
from privmix.backends import Backend, Job
from privmix.backends.local import LocalBackend
from privmix.mechanism import AdaptiveConfig
from privmix.mixer import Rows
from privmix.planning.plan import ReleasePlan
from privmix.publishing.certificate import Certificate
from privmix.publishing.folder import (
    WEIGHTS,
    TableBlock,
    part_features,
    part_layout,
    part_name,
    write_part,
)
from privmix.records.bounded import Progress
from privmix.rounds.public_model import PublicModel
from privmix.rounds.residuals import Rounds
from privmix.running.finished import FinishedFiles
from privmix.running.journal import RunFolder
from privmix.running.resources import default_threads
from privmix.running.shared_store import SharedParts


def write_parts(
    folder: Path,
    plan: ReleasePlan,
    job: Job,
    backend: Backend,
    finished: FinishedFiles,
    progress: Progress | None,
    layout: list[list[TableBlock]],
) -> None:
    """Write the parts that are not there yet as they were finished."""
    missing = []
    done = 0
    for number, table_blocks in enumerate(layout):
        if finished.is_whole(folder / part_name(number), part_name(number)):
            done += sum(block.num_rows for _, block in table_blocks)
        else:
            missing.append((number, table_blocks))
    tasks = [table_block for _, table_blocks in missing for table_block in table_blocks]
    with closing(backend.rows(job, tasks)) as rows:

        def finished_blocks(table_blocks: list[TableBlock]) -> Iterator[tuple[int, Rows]]:
            nonlocal done
            for table, block in table_blocks:
                yield table, next(rows)
                done += block.num_rows
                if progress is not None:
                    progress(done, plan.num_mixtures)

        for number, table_blocks in missing:
            name = part_name(number)
            write_part(
                folder / name,
                plan.mechanism,
                finished_blocks(table_blocks),
                partial(finished.record, name),
            )


def write_rounds(
    folder: Path,
    certificate: Certificate,
    job: Job,
    backend: Backend,
    finished: FinishedFiles,
    progress: Progress | None,
) -> None:
    """Write what the rounds of design ``adaptive`` build on, and then round after round.

    A round's weights follow from the rows of those before it, as they were published: a resumed run
    reads them. The back end makes the signed rows; rounds are made by threads of this process.
    """
    mechanism, plan = certificate.mechanism, certificate.to_plan()
    assert isinstance(mechanism, AdaptiveConfig) and plan.data_schema is not None
    mixtures, rounds = mechanism.components
    layout = part_layout(mechanism)
    first = len(layout) - rounds.num_rounds
    write_parts(folder, plan, job, backend, finished, progress, layout[:first])
    published = (rows for number in range(first) for rows in part_features(folder, number))
    model = PublicModel.of(mechanism, plan.data_schema.feature_clip_norm, published)
    threads = backend.threads if isinstance(backend, LocalBackend) else default_threads()
    maker, weights = Rounds(rounds, job.records, job.key), model.first
    for number, table_blocks in enumerate(layout[first:], start=first):
        name = part_name(number)
        if finished.is_whole(folder / name, name):
            weights, features = part_features(folder, number)
        else:
            rows = maker.rows(number - first, weights, threads)
            features = rows.features
            made = [(WEIGHTS, rows._replace(features=weights)), (1, rows)]
            write_part(folder / name, mechanism, made, partial(finished.record, name))
        weights = model.after(weights, features)
        if progress is not None:
            progress(mixtures.num_mixtures + table_blocks[-1][1].stop, plan.num_mixtures)


def write_shared_parts(
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
    sizes = {
        part_name(n): sum(block.num_rows for _, block in table_blocks) for n, table_blocks in layout
    }
    missing = [part for part in layout if part_name(part[0]) not in shared.whole]
    with closing(backend.parts(job, missing, shared.store)) as written:
        for name, digest in written:
            shared = shared.with_digest(name, digest)
            shared.write(run)
            if progress is not None:
                progress(sum(sizes[part] for part in shared.whole), plan.num_mixtures)
    damaged = shared.store.check(shared.digests)
    if damaged:
        shared.with_damaged(damaged).write(run)
        allowed = "parts as they were written; resume (--resume) makes others again"
        _validate.fail(shared.store.position, allowed, f"others: {', '.join(damaged)}")
    return shared
