"""``privmix train`` and ``privmix evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from privmix import _validate
from privmix.cli._common import (
    ERR,
    FeaturesKey,
    Json,
    LabelColumns,
    LabelKey,
    app,
    print_facts,
    print_json,
    progress_bar,
    status_line,
)
from privmix.cli._raw import (
    Device,
    ExtractorSpec,
    ImageColumn,
    TextColumn,
    check_features_header,
    is_raw,
    open_raw,
    same_extractor,
)


@app.command("train", no_args_is_help=True)
def train_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Release folder.")],
    out: Annotated[Path, typer.Option(help="Model file to write (.safetensors).")],
    learner: Annotated[
        str,
        typer.Option(
            help="noise-aware; of the papers: kl-softmax, bias-corrected-sgd, network, fisher "
            "(after a feature selection); for releases of numbers: noise-aware-regression, "
            "bias-corrected-sgd-regression."
        ),
    ] = "noise-aware",
    image_shape: Annotated[
        str | None,
        typer.Option(help="network: shape of the features, channels first, as in 3x32x32."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the rows, for learners that make several.")
    ] = None,
    denoise: Annotated[
        str | None, typer.Option(help="network: none, posterior or gaussian (one pixel).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a model on a release.

    Example:
        privmix train release/ --out model.safetensors
        privmix train pixels/ --learner network --image-shape 3x32x32 --out network.safetensors

    """
    from privmix.learners import LEARNERS, save_model
    from privmix.store import Release
    from privmix.verification import check_files

    made = LEARNERS[_validate.one_of("--learner", learner, LEARNERS)]()
    shape = None if image_shape is None else _image_shape(image_shape)
    _set_options(made, learner, image_shape=shape, epochs=epochs, denoise=denoise)
    if out.is_dir() or not out.absolute().parent.is_dir():
        _validate.fail("--out", "a file in an existing folder", str(out))
    if any((parent / "certificate.json").exists() for parent in out.absolute().parents):
        _validate.fail("--out", "a file outside of any release, which it would break", str(out))
    published = Release(folder)
    if (changed := check_files(published)) != []:
        _validate.fail(str(folder), "a release as it was sealed; see privmix verify", changed[0])
    if not published.certificate.private:
        ERR.print("note: this release was made with a test seed and protects nobody")
    with status_line(f"training {learner}"):
        made.fit(published)
    save_model(made, out)
    result = {"model": str(out), "learner": learner, "num_mixtures": published.num_mixtures}
    if as_json:
        print_json(result)
    else:
        print_facts(result)


def _image_shape(text: str) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        _validate.fail("--image-shape", "CHANNELSxHEIGHTxWIDTH, as in 3x32x32", repr(text))
    return tuple(int(part) for part in parts)


def _set_options(made: Any, learner: str, **options: Any) -> None:
    """Set a learner's parameters; one that it does not have is refused."""
    for name, value in options.items():
        if value is None:
            continue
        if name not in made.get_params():
            _validate.fail(f"--{name.replace('_', '-')}", f"nothing for learner {learner}", value)
        made.set_params(**{name: value})


@app.command("evaluate", no_args_is_help=True)
def evaluate_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file.")],
    source: Annotated[Path, typer.Argument(metavar="TEST", help=".parquet, .csv or .npz")],
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
    """Measure a model on labelled test data. The number is about the test set, not protected.

    TEST is raw where the release's certificate names an extractor, which is then applied, or a file
    of features that privmix extract made with it. --extractor is needed only where the extractor's
    model came from a folder.

    Examples:
        privmix evaluate model.safetensors test.parquet --label intent

        privmix evaluate model.safetensors test.csv --label intent --text-column text

    """
    import numpy as np
    from sklearn.metrics import r2_score, root_mean_squared_error

    from privmix.extractor import FeaturesHeader
    from privmix.features.extraction import transform_records
    from privmix.learners import LinearRegressor, load_model
    from privmix.readers import LabelledData, read_labelled
    from privmix.records import match_labels

    learner = load_model(model)
    numbers = isinstance(learner, LinearRegressor)
    classes = learner.output_names_ if numbers else learner.classes_.tolist()
    header = FeaturesHeader.of_file(source)
    named = any(option is not None for option in (extractor, text_column, image_column))
    if named or (is_raw(source, header, learner.extractor_) and not features_as_given):
        if numbers:
            _validate.fail("TEST", "a file of features for a model of numbers", "raw records")
        maker = same_extractor(learner.extractor_, extractor, device)
        records = open_raw(
            source,
            maker,
            label=label,
            text_column=text_column,
            image_column=image_column,
            classes=classes,
        )
        with progress_bar("records") as progress:
            data = LabelledData(*transform_records(records, maker, progress))  # type: ignore[arg-type]
        if data.labels is None:
            _validate.fail("--label", "the name of the label column", "nothing")
    else:
        if not features_as_given:
            check_features_header(str(source), header, learner.extractor_)
        data = read_labelled(
            source,
            label=label,
            classes=classes,
            features_key=features_key,
            label_key=label_key,
            target="regression" if numbers else "class",
            unit_column=unit_column,
        )
    found: dict[str, Any]
    if numbers:
        truth = np.asarray(data.labels, dtype=np.float64).reshape(len(data.features), -1)
        guess = learner.predict(data.features).reshape(len(truth), -1)
        errors = root_mean_squared_error(truth, guess, multioutput="raw_values")
        found = {
            "r2": float(r2_score(truth, guess)),
            "rmse": dict(zip(map(str, classes), map(float, errors), strict=True)),
        }
    else:
        labels = match_labels(data.labels, classes)
        predicted = match_labels(learner.predict(data.features), classes)
        found = {"accuracy": float(np.mean(labels == predicted))}
    result = {
        **found,
        "num_test_records": len(data.labels),
        "note": f"{next(iter(found))} is a fact about the test set and is not protected by the release",
    }
    if as_json:
        print_json(result)
    else:
        print_facts(result)
