"""``privmix fit``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from privmix import _validate
from privmix.cli._common import (
    ERR,
    FeaturesKey,
    Json,
    LabelColumns,
    LabelKey,
    MaxRecordsPerUnit,
    SchemaFile,
    UnitColumn,
    app,
    print_made,
    progress_bar,
    read_schema,
    refuse_beside,
    refuse_without,
    warn_of,
)
from privmix.cli._flags import LedgerFlags, with_flags
from privmix.cli._plots import Plot, check_plot, draw_training
from privmix.cli._raw import (
    MaxMissedShare,
    RawFlags,
    SourceFacts,
    asked_shares,
    check_columns,
    check_owners,
    check_source,
    extract_with_progress,
    knows_labels,
    load_extractor,
    open_raw,
    tell,
)
from privmix.inputs.owners import match_units
from privmix.planning.plan import PrivacyUnit
from privmix.schema import Schema
from privmix.schema.text_format import PLAIN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from privmix.dpsgd import TrainingPlan
    from privmix.inputs.extractor import ExtractorIdentity
    from privmix.inputs.raw import RawRecords

_METHODS = ("plain", "self-aug", "dp-mix-self", "dp-mix-diff", "pure-diff")


@app.command("fit", no_args_is_help=True)
@with_flags
def fit_command(
    *,
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help=".npz, .parquet or .csv, or raw records")
    ],
    out: Annotated[Path, typer.Option(help="Model folder; must not exist, or be empty.")],
    epsilon: Annotated[float, typer.Option(help="Largest epsilon allowed.")],
    delta: Annotated[float, typer.Option(help="Its delta, for example 1e-5.")],
    classes: Annotated[
        str | None, typer.Option(help="All classes, public, separated by commas.")
    ] = None,
    num_records: Annotated[
        int | None, typer.Option(help="Public number of records to plan for.")
    ] = None,
    schema: SchemaFile = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Expected records in a step [a twentieth of the records, from 64 to 1,000]."
        ),
    ] = None,
    epochs: Annotated[float, typer.Option(help="Expected times a record takes part.")] = 10.0,
    learning_rate: Annotated[float, typer.Option(help="Step width.")] = 1.0,
    momentum: Annotated[float, typer.Option(help="Share of the last update kept.")] = 0.0,
    clip_norm: Annotated[float, typer.Option(help="Bound on a record's gradient.")] = 1.0,
    class_weight: Annotated[
        str | None,
        typer.Option(
            help="linear: weight of a record's loss by its class: balanced, by the schema's "
            "class_balance, or a number for each class, as in 1,9 [all alike]."
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(_METHODS)} [dp-mix-self for images, else plain]."),
    ] = None,
    num_base: Annotated[int | None, typer.Option(help="Self-augmentations [16].")] = None,
    num_mixed: Annotated[int | None, typer.Option(help="Mixtures [18].")] = None,
    num_synthetic: Annotated[int | None, typer.Option(help="Synthetic images [2].")] = None,
    mix: Annotated[str | None, typer.Option(help="mixup or cutmix [mixup].")] = None,
    transforms: Annotated[
        str | None,
        typer.Option(help="Parts of a self-augmentation, separated by commas [crop,flip]."),
    ] = None,
    synthetic: Annotated[
        Path | None, typer.Option(help="Folder (one per class) or Parquet of public images.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="linear, or from scratch: wrn-16-4, dpmix-cnn, cnn-26k, cnn-52k.")
    ] = "linear",
    backbone: Annotated[
        str | None,
        typer.Option(help="module:function that returns a public torch module, for linear."),
    ] = None,
    raw: RawFlags,
    max_missed_share: MaxMissedShare = None,
    feature_cache: Annotated[
        str | None, typer.Option(help="none; approximations: views, base (mixes features) [none].")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Torch device [cpu; of the extractor a GPU if there is one].")
    ] = None,
    label: LabelColumns = None,
    unit_column: UnitColumn = None,
    max_records_per_unit: MaxRecordsPerUnit = None,
    features_key: FeaturesKey = None,
    label_key: LabelKey = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a training that was cut off.")
    ] = False,
    charged: LedgerFlags,
    research: Annotated[
        bool, typer.Option("--research", help="Keep gradient histograms: NOT PRIVATE.")
    ] = False,
    test_seed: Annotated[
        int | None, typer.Option(help="Tests only: repeatable, NOT PRIVATE.")
    ] = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Train a model on private records by DP-SGD with mixup. Spends the budget.

    Records have classes, or a weight for each class (target soft of a schema, one --label for each
    class). For other targets see privmix release.

    Classes and number of records are stated by --classes and --num-records, or by --schema. With
    --extractor the model is linear on the features of raw records. Images to be augmented are an
    array (records, channels, height, width) in an .npz file.

    Examples:
        privmix fit train.csv --label intent --text-column text --extractor sentence
        --schema schema.json --epsilon 1 --delta 1e-5 --out model/

        privmix fit features.npz --features-key x --label-key y --classes 0,1,2 --num-records 9000
        --epsilon 1 --delta 1e-5 --out model/

        privmix fit visits.parquet --label ward --schema schema.json --unit-column patient
        --max-records-per-unit 4 --epsilon 1 --delta 1e-5 --out model/

        privmix fit images.npz --features-key x --label-key y --classes cat,dog --num-records 9000
        --epsilon 1 --delta 1e-5 --method dp-mix-diff --synthetic made/ --backbone mine:make
        --out model/

    """
    from privmix.dpsgd import (
        LinearHead,
        Network,
        check_training,
        fit,
        make_model,
        plan_training,
        read_synthetic,
    )
    from privmix.features.kept import kept_features
    from privmix.inputs.extractor import FeaturesHeader
    from privmix.inputs.feature_names import check_names
    from privmix.inputs.readers import read_labelled
    from privmix.running.journal import RunFolder, check_out
    from privmix.running.ledger import ledger_charge

    extractor = raw.extractor
    check_plot(plot)
    check_source(source)
    shares = asked_shares(None, max_missed_share, extractor=extractor)
    if charged.ledger is None:
        refuse_without("--ledger", {"who": charged.who})
    if extractor is not None:
        refuse_beside("--extractor", {"features_key": features_key, "label_key": label_key})
    if model != "linear":
        refuse_beside("a model from scratch", {"feature_cache": feature_cache})
    if method == "plain":
        refuse_beside("--method plain", {"mix": mix, "transforms": transforms})
    feature_cache, mix = feature_cache or "none", mix or "mixup"
    folder = check_out(out)
    facts = None if schema is None else read_schema(schema)
    names, num_records, target = _public_facts(classes, num_records, facts)
    PrivacyUnit(unit_column, max_records_per_unit).check("add_or_remove_one")
    feature_names = None if facts is None else facts.feature_names
    form = PLAIN if facts is None else facts.text_format
    records: RawRecords | None = None
    identity: ExtractorIdentity | None = None
    shape: tuple[int, ...]
    if extractor is not None:
        if backbone is not None:
            _validate.fail("--backbone", "nothing beside --extractor", backbone)
        # A run that was cut off while it extracted has drawn nothing yet, so nothing to resume.
        resume = resume and RunFolder(folder).is_unfinished
        maker = load_extractor(extractor, device, facts)
        records = open_raw(
            source,
            maker,
            raw,
            SourceFacts(target, names, form),
            label=label,
            unit_column=unit_column,
            shares=shares,
        )
        if target == "class" and label is None and not knows_labels(source):
            _validate.fail("--label", "the name of the label column", "nothing")
        shape, identity = (maker.num_features,), maker.identity
    else:
        raw.refuse_columns()
        header = FeaturesHeader.of_file(source)
        check_columns(source, header, facts)
        check_owners(source, header, label, unit_column, classes=names, target=target)
        data = read_labelled(
            source,
            label=label,
            classes=names,
            features_key=features_key,
            label_key=label_key,
            target=target,
            unit_column=unit_column,
            bytes_apart=True,
            form=form,
        )
        check_names(str(source), data.feature_names, feature_names, "the schema's feature_names")
        shape = tuple(data.features.shape[1:])
        identity = None if header is None else header.extractor
    chosen = method or ("dp-mix-self" if len(shape) == 3 else "plain")
    if len(shape) != 3:
        refuse_beside(f"records of shape {shape}", {"transforms": transforms})
    transforms = "crop,flip" if transforms is None else transforms
    augmentation = _augmentation(
        chosen,
        {"num_base": num_base, "num_mixed": num_mixed, "num_synthetic": num_synthetic},
        mix,
        tuple(filter(None, transforms.split(","))) if len(shape) == 3 else (),
    )
    plan = plan_training(
        target_epsilon=epsilon,
        target_delta=delta,
        epochs=epochs,
        classes=names,
        input_shape=shape,
        num_records=num_records,
        batch_size=batch_size,
        learning_rate=learning_rate,
        momentum=momentum,
        clip_norm=clip_norm,
        class_weight=_class_weight(class_weight, facts),
        augmentation=augmentation,
        target=target,
        unit_column=unit_column,
        max_records_per_unit=max_records_per_unit,
    )
    made: Any
    if model == "linear":
        _validate.one_of("--feature-cache", feature_cache, ("none", "views", "base"))
        module = None if backbone is None else _load(backbone)
        made = LinearHead(module, feature_cache=feature_cache, device=device or "cpu")  # type: ignore[arg-type]
    else:
        if backbone is not None:
            _validate.fail("--backbone", "nothing beside a model from scratch", backbone)
        if len(shape) != 3:
            _validate.fail("--model", f"linear for records of shape {shape}", model)
        made = Network(make_model(model, shape[0], len(names)), device=device or "cpu")
    public = None if synthetic is None else read_synthetic(synthetic, names, shape)
    check_training(plan, made, synthetic=public, research=research)
    charge = ledger_charge(
        charged.ledger,
        charged.dataset_id,
        plan.event,
        name=str(out),
        kind="model",
        private=not research and test_seed is None,
    )
    if charge is not None and not resume:
        charge.check()
    with ExitStack() as kept:
        if records is not None:  # after everything that is known without the records
            features = kept.enter_context(kept_features(folder, tell)) / "features.parquet"
            many = 1 if target == "class" else len(names)
            labels = [f"label{i}" for i in range(many)]
            extract_with_progress(records, maker, features, label=labels, keep_parts=True)
            data = read_labelled(
                features,
                label=labels,
                classes=names,
                target=target,
                unit_column=None if unit_column is None else "unit",
            )
        _report_to_holder(data.units, plan)
        bar = kept.enter_context(progress_bar("steps"))
        norms: dict[int, float] = {}
        trained = fit(
            data.features,
            data.labels,
            plan,
            model=made,
            out=out,
            synthetic=public,
            resume=resume,
            ledger=charged.ledger,
            dataset_id=charged.dataset_id,
            who=charged.who,
            units=data.units,
            research=research,
            test_seed=test_seed,
            extractor=identity,
            feature_names=feature_names,
            progress=_with_epsilon(bar, plan),
            watch=norms.__setitem__,
        )
    certificate = trained.certificate
    guarantee = certificate.guarantee
    warn_of(guarantee)
    result = {
        "out": str(out),
        "private": certificate.private,
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "num_steps": plan.config.num_steps,
        "noise_multiplier": plan.config.noise_multiplier,
        "num_augmentations": augmentation.num_augmentations,
        "digest": certificate.digest(),
    }
    print_made(result, guarantee, out, as_json=as_json)
    draw_training(plot, plan, norms)  # last: the digest is told whatever becomes of the plot


