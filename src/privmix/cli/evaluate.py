"""``privmix evaluate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from privmix import _validate
from privmix.cli._common import (
    FeaturesKey,
    Json,
    LabelColumns,
    LabelKey,
    app,
    print_facts,
    print_json,
    progress_bar,
)
from privmix.cli._raw import (
    Device,
    ExtractorSpec,
    ImageColumn,
    TextColumn,
    check_features_header,
    is_raw,
    knows_labels,
    open_raw,
    same_extractor,
)

if TYPE_CHECKING:
    from privmix.extractor import ExtractorIdentity
    from privmix.schema import Target


@app.command("evaluate", no_args_is_help=True)
def evaluate_command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model file of train, or model folder of fit.")
    ],
    source: Annotated[
        Path, typer.Argument(metavar="TEST", help=".parquet, .csv or .npz, or raw records")
    ],
    label: LabelColumns = None,
    features_key: FeaturesKey = None,
    label_key: LabelKey = None,
    text_column: TextColumn = None,
    image_column: ImageColumn = None,
    extractor: ExtractorSpec = None,
    device: Device = None,
    unit_column: Annotated[
        str | None,
        typer.Option(help="Column of TEST that names owners, which is no feature and left out."),
    ] = None,
    features_as_given: Annotated[
        bool,
        typer.Option(
            "--features-as-given", help="Take TEST's vectors for the model's kind of features."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure a model on labelled test data. The numbers are about the test set, not protected.

    Classes: accuracy. Weights of classes: accuracy and cross-entropy. Several labels: average
    precisions. Numbers: R2 and root mean squared errors.

    TEST is raw where the model's certificate names an extractor, which is then applied, or a file
    of features that privmix extract made with it. --extractor is needed only where the extractor's
    model came from a folder.

    Examples:
        privmix evaluate model.safetensors test.parquet --label intent

        privmix evaluate model.safetensors test.csv --label intent --text-column text

        privmix evaluate model/ test.csv --label intent --text-column text

    """
    from privmix.extractor import FeaturesHeader
    from privmix.features.extraction import transform_records
    from privmix.readers import read_labelled

    scored = _load(model, device)
    if not source.exists():
        _validate.fail(f"TEST {source}", "an existing file or folder", "nothing there")
    header = FeaturesHeader.of_file(source)
    named = any(option is not None for option in (extractor, text_column, image_column))
    features: Any
    labels: Any
    if named or (is_raw(source, header, scored.extractor) and not features_as_given):
        keys = {"--features-key": features_key, "--label-key": label_key}
        for option, value in (keys | {"--unit-column": unit_column}).items():
            if value is not None:
                _validate.fail(option, "nothing for raw records", value)
        if label is None and scored.target == "class" and not knows_labels(source):
            _validate.fail("--label", "the name of the label column", "nothing")
        maker = same_extractor(scored.extractor, extractor, device)
        records = open_raw(
            source,
            maker,
            label=label,
            text_column=text_column,
            image_column=image_column,
            target=scored.target,
            classes=scored.classes,
        )
        with progress_bar("records") as progress:
            features, labels = transform_records(records, maker, progress)
    else:
        if not features_as_given:
            check_features_header(str(source), header, scored.extractor)
        features, labels, _ = read_labelled(
            source,
            label=label,
            classes=scored.classes,
            features_key=features_key,
            label_key=label_key,
            target=scored.target,
            unit_column=unit_column,
        )
    found = scored.score(features, labels)
    note = f"{next(iter(found))} is a fact about the test set, which nothing here protects"
    result = {**found, "num_test_records": len(labels), "note": note}
    if as_json:
        print_json(result)
    else:
        print_facts(result)


class _Scored(NamedTuple):
    """A model, and how it is scored."""

    target: Target
    classes: tuple[int, ...] | tuple[str, ...]
    extractor: ExtractorIdentity | None
    score: Callable[[Any, Any], dict[str, Any]]


def _load(path: Path, device: str | None) -> _Scored:
    from privmix.dpsgd.certificate import is_model_folder
    from privmix.learners import LinearRegressor, load_model, score

    if is_model_folder(path):
        return _load_folder(path, device)
    learner = load_model(path)
    numbers = isinstance(learner, LinearRegressor)
    classes = learner.output_names_ if numbers else tuple(learner.classes_.tolist())
    return _Scored(learner.target_, classes, learner.extractor_, lambda x, y: score(learner, x, y))


def _load_folder(path: Path, device: str | None) -> _Scored:
    """Load a linear head on features: what other models stand on is not in their folders."""
    from privmix.dpsgd import LinearHead, TrainedModel
    from privmix.dpsgd.certificate import read_certificate
    from privmix.learners.scores import accuracy
    from privmix.records import match_labels
    from privmix.store import file_digests

    certificate = read_certificate(path)
    if file_digests(path) != certificate.files:
        _validate.fail(str(path), "a model as it was sealed; see privmix verify", "a changed one")
    head = LinearHead(None, device=device or "cpu")
    if (facts := certificate.model).architecture != head.architecture or facts.kind != head.kind:
        allowed = "a model of features; score one of images in Python, by dpsgd.TrainedModel"
        _validate.fail(str(path), allowed, f"a {facts.kind} of {facts.architecture}")
    trained = TrainedModel(path, head)

    def score(features: Any, labels: Any) -> dict[str, Any]:
        truth = match_labels(labels, trained.classes)
        return accuracy(truth, match_labels(trained.predict(features), trained.classes))

    return _Scored("class", trained.classes, certificate.extractor, score)
