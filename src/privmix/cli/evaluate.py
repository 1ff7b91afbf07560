"""``privmix evaluate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from privmix import _validate
from privmix.accounting.guarantee import NOT_PRIVATE
from privmix.cli._common import (
    ERR,
    FeaturesKey,
    FormatOf,
    Json,
    LabelColumns,
    LabelKey,
    app,
    print_facts,
    print_json,
    progress_bar,
    reader_of,
    status_line,
    text_format,
)
from privmix.cli._flags import with_flags
from privmix.cli._raw import (
    AllowDownload,
    Device,
    FeaturesAsGiven,
    MaxBadShare,
    MaxMissedShare,
    RawFlags,
    SourceFacts,
    asked_shares,
    check_source,
    is_raw,
    knows_labels,
    open_raw,
    other_columns,
    report_tally,
)
from privmix.inputs.tally import Tally

if TYPE_CHECKING:
    from privmix.inputs.extractor import ExtractorIdentity
    from privmix.schema import Target


_SHOWN_CLASSES = 10
REMEDY = "--on-bad-record leave-out leaves such records out"


@app.command("evaluate", no_args_is_help=True)
@with_flags
def evaluate_command(
    *,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model file of train, or model folder of fit.")
    ],
    source: Annotated[
        Path, typer.Argument(metavar="TEST", help=".parquet, .csv or .npz, or raw records")
    ],
    label: LabelColumns = None,
    features_key: FeaturesKey = None,
    label_key: LabelKey = None,
    raw: RawFlags,
    device: Device = None,
    schema: FormatOf = None,
    unit_column: Annotated[
        str | None,
        typer.Option(
            help="Column of TEST that names owners, which is no feature; not read from raw records."
        ),
    ] = None,
    on_bad_record: Annotated[
        str,
        typer.Option(
            help="wrong: count a bad record as wrong (classes; else as error); leave-out: leave it "
            "out; error: stop at it. The command prints how many there were."
        ),
    ] = "wrong",
    max_bad_share: MaxBadShare = None,
    max_missed_share: MaxMissedShare = None,
    allow_download: AllowDownload = False,
    features_as_given: FeaturesAsGiven = False,
    as_json: Json = False,
) -> None:
    """Measure a model on labelled test data. The numbers are about the test set, not protected.

    Classes: accuracy beside that of always the commonest class, balanced accuracy, both with bootstrap
    intervals of 95 %, macro F1, AUC, log loss, calibration error, recall by class, and which classes are
    taken for which. Weights of classes: accuracy and cross-entropy. Several labels: ranking metrics.
    Numbers: R2, root mean squared and mean absolute errors.

    A bad record, such as a damaged image or a missing label, counts as wrong, and the command prints how
    many there were. Only classes can be wrong: for other targets a bad record stops the command, or is
    left out by --on-bad-record leave-out.

    TEST is raw where the model's certificate names an extractor, which is then applied, or a file
    of features that privmix extract made with it. --extractor is needed only where the extractor's
    model came from a folder. A model that the certificate names is looked for on this machine, and
    on a hub only with --allow-download.

    Examples:
        privmix evaluate model.safetensors test.parquet --label intent

        privmix evaluate model.safetensors test.csv --label intent --text-column text

        privmix evaluate model/ test.csv --label intent --text-column text

    """
    from privmix.features.extraction import transform_records
    from privmix.features.named import check_features_header, same_extractor
    from privmix.inputs.extractor import FeaturesHeader
    from privmix.inputs.feature_names import check_names
    from privmix.inputs.readers import label_names, read_labelled

    _validate.one_of("--on-bad-record", on_bad_record, ("wrong", "leave-out", "error"))
    scored = _load(model, device)
    maker_name = None if scored.extractor is None else scored.extractor.name
    shares = asked_shares(max_bad_share, max_missed_share, extractor=maker_name)
    if scored.private is False:
        words = f"{NOT_PRIVATE}: this model was made with a test seed or for research, from a release or records"
        ERR.print(f"{words} that it does not protect")
    strict = on_bad_record == "error" or (on_bad_record == "wrong" and scored.target != "class")
    check_source(source)
    header = FeaturesHeader.of_file(source)
    features: Any
    labels: Any
    if raw or (is_raw(source, header, scored.extractor) and not features_as_given):
        keys = {"--features-key": features_key, "--label-key": label_key}
        for option, value in keys.items():  # a column of owners is not looked at
            if value is not None:
                _validate.fail(option, "nothing for raw records", value)
        if label is None and scored.target == "class" and not knows_labels(source):
            _validate.fail("--label", "the name of the label column", "nothing")
        with status_line("loading the extractor", always=True):
            maker = same_extractor(scored.extractor, raw.extractor, device, allow_download)
            maker = reader_of(maker, source)
        form = text_format(schema, maker)
        records = open_raw(
            source,
            maker,
            raw,
            SourceFacts(scored.target, scored.classes, form),
            label=label,
            on_bad_record="error" if strict else "zero",
            shares=shares,
        )
        records.remedy = REMEDY
        with progress_bar("records") as progress:
            features, labels = transform_records(records, maker, progress)
        report_tally(records.tally)
    else:
        if not features_as_given:
            check_features_header(str(source), header, scored.extractor)
        if header is not None and unit_column is None:
            names = label_names(label, scored.classes, scored.target)
            if others := other_columns(source, header, names):
                allowed = f"the column of owners in {source}, which is no feature: {others}"
                _validate.fail("--unit-column", allowed, "nothing")
        data = read_labelled(
            source,
            label=label,
            classes=scored.classes,
            features_key=features_key,
            label_key=label_key,
            target=scored.target,
            unit_column=unit_column,
            form=text_format(schema),
        )
        check_names(str(source), data.feature_names, scored.feature_names, "the model")
        features, labels = data.features, data.labels
    good = _usable(features, labels, scored, strict=strict)
    num_bad = int((~good).sum())
    Tally(len(good), num_bad).check("TEST", shares, remedy=f" ({REMEDY})" * strict)
    wrong = 0 if on_bad_record == "leave-out" else num_bad
    if num_bad:
        become = "counted as wrong" if wrong else "left out of the scores"
        ERR.print(f"{num_bad} bad records of {len(good)} {become}")
    if not good.any():
        _validate.fail("TEST", "at least one record that can be scored", "none")
    found = scored.score(features[good], labels[good], wrong)
    note = f"{next(iter(found))} is a fact about the test set, which nothing here protects"
    num_test = len(good) - num_bad + wrong
    result = {**found, "num_test_records": num_test, "note": note, "private": scored.private}
    if num_bad:
        result["num_counted_as_wrong" if wrong else "num_left_out"] = num_bad
    if as_json:
        print_json(result)
    else:
        print_facts(_shortened(result))


def _shortened(result: dict[str, Any]) -> dict[str, Any]:
    """Of many classes show those of lowest recall alone; write pairs and intervals on one line."""
    shown = {}
    for name, value in result.items():
        if name == "recall" and len(value) > _SHOWN_CLASSES:
            known = sorted((r, key) for key, r in value.items() if r is not None)
            name, value = "lowest recall", {key: r for r, key in known[:_SHOWN_CLASSES]}
        elif name.endswith("_interval"):
            value = f"{value[0]:.4g} to {value[1]:.4g}"
        elif name == "confusion":
            value = {
                key: ", ".join(f"{other} {count}" for other, count in row.items())
                for key, row in value.items()
            }
        elif name == "top_confusions":
            value = {f"{one['class']} taken for {one['predicted']}": one["count"] for one in value}
        shown[name] = value
    return shown


def _usable(features: Any, labels: Any, scored: _Scored, *, strict: bool) -> NDArray[np.bool_]:
    """Return which records can be scored: finite features, and a label of the model's kind.

    Blanked records are not: what they should have been is not known any more.
    """
    from privmix.inputs.labels import LABEL_RULES, match_labels

    remedy = f" ({REMEDY})"
    if np.ndim(labels) == 0:
        _validate.fail("labels", "one for each record", "a single value")
    if len(features) == 0:
        _validate.fail("TEST", "at least one record", "none")
    if len(features) != len(labels):
        _validate.fail("labels", f"one for each of the {len(features)} records", len(labels))
    good: NDArray[np.bool_]
    if scored.target == "class":
        found = match_labels(labels, scored.classes, strict=strict, remedy=remedy)
        good = np.greater_equal(found, 0)
        allowed = "finite features"
    else:
        rule = LABEL_RULES[scored.target]
        vectors = np.asarray(labels, dtype=np.float64).reshape(len(labels), -1)
        good = np.asarray(np.all(rule.holds(vectors), axis=1))
        allowed = f"finite features, and a label of {rule.expected}"
    if features.dtype.kind == "f":
        good &= np.isfinite(features).reshape(len(features), -1).all(axis=1)
    if strict and not good.all():
        first = int(np.flatnonzero(~good)[0])
        _validate.fail(f"records[{first}]", allowed + remedy, "another")
    return good


class _Scored(NamedTuple):
    """A model, and how it is scored."""

    target: Target
    classes: tuple[int, ...] | tuple[str, ...]
    extractor: ExtractorIdentity | None
    private: bool | None
    feature_names: tuple[str, ...] | None
    score: Callable[[Any, Any, int], dict[str, Any]]


def _load(path: Path, device: str | None) -> _Scored:
    from privmix.dpsgd.opening import load_model
    from privmix.dpsgd.trainer import TrainedModel
    from privmix.learners import LinearRegressor, score

    model = load_model(path, device=device or "cpu")
    if isinstance(model, TrainedModel):
        names = model.certificate.feature_names
        classes = model.classes
    else:
        numbers = isinstance(model, LinearRegressor)
        classes = model.output_names_ if numbers else tuple(model.classes_.tolist())
        found = getattr(model, "feature_names_in_", None)
        names = None if found is None else tuple(found)

    def scores(features: Any, labels: Any, num_wrong: int) -> dict[str, Any]:
        return score(model, features, labels, num_wrong=num_wrong)

    return _Scored(model.target_, classes, model.extractor_, model.private_, names, scores)