def _public_facts(
    classes: str | None, num_records: int | None, schema: Schema | None
) -> tuple[tuple[int, ...] | tuple[str, ...], int, Literal["class", "soft"]]:
    """Return classes, number of records and target, from the options or from a schema."""
    options = (("--classes", classes), ("--num-records", num_records))
    for option, value in options:
        if (value is None) == (schema is None):
            allowed = "a value, or --schema" if schema is None else "nothing beside --schema"
            _validate.fail(option, allowed, "nothing" if value is None else value)
    if schema is None:
        assert classes is not None and num_records is not None
        return _classes(classes), num_records, "class"
    if schema.target not in ("class", "soft"):
        _validate.fail("schema.target", "class or soft for private training", schema.target)
    return schema.classes, schema.num_records, schema.target


def _classes(text: str) -> tuple[int, ...] | tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    try:
        return tuple(int(name) for name in names)
    except ValueError:
        return names


def _class_weight(text: str | None, schema: Schema | None) -> tuple[float, ...] | None:
    from privmix.dpsgd.training_plan import class_weights

    given: Any = text
    if text is not None and text != "balanced":
        try:
            given = [float(part) for part in text.split(",")]
        except ValueError:
            allowed = "balanced, or a number for each class, as in 1,9"
            _validate.fail("--class-weight", allowed, repr(text))
    return class_weights(given, None if schema is None else schema.class_balance)


