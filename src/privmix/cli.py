"""The command line: parse and call, no logic."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, NoReturn, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from privmix import _validate
from privmix._validate import InvalidInputError
from privmix.ledger import Balance, Ledger
from privmix.mechanism import DESIGNS, ReleaseConfig
from privmix.plan import (
    DesignOptions,
    ReleasePlan,
    calibrate_config,
    claim,
    configure,
    cost,
    default_threads,
    solve_config,
)
from privmix.planning_rule import recommend_design
from privmix.schema import Schema
from privmix.store import combine

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Private data release by random mixup under differential privacy.",
)

_out = Console(soft_wrap=True, highlight=False)
_err = Console(stderr=True, soft_wrap=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Design = Annotated[
    str | None, typer.Option(help=f"One of {', '.join(DESIGNS)}, or auto (see plan --explain).")
]
MixSize = Annotated[float | None, typer.Option(help="Planned records in a row [64].")]
NumMixtures = Annotated[int | None, typer.Option(help="Rows [the number of records].")]
SamplingProb = Annotated[
    float | None, typer.Option(help="stratified: share of a class that enters a row [0.5].")
]
RowsPerClass = Annotated[int | None, typer.Option(help="stratified: rows of each class [100].")]
RowsPerRecord = Annotated[
    int | None, typer.Option(help="transposed: rows that each record enters [64].")
]
ClassProb = Annotated[
    float | None, typer.Option(help="hierarchical: share of the rows a class is open to.")
]
ClassesPerRow = Annotated[
    float | None, typer.Option(help="hierarchical: instead, classes a row is open to, on average.")
]
Eligibility = Annotated[
    str | None, typer.Option(help="hierarchical: balanced or random [balanced].")
]
FeatureBudget = Annotated[
    float | None, typer.Option(help="hybrid: share of the budget for signed rows [0.25].")
]
Weights = Annotated[str | None, typer.Option(help="uniform: dirichlet, for random weights.")]
Alpha = Annotated[float | None, typer.Option(help="Dirichlet concentration.")]
WeightClip = Annotated[float | None, typer.Option(help="Upper bound on a random weight.")]
Relation = Annotated[str | None, typer.Option(help="transposed: add_or_remove_one or replace_one.")]
LabelBalance = Annotated[
    float | None, typer.Option(help="Label over feature noise multiplier [sqrt 2].")
]
SchemaFile = Annotated[Path | None, typer.Option("--schema", help="Schema file (JSON).")]
Label = Annotated[str | None, typer.Option("--label", help="Label column of a table.")]
FeaturesKey = Annotated[str | None, typer.Option(help="Array of an .npz with the features.")]
LabelKey = Annotated[str | None, typer.Option(help="Array of an .npz with the labels.")]
# Wrong usage as Typer reports it; the class itself has no public name.
_UsageError: type[Any] = typer.BadParameter.__mro__[1]


def _print_version(wanted: bool) -> None:
    if wanted:
        _out.print(f"privmix {version('privmix')}")
        raise typer.Exit(0)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    """Private data release by random mixup under differential privacy."""


@app.command("plan", no_args_is_help=True)
def plan_command(
    delta: Annotated[float, typer.Option(help="Delta, for example 1e-5.")],
    epsilon: Annotated[
        float | None, typer.Option(help="Largest epsilon allowed; omit to be told it.")
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Joint noise multiplier; omit to have it solved for.")
    ] = None,
    solve_for: Annotated[
        str | None,
        typer.Option(help="mix_size or num_mixtures, given --epsilon and --noise-multiplier."),
    ] = None,
    schema: SchemaFile = None,
    num_records: Annotated[int | None, typer.Option(help="Instead of a schema: records.")] = None,
    num_classes: Annotated[int | None, typer.Option(help="Instead of a schema: classes.")] = None,
    num_features: Annotated[int | None, typer.Option(help="Instead of a schema: features.")] = None,
    design: Design = None,
    mix_size: MixSize = None,
    num_mixtures: NumMixtures = None,
    sampling_prob: SamplingProb = None,
    rows_per_class: RowsPerClass = None,
    rows_per_record: RowsPerRecord = None,
    class_prob: ClassProb = None,
    classes_per_row: ClassesPerRow = None,
    eligibility: Eligibility = None,
    feature_budget: FeatureBudget = None,
    weights: Weights = None,
    alpha: Alpha = None,
    weight_clip: WeightClip = None,
    neighboring_relation: Relation = None,
    label_balance: LabelBalance = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Compare designs by a learner's predicted error.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the plan here, for release.")] = None,
    as_json: Json = False,
) -> None:
    """Plan a release from public sizes alone. Touches no data.

    Examples:
        privmix plan --schema schema.json --epsilon 1 --delta 1e-5 --out plan.json

        privmix plan --num-records 10003 --num-classes 77 --num-features 384 --epsilon 1 --delta 1e-5

    """
    if out is not None and schema is None:
        _validate.fail("--out", "a plan made with --schema, which a release needs", "no schema")
    facts = None if schema is None else _read_schema(schema)
    sizes = {"num_records": num_records, "num_classes": num_classes, "num_features": num_features}
    for name, value in sizes.items():
        option = "--" + name.replace("_", "-")
        if facts is None and value is None:
            _validate.fail(option, "a number, unless --schema is given", "nothing")
        if facts is not None and value is not None:
            _validate.fail(option, "nothing beside --schema, which states it", value)
    known = {n: getattr(facts, n) if facts else v for n, v in sizes.items()}
    if explain:
        _explain(known, epsilon, delta, as_json)
        return
    options = _design_options(
        known["num_classes"],
        mix_size=mix_size,
        num_mixtures=num_mixtures,
        sampling_prob=sampling_prob,
        rows_per_class=rows_per_class,
        rows_per_record=rows_per_record,
        class_prob=class_prob,
        classes_per_row=classes_per_row,
        eligibility=eligibility,
        feature_budget=feature_budget,
        weights=weights,
        alpha=alpha,
        weight_clip=weight_clip,
        neighboring_relation=neighboring_relation,
        label_balance=label_balance,
    )
    plan = _make_plan(
        facts,
        known,
        design,
        options,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        solve_for=solve_for,
    )
    if out is not None:
        try:
            out.write_text(plan.to_json() + "\n", encoding="utf-8")
        except OSError as error:
            _validate.fail("--out", "a file in a writable folder", f"{out}: {error.strerror}")
    if as_json:
        _print_json(plan.to_dict())
    else:
        _out.print(_plan_table(plan))


@app.command("account", no_args_is_help=True)
def account_command(
    delta: Annotated[float, typer.Option(help="Delta to state epsilon at.")],
    design: Design = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Joint noise multiplier (hybrid: one over the GDP parameter to divide)."),
    ] = None,
    releases: Annotated[
        list[Path] | None,
        typer.Option("--release", help="Instead: release folders of the same people, composed."),
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(help="Also for a person with up to this many records.")
    ] = None,
    num_records: Annotated[int | None, typer.Option(help="Records; not for stratified.")] = None,
    num_classes: Annotated[int | None, typer.Option(help="Classes, for --classes-per-row.")] = None,
    mix_size: MixSize = None,
    num_mixtures: NumMixtures = None,
    sampling_prob: SamplingProb = None,
    rows_per_class: RowsPerClass = None,
    rows_per_record: RowsPerRecord = None,
    class_prob: ClassProb = None,
    classes_per_row: ClassesPerRow = None,
    eligibility: Eligibility = None,
    feature_budget: FeatureBudget = None,
    weights: Weights = None,
    alpha: Alpha = None,
    weight_clip: WeightClip = None,
    neighboring_relation: Relation = None,
    as_json: Json = False,
) -> None:
    """State what a mechanism costs, by every accountant.

    Examples:
        privmix account --design poisson --num-records 50000 --num-mixtures 50000 --mix-size 64
        --noise-multiplier 1.26 --delta 1e-5

        privmix account --design stratified --rows-per-class 1500 --sampling-prob 0.0427
        --noise-multiplier 1.26 --delta 1e-5

    """
    if releases:
        if design is not None:
            _validate.fail("--design", "nothing beside --release", design)
        told = cost(combine(releases), delta, group_size)
    else:
        config = _account_config(
            design,
            noise_multiplier,
            num_records,
            num_classes,
            mix_size=mix_size,
            num_mixtures=num_mixtures,
            sampling_prob=sampling_prob,
            rows_per_class=rows_per_class,
            rows_per_record=rows_per_record,
            class_prob=class_prob,
            classes_per_row=classes_per_row,
            eligibility=eligibility,
            feature_budget=feature_budget,
            weights=weights,
            alpha=alpha,
            weight_clip=weight_clip,
            neighboring_relation=neighboring_relation,
        )
        told = {"design": design, **cost(config.event, delta, group_size)}
        if (claimed := config.claimed_event) is not None:
            told["claimed_by_paper"] = claim(claimed, delta)
    if as_json:
        _print_json(told)
        return
    _out.print(f"epsilon {told['epsilon']:.6g} at delta {delta:g} (certified)")
    _out.print(_accountant_table(told["accountants"]))
    for component in told.get("components", ()):
        _out.print(f"component {component['mechanism']}: epsilon {component['epsilon']:.6g}")
    if group_size is not None:
        _out.print(f"for {group_size} records of one person: epsilon {told['group_epsilon']:.6g}")
    if (paper := told.get("claimed_by_paper")) is not None:
        _out.print(f"claimed by the paper: {paper['epsilon']:.6g}, which is NOT a guarantee")


def _account_config(
    design: str | None,
    noise_multiplier: float | None,
    num_records: int | None,
    num_classes: int | None,
    **flags: Any,
) -> ReleaseConfig:
    """Build a mechanism to account for; its cost depends on neither classes nor features."""
    _validate.one_of("--design", design, DESIGNS)
    if noise_multiplier is None:
        _validate.fail("--noise-multiplier", "a number", "nothing")
    _validate.real("--noise-multiplier", noise_multiplier, above=0.0)
    if num_records is not None:
        _validate.integer("--num-records", num_records)
    elif design != "stratified":
        _validate.fail("--num-records", f"a number for design {design}", "nothing")
    if flags["classes_per_row"] is not None and num_classes is None:
        _validate.fail("--num-classes", "a number beside --classes-per-row", "nothing")
    sizes = {"num_records": num_records or 2, "num_classes": num_classes or 2, "num_features": 1}
    options = _design_options(num_classes, **flags)
    return configure(sizes, design, options, noise_multiplier)  # type: ignore[arg-type]


@app.command("release", no_args_is_help=True)
def release_command(
    source: Annotated[Path, typer.Argument(metavar="INPUT", help=".parquet, .csv or .npz")],
    out: Annotated[Path, typer.Option(help="Release folder; must not exist, or be empty.")],
    schema: SchemaFile = None,
    plan: Annotated[Path | None, typer.Option(help="Plan file made by privmix plan.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Largest epsilon, without --plan.")] = None,
    delta: Annotated[float | None, typer.Option(help="Its delta, without --plan.")] = None,
    label: Label = None,
    features_key: FeaturesKey = None,
    label_key: LabelKey = None,
    design: Design = None,
    mix_size: MixSize = None,
    num_mixtures: NumMixtures = None,
    sampling_prob: SamplingProb = None,
    rows_per_class: RowsPerClass = None,
    rows_per_record: RowsPerRecord = None,
    class_prob: ClassProb = None,
    classes_per_row: ClassesPerRow = None,
    eligibility: Eligibility = None,
    feature_budget: FeatureBudget = None,
    weights: Weights = None,
    alpha: Alpha = None,
    weight_clip: WeightClip = None,
    neighboring_relation: Relation = None,
    label_balance: LabelBalance = None,
    on_bad_record: Annotated[
        str, typer.Option(help="error: refuse NaN, infinity and unknown labels; zero: blank them.")
    ] = "error",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check everything, say so, and stop.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run into --out that was cut off.")
    ] = False,
    ledger: Annotated[
        Path | None, typer.Option(help="Ledger to charge before anything is drawn.")
    ] = None,
    dataset_id: Annotated[str | None, typer.Option(help="The data set's name there.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads [all processors].")] = None,
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

    """
    from privmix.engine import check_out, ledger_charge, recheck_plan, release_records
    from privmix.readers import read_labelled
    from privmix.records import bound_records

    threads = default_threads() if threads is None else _validate.integer("--threads", threads)
    target = check_out(out)
    given: dict[str, Any] = {
        "mix_size": mix_size,
        "num_mixtures": num_mixtures,
        "sampling_prob": sampling_prob,
        "rows_per_class": rows_per_class,
        "rows_per_record": rows_per_record,
        "class_prob": class_prob,
        "classes_per_row": classes_per_row,
        "eligibility": eligibility,
        "feature_budget": feature_budget,
        "weights": weights,
        "alpha": alpha,
        "weight_clip": weight_clip,
        "neighboring_relation": neighboring_relation,
        "label_balance": label_balance,
    }
    if plan is not None:
        others = {"epsilon": epsilon, "delta": delta, "schema": schema, "design": design, **given}
        for name, value in others.items():
            if value is not None:
                option = "--" + name.replace("_", "-")
                _validate.fail(option, "nothing beside --plan, which states it", value)
        made = ReleasePlan.from_json(_read(plan), place=str(plan))
        recheck_plan(made)
    else:
        for option, value in (("--schema", schema), ("--epsilon", epsilon), ("--delta", delta)):
            if value is None:
                _validate.fail(option, "a value, unless --plan is given", "nothing")
        assert schema is not None and epsilon is not None and delta is not None
        facts = _read_schema(schema)
        sizes = {n: getattr(facts, n) for n in ("num_records", "num_classes", "num_features")}
        options = _design_options(facts.num_classes, **given)
        made = _make_plan(facts, sizes, design, options, epsilon=epsilon, delta=delta)
    if made.data_schema is None:
        _validate.fail(f"{plan}.schema", "a schema; make the plan with --schema", "none")
    data = read_labelled(
        source,
        label=label,
        classes=made.data_schema.classes,
        features_key=features_key,
        label_key=label_key,
    )
    _validate.one_of("--on-bad-record", on_bad_record, ("error", "zero"))
    records = bound_records(*data, made.data_schema, on_bad_record)  # type: ignore[arg-type]
    _tell_holder(records.count, records.num_clipped, records.num_replaced, made.data_schema)
    if dry_run:
        return
    if test_seed is not None:
        _err.print("warning: --test-seed makes a release that protects nobody")
    with _progress("rows") as progress:
        published = release_records(
            records,
            made,
            out=target,
            resume=resume,
            charge=ledger_charge(ledger, dataset_id, made, note=str(out)),
            test_seed=test_seed,
            threads=threads,
            progress=progress,
        )
    certificate = published.certificate
    result = {
        "out": str(out),
        "private": certificate.private,
        "design": published.design,
        "num_mixtures": published.num_mixtures,
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "digest": published.certificate_digest,
    }
    if as_json:
        _print_json(result)
    else:
        _print_facts(result)
        _out.print(f"check it with: privmix verify {out} --expect-digest {result['digest']}")


