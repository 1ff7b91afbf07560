"""``privmix release``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from privmix import _validate
from privmix._validate import printable
from privmix.cli._common import (
    ERR,
    Design,
    FeaturesKey,
    Json,
    LabelColumns,
    LabelKey,
    Labels,
    MaxMemory,
    MaxRecordsPerUnit,
    SchemaFile,
    UnitColumn,
    among,
    app,
    note_centring,
    print_made,
    progress_bar,
    read_schema,
    read_text,
    refuse_beside,
    refuse_without,
    warn_of,
)
from privmix.cli._flags import DesignFlags, LedgerFlags, StepFlags, with_flags
from privmix.cli._raw import (
    Device,
    MaxBadShare,
    MaxMissedShare,
    RawFlags,
    SourceFacts,
    asked_shares,
    check_columns,
    check_owners,
    check_source,
    extract_with_progress,
    load_extractor,
    open_raw,
    tell,
)
from privmix.cli._signing import PassphraseFile, SignKey, ask_signing_key
from privmix.planning.flags import design_options, make_plan, preprocessing_steps
from privmix.planning.plan import PrivacyUnit, ReleasePlan, planned_sizes
from privmix.planning.summary import plan_notes
from privmix.records.bounded import Records
from privmix.running.resources import parse_bytes, spare_memory
from privmix.schema import Schema

if TYPE_CHECKING:
    from privmix.inputs.extractor import FeaturesHeader


# What says nothing without another option.
NEEDED = {"extractor": ("device",), "sign_key": ("passphrase_file",)}


@app.command("release", no_args_is_help=True)
@with_flags
def release_command(
    *,
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help=".parquet, .csv, .npz, .npy, .zarr, or a folder")
    ],
    out: Annotated[Path, typer.Option(help="Release folder; must not exist, or be empty.")],
    schema: SchemaFile = None,
    plan: Annotated[Path | None, typer.Option(help="Plan file made by privmix plan.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Largest epsilon, without --plan.")] = None,
    delta: Annotated[float | None, typer.Option(help="Its delta, without --plan.")] = None,
    label: LabelColumns = None,
    features_key: FeaturesKey = None,
    label_key: LabelKey = None,
    labels: Labels = None,
    raw: RawFlags,
    device: Device = None,
    design: Design = None,
    given: DesignFlags,
    flags: StepFlags,
    unit_column: UnitColumn = None,
    max_records_per_unit: MaxRecordsPerUnit = None,
    on_bad_record: Annotated[
        str,
        typer.Option(
            help="error: refuse a bad record (NaN, infinity, a missing or unknown label, a missing "
            "owner; raw: a damaged image, a wrong cell, ...); zero: blank it, whatever the others are."
        ),
    ] = "error",
    max_bad_share: MaxBadShare = None,
    max_missed_share: MaxMissedShare = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check everything, report it, and stop.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run into --out that was cut off.")
    ] = False,
    charged: LedgerFlags,
    backend: Annotated[
        str, typer.Option(help="Where the mixing runs: local, dask or cuda; the rows are the same.")
    ] = "local",
    scheduler: Annotated[
        str | None, typer.Option(help="dask: a running scheduler, tls://HOST:PORT.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="dask: instead, worker processes on this machine.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Folder or URL (s3://...) to which the process that makes a part writes it."
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads [all processors].")] = None,
    max_memory: MaxMemory = None,
    sign_key: SignKey = None,
    passphrase_file: PassphraseFile = None,
    test_seed: Annotated[
        int | None, typer.Option(help="Tests only: repeatable, NOT PRIVATE; verify rejects it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Publish private records. Spends the budget.

    Examples:
        privmix release train.parquet --label intent --schema schema.json --epsilon 1 --delta 1e-5
        --out release/

        privmix release train.npz --features-key x --label-key y --plan plan.json --out release/

        privmix release features.npy --labels labels.npy --plan plan.json --out release/
        --max-memory 1GB

        privmix release train.csv --label intent --text-column text --extractor sentence
        --plan plan.json --out release/

        privmix release train.npz --features-key x --label-key y --plan plan.json --out release/
        --backend dask --scheduler tls://10.0.0.5:8786

    """
    asked = locals() | vars(raw)
    extractor = raw.extractor
    from privmix.backends import open_backend
    from privmix.engine import read_records, recheck_plan, release_records
    from privmix.features.kept import kept_features
    from privmix.inputs.extractor import FeaturesHeader
    from privmix.inputs.readers import open_labelled
    from privmix.running.journal import RunFolder, RunTerms, check_out
    from privmix.running.ledger import ledger_charge
    from privmix.running.shared_store import store_location

    if threads is not None:
        _validate.integer("--threads", threads)
    check_source(source)
    _validate.one_of("--on-bad-record", on_bad_record, ("error", "zero"))
    blanks = on_bad_record == "zero"
    shares = asked_shares(max_bad_share, max_missed_share, blanks=blanks, extractor=extractor)
    for needed, given_to in NEEDED.items():
        if asked[needed] is None:
            refuse_without("--" + needed.replace("_", "-"), among(given_to, asked))
    if charged.ledger is None:
        refuse_without("--ledger", {"who": charged.who})
    if sign_key is not None and test_seed is not None:
        _validate.fail("--sign-key", "nothing beside --test-seed, which protects nobody", sign_key)
    key = None if sign_key is None else ask_signing_key("--sign-key", sign_key, passphrase_file)
    target = check_out(out)
    location = None if store is None else store_location(store)
    limit = None if max_memory is None else parse_bytes("--max-memory", max_memory)
    if limit is not None:
        spare_memory()  # before the accountant
    if plan is not None:
        others = among(
            ("epsilon", "delta", "schema", "design", "unit_column", "max_records_per_unit"), asked
        )
        refuse_beside("--plan, which states it", others | given | flags)
        made = ReleasePlan.from_json(read_text(plan), position=str(plan))
        recheck_plan(made)
    else:
        for option, value in (("--schema", schema), ("--epsilon", epsilon), ("--delta", delta)):
            if value is None:
                _validate.fail(option, "a value, unless --plan is given", "nothing")
        assert schema is not None and epsilon is not None and delta is not None
        facts = read_schema(schema)
        options = design_options(facts.num_classes, **given)
        preprocessing = preprocessing_steps(**flags)
        note_centring(preprocessing)
        made = make_plan(
            facts,
            planned_sizes(facts),
            design,
            options,
            epsilon=epsilon,
            delta=delta,
            preprocessing=preprocessing,
            unit=PrivacyUnit(unit_column, max_records_per_unit),
        )
        for name, text in plan_notes(made):
            ERR.print(f"note: {name}: {text}")
    if made.data_schema is None:
        _validate.fail(f"{plan}.schema", "a schema; make the plan with --schema", "none")
    unit_column = made.unit_column
    charge = ledger_charge(
        charged.ledger,
        charged.dataset_id,
        made.event,
        name=printable(out),
        kind="release",
        private=test_seed is None,
        who=charged.who,
    )
    threads = made.most_threads(limit) if threads is None else threads
    mixing = open_backend(backend, threads, scheduler, workers)
    unfinished = RunFolder(target).is_unfinished
    if charge is not None and not unfinished:
        charge.check()  # before the records are looked at
    with ExitStack() as kept:
        if extractor is not None:
            refuse_beside("--extractor", among(("features_key", "label_key", "labels"), asked))
            # A run that was cut off while it extracted has drawn nothing yet, so nothing to resume.
            resume = resume and unfinished
            maker = load_extractor(extractor, device, made.data_schema)
            records_of = open_raw(
                source,
                maker,
                raw,
                SourceFacts.of_schema(made.data_schema),
                label=label,
                unit_column=unit_column,
                on_bad_record=on_bad_record,
                shares=shares,
            )
            source = kept.enter_context(kept_features(target, tell)) / "features.parquet"
            unit_column = unit_column and "unit"
            many = 1 if made.data_schema.target == "class" else made.data_schema.num_classes
            label = [f"label{i}" for i in range(many)]
            extract_with_progress(records_of, maker, source, label=label, keep_parts=True)
        else:
            raw.refuse_columns()
        header = FeaturesHeader.of_file(source)
        _check_vectors(source, header, made.data_schema, label, unit_column)
        data = open_labelled(
            source,
            label=label,
            classes=made.data_schema.classes,
            features_key=features_key,
            label_key=label_key,
            labels=labels,
            target=made.data_schema.target,
            unit_column=unit_column,
            form=made.data_schema.text_format,
        )
        _check_names(source, data.feature_names, made.data_schema)
        with progress_bar("records") as progress:
            records, sums_bytes = read_records(
                data.features,
                data.labels,
                made,
                on_bad_record,  # type: ignore[arg-type]
                units=data.units,
                max_bad_share=shares.bad,
                max_memory=limit,
                threads=threads,
                position="--max-memory",
                progress=progress,
            )
        _report_to_holder(records, made)
        if dry_run:
            ERR.print("everything is in order; nothing was drawn, charged or written")
            if extractor is not None:
                ERR.print("the features were not kept; privmix extract makes a file of them")
            return
        started = monotonic()
        with mixing, progress_bar("rows") as progress:
            published = release_records(
                records,
                made,
                RunTerms(target, resume, charge, test_seed),
                sums_bytes=sums_bytes,
                backend=mixing,
                store=location,
                extractor=None if header is None else header.extractor,
                sign_key=key,
                progress=progress,
            )
    if charge is not None and charge.receipt is not None:
        ERR.print(f"ledger: {charge.receipt.told('the release')}")
    size = 4 * sum(
        component.num_mixtures * component.row_width for component in made.mechanism.components
    )
    ERR.print(
        f"{published.num_mixtures} rows, {size / 1e6:.1f} MB, in {monotonic() - started:.1f} s"
    )
    certificate = published.certificate
    guarantee = certificate.guarantee
    warn_of(guarantee)
    result = {
        "out": str(out),
        "private": certificate.private,
        "design": published.design,
        "num_mixtures": published.num_mixtures,
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "digest": published.certificate_digest,
    }
    copy = f"a copy of {location}" if location and "://" in location else location or out
    print_made(result, guarantee, copy, as_json=as_json)