def _augmentation(
    method: str, counts: dict[str, int | None], mix: str, transforms: tuple[str, ...]
) -> Any:
    from privmix.dpsgd import AugmentationPlan

    _validate.one_of("--method", method, _METHODS)
    own = {
        "plain": (),
        "self-aug": ("num_base",),
        "dp-mix-self": ("num_base", "num_mixed"),
        "dp-mix-diff": ("num_base", "num_mixed", "num_synthetic"),
        "pure-diff": ("num_mixed", "num_synthetic"),
    }[method]
    given = {name: value for name, value in counts.items() if value is not None}
    for name, value in given.items():
        if name not in own:
            _validate.fail("--" + name.replace("_", "-"), f"nothing for method {method}", value)
    if method == "plain":
        return AugmentationPlan.plain()
    make: Callable[..., Any] = getattr(AugmentationPlan, method.replace("-", "_"))
    return make(**given, mix=mix, transforms=transforms)


def _load(name: str) -> Any:
    """Call module:function, which runs the user's own code."""
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError, ValueError) as error:
        _validate.fail("--backbone", "module:function that can be imported", f"{name}: {error}")


def _report_to_holder(units: NDArray[Any] | None, plan: TrainingPlan) -> None:
    """Say on stderr how many records take part, which only the data holder may know."""
    if units is None or plan.max_records_per_unit is None:
        return
    owners = match_units(units)
    taking_part = owners.num_taking_part(plan.max_records_per_unit)
    tell(
        f"{owners.codes.size} records of {len(owners.names)} owners, of which "
        f"{taking_part} take part (planned {plan.config.num_records})"
    )


def _with_epsilon(bar: Any, plan: TrainingPlan) -> Callable[[int, int], None]:
    """Let a progress bar go on, and now and then say what has been spent so far, at most."""
    from privmix.accounting import epsilon_at
    from privmix.accounting.rounding import rounded_up

    due = monotonic() + 2

    def step(done: int, total: int) -> None:
        nonlocal due
        bar(done, total)
        if monotonic() > due:
            due = monotonic() + 30
            spent = epsilon_at(plan.event_after(done), [plan.delta])[plan.delta]
            ERR.print(f"step {done} of {total}: epsilon {rounded_up(spent, 4):.4g} so far")

    return step