@app.command("verify", no_args_is_help=True)
def verify_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Release folder.")],
    expect_digest: Annotated[
        str | None, typer.Option(help="Certificate digest as told by the data holder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a release: its files, its certificate, its rows. Exit status 1 if anything is wrong.

    Example:
        privmix verify release/ --expect-digest 3f2a...

    """
    from privmix.verification import verify

    outcome = verify(folder, expect_digest=expect_digest)
    if as_json:
        _print_json(outcome.model_dump(mode="json"))
    elif outcome.valid:
        _out.print(f"valid: ({outcome.epsilon:.6g}, {outcome.delta:g})-differentially private")
        _out.print(f"certificate digest {outcome.digest}")
        if expect_digest is None:
            _out.print(
                "compare the digest with the data holder's: a consistent forgery has another"
            )
    else:
        _out.print("NOT valid:")
        for reason in outcome.reasons:
            _out.print(f"- {reason}", markup=False)
    if not outcome.valid:
        raise typer.Exit(1)


@app.command("train", no_args_is_help=True)
def train_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Release folder.")],
    out: Annotated[Path, typer.Option(help="Model file to write (.safetensors).")],
    learner: Annotated[
        str, typer.Option(help="noise-aware, or kl-softmax (the papers' learner).")
    ] = "noise-aware",
    as_json: Json = False,
) -> None:
    """Train a model on a release.

    Example:
        privmix train release/ --out model.safetensors

    """
    from privmix.learners import LEARNERS, save_model
    from privmix.store import Release
    from privmix.verification import check_files

    made = LEARNERS[_validate.one_of("--learner", learner, LEARNERS)]()
    if out.is_dir() or not out.absolute().parent.is_dir():
        _validate.fail("--out", "a file in an existing folder", str(out))
    if any((parent / "certificate.json").exists() for parent in out.absolute().parents):
        _validate.fail("--out", "a file outside of any release, which it would break", str(out))
    published = Release(folder)
    if (changed := check_files(published)) != []:
        _validate.fail(str(folder), "a release as it was sealed; see privmix verify", changed[0])
    if not published.certificate.private:
        _err.print("note: this release was made with a test seed and protects nobody")
    with _status(f"training {learner}"):
        made.fit(published)
    save_model(made, out)
    result = {"model": str(out), "learner": learner, "num_mixtures": published.num_mixtures}
    if as_json:
        _print_json(result)
    else:
        _print_facts(result)


@app.command("evaluate", no_args_is_help=True)
def evaluate_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file.")],
    source: Annotated[Path, typer.Argument(metavar="TEST", help=".parquet, .csv or .npz")],
    label: Label = None,
    features_key: FeaturesKey = None,
    label_key: LabelKey = None,
    as_json: Json = False,
) -> None:
    """Measure a model on labelled test data. The number is about the test set, not protected.

    Example:
        privmix evaluate model.safetensors test.parquet --label intent

    """
    import numpy as np

    from privmix.learners import load_model
    from privmix.readers import read_labelled
    from privmix.records import match_labels

    learner = load_model(model)
    classes = learner.classes_.tolist()
    data = read_labelled(
        source, label=label, classes=classes, features_key=features_key, label_key=label_key
    )
    truth = match_labels(data.labels, classes)
    predicted = match_labels(learner.predict(data.features), classes)
    result = {
        "accuracy": float(np.mean(truth == predicted)),
        "num_test_records": len(truth),
        "note": "accuracy is a fact about the test set and is not protected by the release",
    }
    if as_json:
        _print_json(result)
    else:
        _print_facts(result)


ledger_app = typer.Typer(
    no_args_is_help=True, help="Keep account of what data sets have spent. Private to their holder."
)
app.add_typer(ledger_app, name="ledger")
LedgerFile = Annotated[Path, typer.Option("--ledger", help="Ledger file (SQLite).")]
DatasetId = Annotated[str, typer.Option(help="The data set's declared name.")]


@ledger_app.command("open", no_args_is_help=True)
def ledger_open_command(
    ledger: LedgerFile,
    dataset_id: DatasetId,
    epsilon_limit: Annotated[float, typer.Option(help="Most that all charges may cost together.")],
    delta: Annotated[float, typer.Option(help="The delta it is stated at.")],
    as_json: Json = False,
) -> None:
    """Enter a data set with its limit.

    Example:
        privmix ledger open --ledger ledger.db --dataset-id customers --epsilon-limit 3 --delta 1e-6

    """
    book = Ledger(ledger).open_dataset(dataset_id, epsilon_limit=epsilon_limit, delta=delta)
    _print_balances([book.balance(dataset_id)], as_json)


@ledger_app.command("show", no_args_is_help=True)
def ledger_show_command(
    ledger: LedgerFile,
    dataset_id: Annotated[str | None, typer.Option(help="One data set only.")] = None,
    as_json: Json = False,
) -> None:
    """Show what has been spent; with --json, export everything.

    Example:
        privmix ledger show --ledger ledger.db

    """
    if not ledger.is_file():
        _validate.fail("--ledger", "an existing ledger", str(ledger))
    book = Ledger(ledger)
    names = book.dataset_ids() if dataset_id is None else [dataset_id]
    _print_balances([book.balance(name) for name in names], as_json)


@ledger_app.command("charge", no_args_is_help=True)
def ledger_charge_command(
    ledger: LedgerFile,
    dataset_id: DatasetId,
    folder: Annotated[Path, typer.Option("--release", help="A release made without the ledger.")],
    as_json: Json = False,
) -> None:
    """Charge a release that was made without the ledger.

    Example:
        privmix ledger charge --ledger ledger.db --dataset-id customers --release january/

    """
    if not ledger.is_file():
        _validate.fail("--ledger", "an existing ledger", str(ledger))
    balance = Ledger(ledger).charge(dataset_id, combine([folder]), note=str(folder))
    _print_balances([balance], as_json)


def _print_balances(balances: list[Balance], as_json: bool) -> None:
    if as_json:
        _print_json({"datasets": [balance.to_dict() for balance in balances]})
        return
    table = Table("data set", "epsilon spent", "limit", "delta", "charges", title="privmix ledger")
    for b in balances:
        numbers = (f"{b.epsilon_spent:.6g}", f"{b.epsilon_limit:g}", f"{b.delta:g}")
        table.add_row(b.dataset_id, *numbers, str(len(b.charges)))
    _out.print(table)


@app.command("demo")
def demo_command(
    epsilon: Annotated[float, typer.Option(help="Privacy budget.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Its delta.")] = 1e-5,
    out: Annotated[Path | None, typer.Option(help="Keep the release here.")] = None,
    as_json: Json = False,
) -> None:
    """Run the main job on bundled data: plan, release, verify, train, evaluate.

    Example:
        privmix demo --epsilon 1

    """
    from privmix.demo import run_demo
    from privmix.engine import check_out

    if out is not None:
        check_out(out)
    with _progress("rows") as progress:
        result = run_demo(target_epsilon=epsilon, target_delta=delta, out=out, progress=progress)
    if as_json:
        _print_json(result)
        return
    table = Table("", "", title="privmix demo: Banking77, 77 intents", show_header=False)
    for name, text in (
        ("epsilon", f"{result['epsilon']:.4f}"),
        ("delta", f"{result['delta']:g}"),
        ("verified", "yes" if result["valid"] else "NO"),
        ("accuracy on the release", f"{result['accuracy']:.1%}"),
        ("accuracy without privacy", f"{result['accuracy_without_privacy']:.1%}"),
        ("rows", f"{result['num_mixtures']} ({result['design']})"),
        ("size", f"{result['size_bytes'] / 1e6:.1f} MB"),
        ("seconds", f"{result['seconds']:.1f}"),
    ):
        table.add_row(name, text)
    _out.print(table)


def _design_options(
    num_classes: int | None,
    *,
    classes_per_row: float | None,
    weights: str | None,
    alpha: float | None,
    **options: Any,
) -> DesignOptions:
    """Turn the design's flags into options; flags that are another way to say something go."""
    if classes_per_row is not None:
        if options["class_prob"] is not None:
            _validate.fail("--classes-per-row", "nothing beside --class-prob", classes_per_row)
        assert num_classes is not None
        _validate.real("--classes-per-row", classes_per_row, above=0.0, at_most=num_classes)
        options["class_prob"] = classes_per_row / num_classes
    if weights is not None:
        _validate.one_of("--weights", weights, ("dirichlet",))
        for option, value in (("--alpha", alpha), ("--weight-clip", options["weight_clip"])):
            if value is None:
                _validate.fail(option, "a number beside --weights", "nothing")
    elif alpha is not None or options["weight_clip"] is not None:
        _validate.fail("--weights", "dirichlet beside --alpha and --weight-clip", "nothing")
    if options["eligibility"] is not None:
        _validate.one_of("--eligibility", options["eligibility"], ("balanced", "random"))
    return cast(DesignOptions, {"weight_alpha": alpha, **options})


def _explain(sizes: dict[str, Any], epsilon: float | None, delta: float, as_json: bool) -> None:
    """Print the alternatives of the planning rule, the best first."""
    if epsilon is None:
        _validate.fail("--epsilon", "a number beside --explain", "nothing")
    found = recommend_design(**sizes, epsilon=epsilon, delta=delta)
    if as_json:
        _print_json({"alternatives": [asdict(alternative) for alternative in found]})
        return
    table = Table("design", "rows", "mix size", "feature budget", "predicted error")
    for a in found:
        rows = "100 a class" if a.num_mixtures is None else str(a.num_mixtures)
        size = "-" if a.mix_size is None else f"{a.mix_size:.4g}"
        budget = "-" if a.feature_budget is None else f"{a.feature_budget:g}"
        table.add_row(a.design, rows, size, budget, f"{a.predicted_error:.1%}")
    _out.print(table)
    _out.print("The error is that of a reference population: it ranks designs, no more.")


def _recommended(
    sizes: dict[str, Any], epsilon: float | None, delta: float, options: DesignOptions
) -> tuple[str, DesignOptions]:
    """Resolve ``--design auto``: the best alternative, with what the user set taking precedence."""
    if epsilon is None:
        _validate.fail("--epsilon", "a number beside --design auto", "nothing")
    best = recommend_design(**sizes, epsilon=epsilon, delta=delta)[0]
    names = ("mix_size", "num_mixtures", "feature_budget")
    chosen = {name: getattr(best, name) for name in names if getattr(best, name) is not None}
    given = {name: value for name, value in options.items() if value is not None}
    return best.design, cast(DesignOptions, chosen | given)


def _make_plan(
    schema: Schema | None,
    sizes: dict[str, Any],
    design: str | None,
    options: DesignOptions,
    *,
    epsilon: float | None,
    delta: float,
    noise_multiplier: float | None = None,
    solve_for: str | None = None,
) -> ReleasePlan:
    """Plan with one unknown: the noise, epsilon, or what ``solve_for`` names."""
    if epsilon is not None:
        _validate.real("--epsilon", epsilon, at_least=1e-6, at_most=1e4)
    _validate.delta("--delta", delta)
    if delta * sizes["num_records"] > 1:
        _err.print(
            f"note: delta {delta:g} is above 1 / num_records; it allows that much probability of "
            "giving some record away outright"
        )
    if design == "auto":
        design, options = _recommended(sizes, epsilon, delta, options)
    kind: Any = design  # checked where the mechanism is built
    if epsilon is None and noise_multiplier is None:
        _validate.fail("--epsilon", "a value, or --noise-multiplier to be told it", "nothing")
    if (solve_for is not None) != (epsilon is not None and noise_multiplier is not None):
        allowed = (
            "mix_size or num_mixtures if, and only if, --epsilon and --noise-multiplier are set"
        )
        _validate.fail("--solve-for", allowed, solve_for or "nothing")
    if noise_multiplier is None:
        assert epsilon is not None
        config = calibrate_config(sizes, kind, options, target_epsilon=epsilon, target_delta=delta)
    elif epsilon is None:
        config = configure(sizes, kind, options, noise_multiplier)
    else:
        unknown: Any = _validate.one_of("--solve-for", solve_for, ("mix_size", "num_mixtures"))
        config = solve_config(
            sizes,
            kind,
            options,
            unknown,
            noise_multiplier=noise_multiplier,
            target_epsilon=epsilon,
            target_delta=delta,
        )
    return ReleasePlan.for_config(config, delta, schema)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        _validate.fail(str(path), "a readable JSON file", getattr(error, "strerror", None) or error)


def _read_schema(path: Path) -> Schema:
    return Schema.from_json(_read(path), place=str(path))


def _tell_holder(count: int, clipped: int, replaced: int, schema: Schema) -> None:
    """Say on stderr what only the data holder may know."""
    _err.print(
        f"for your eyes only: {count} records (planned {schema.num_records}), "
        f"{clipped / count:.1%} clipped to norm {schema.feature_clip_norm:g}"
        + (f", {replaced} bad ones replaced by zero" if replaced else "")
    )


def _plan_table(plan: ReleasePlan) -> Table:
    mechanism = plan.mechanism
    table = Table("", "", title="privmix plan", show_header=False)
    guarantee = f"{plan.epsilon:.6g}, {plan.delta:g} ({mechanism.neighboring_relation})"
    rows = [("design", plan.design), ("epsilon, delta", guarantee)]
    for part in mechanism.components:
        label = part.label_noise_multiplier
        name = f"{part.design} " if len(mechanism.components) > 1 else ""
        rows += [
            (f"{name}rows", str(part.num_mixtures)),
            ("records in a row, planned", f"{part.mix_size:.6g}"),
            ("sampling probability", f"{part.sampling_prob:.6g}"),
            ("noise multiplier, joint", f"{part.noise_multiplier:.6g}"),
            ("noise multiplier, features", f"{part.feature_noise_multiplier:.6g}"),
            ("noise multiplier, labels", f"{part.labels}" if label is None else f"{label:.6g}"),
        ]
    rows += [
        ("peak memory", f"{plan.peak_memory_bytes / 1e6:.0f} MB"),
        ("disk", f"{plan.disk_bytes / 1e6:.1f} MB"),
    ]
    for name, text in rows:
        table.add_row(name, text)
    return table


def _accountant_table(accountants: dict[str, dict[str, Any] | None]) -> Table:
    table = Table("accountant", "epsilon", "lower", "upper", "guarantee")
    for name, reading in accountants.items():
        if reading is None:
            table.add_row(name, "-", "-", "-", "does not cover this design")
            continue
        numbers = [reading[key] for key in ("epsilon", "lower", "upper")]
        cells = ["-" if number is None else f"{number:.6g}" for number in numbers]
        table.add_row(name, *cells, "yes" if reading["guarantee"] else "no (approximation)")
    return table


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def _print_facts(facts: dict[str, Any]) -> None:
    for name, value in facts.items():
        shown = f"{value:.6g}" if isinstance(value, float) else value
        _out.print(f"{name}: {shown}", markup=False)


@contextmanager
def _progress(unit: str) -> Iterator[Any]:
    """Yield a callback (done, total): a bar on a terminal, now and then a line elsewhere."""
    if not _err.is_terminal:
        yield _LinePrinter(unit)
        return
    columns = (TextColumn(unit), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=_err, transient=True) as bar:
        task = bar.add_task(unit, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _LinePrinter:
    """Plain progress lines, the first two seconds after the work began and then every ten.

    The time left is judged from the first call on, so that what came before does not count.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._first: tuple[float, int] | None = None
        self._due = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = monotonic()
        if self._first is None:
            self._first, self._due = (now, done), now + 2
        if now < self._due:
            return
        self._due = now + 10
        start, before = self._first
        left = (now - start) * (total - done) / max(1, done - before)
        _err.print(f"{done} of {total} {self._unit}, about {left:.0f} s left")


@contextmanager
def _status(text: str) -> Iterator[None]:
    if _err.is_terminal:
        with _err.status(text):
            yield
    else:
        yield


def main() -> NoReturn:
    """Run the command line. Exit status: 0, 2 for bad input (one line says what), 1 for failure."""
    try:
        code = app(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except InvalidInputError as error:
        _fail(2, str(error))
    except _UsageError as error:
        if not str(error.format_message()).strip():  # a command without arguments shows its help
            sys.exit(2)
        _fail(2, error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        _fail(1, "interrupted")
    except Exception as error:
        if os.environ.get("PRIVMIX_DEBUG"):
            raise
        _fail(1, f"{type(error).__name__}: {error}")


def _fail(code: int, message: str) -> NoReturn:
    sys.stderr.write("error: " + " ".join(message.split()) + "\n")
    sys.exit(code)