def _check_vectors(
    source: Path,
    header: FeaturesHeader | None,
    schema: Schema,
    label: list[str] | None,
    unit_column: str | None,
) -> None:
    """Refuse rows of a table, and owners that would be taken for features, saying what to add."""
    check_columns(source, header, schema)
    check_owners(source, header, label, unit_column, classes=schema.classes, target=schema.target)


def _check_names(source: Path, found: tuple[str, ...] | None, schema: Schema) -> None:
    """Compare the names of columns with those of the schema; without any, say what they are for."""
    from privmix.inputs.feature_names import check_names

    check_names(str(source), found, schema.feature_names, "the schema's feature_names")
    if found is not None and schema.feature_names is None:
        ERR.print(
            "note: the schema states no feature_names; with them the certificate names the columns, "
            "and test data with other columns, or in another order, is refused"
        )


def _report_to_holder(records: Records, plan: ReleasePlan) -> None:
    """Say on stderr what only the data holder may know."""
    assert plan.data_schema is not None
    schema, count = plan.data_schema, records.count
    planned = f"(planned {schema.num_records})"
    if records.units is not None and plan.max_records_per_unit is not None:
        taking_part = records.units.num_taking_part(plan.max_records_per_unit)
        owners = len(records.units.names)
        told = [f"{count} records of {owners} owners, of which {taking_part} take part {planned}"]
    else:
        taking_part = count
        told = [f"{count} records {planned}"]
    if not 0.5 < taking_part / schema.num_records < 2:
        told.append("far from the plan, whose predictions are for the planned number")
    told.append(f"{records.num_clipped / count:.1%} clipped to norm {schema.feature_clip_norm:g}")
    if schema.target != "class":
        told.append(f"{records.num_labels_clipped / count:.1%} of the labels clipped")
    if records.num_replaced:
        told.append(f"{records.num_replaced} bad ones replaced by zero")
    tell(", ".join(told))
