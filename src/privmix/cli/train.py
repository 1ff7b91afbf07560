"""``privmix train``."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from privmix import _validate
from privmix.accounting.guarantee import NotPrivateWarning
from privmix.cli._common import (
    Json,
    app,
    print_facts,
    print_json,
    status_line,
    warn_of,
)
from privmix.cli._raw import AllowDownload, ExtractorSpec


@app.command("train", no_args_is_help=True)
def train_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Release folder.")],
    out: Annotated[Path, typer.Option(help="Model file to write (.safetensors).")],
    learner: Annotated[
        str | None,
        typer.Option(
            help="noise-aware; adaptive (releases of that design); of the papers: kl-softmax, bias-corrected-sgd, network, fisher "
            "(after a feature selection with squares, planned in Python); for releases of numbers: noise-aware-regression, "
            "bias-corrected-sgd-regression [noise-aware, adaptive for releases of that design, noise-aware-regression for numbers]."
        ),
    ] = None,
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
    class_prior: Annotated[
        str | None,
        typer.Option(
            help="noise-aware: prior of the classes at prediction: uniform, counts, estimated, or a "
            "number for each class, as in 0.9,0.1 [the records' own, where the release shows them]."
        ),
    ] = None,
    class_weight: Annotated[
        str | None,
        typer.Option(help="noise-aware: balanced, for rare classes and balanced accuracy."),
    ] = None,
    class_texts: Annotated[
        str | None,
        typer.Option(
            help="noise-aware, adaptive; releases of texts: what is known of the classes beforehand, towards which noisy ones "
            "are pulled: names, for the classes' own, or a JSON file, {class: text}. Serves small budgets."
        ),
    ] = None,
    extractor: ExtractorSpec = None,
    allow_download: AllowDownload = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the model file.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model on a release.

    Examples:
        privmix train release/ --out model.safetensors

        privmix train questions/ --class-texts names --out model.safetensors

        privmix train pixels/ --learner network --image-shape 3x32x32 --out network.safetensors

    """
    from privmix.learners import LEARNERS, save_model
    from privmix.learners.base import target_of
    from privmix.publishing.release import Release
    from privmix.publishing.verification import require_stated

    if learner is not None:
        _validate.one_of("--learner", learner, LEARNERS)
    shape = None if image_shape is None else _image_shape(image_shape)
    taken = out.exists() and not out.is_file()  # by a folder, a pipe, a device
    if taken or not out.absolute().parent.is_dir():
        _validate.fail("--out", "a file in an existing folder", str(out))
    if out.exists() and not replace:
        _validate.fail("--out", "a new file; --replace replaces one", str(out))
    _validate.outside_releases("--out", out)
    if class_texts is None and extractor is not None:
        _validate.fail(
            "--extractor", "nothing without --class-texts, whose texts it encodes", extractor
        )
    published = Release(folder)
    if learner is None:
        numbers = target_of(published) == "regression"
        learner = "noise-aware-regression" if numbers else "noise-aware"
        if published.design == "adaptive" and not numbers:
            learner = "adaptive"
    made = LEARNERS[learner]()
    prior = _class_prior(class_prior)
    given: dict[str, Any] = {"image_shape": shape, "epochs": epochs, "denoise": denoise}
    given |= {"class_prior": prior, "class_weight": class_weight}
    _set_options(made, learner, **given, class_vectors=class_texts)
    with status_line("checking the certificate"):
        require_stated(published)
    warn_of(published.certificate.guarantee)
    if class_texts is not None:
        maker = (extractor, allow_download)
        made.set_params(class_vectors=_class_vectors(published, class_texts, *maker))
    with status_line(f"training {learner}"), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)  # it was said just now
        made.fit(published)
    save_model(made, out)
    result = {
        "model": str(out),
        "private": published.certificate.private,
        "learner": learner,
        "num_mixtures": published.num_mixtures,
    }
    if as_json:
        print_json(result)
    else:
        print_facts(result)


def _image_shape(text: str) -> tuple[int, ...]:
    found = re.fullmatch(r"([0-9]{1,6})x([0-9]{1,6})x([0-9]{1,6})", text.lower())
    if found is None:
        _validate.fail("--image-shape", "CHANNELSxHEIGHTxWIDTH, as in 3x32x32", repr(text))
    return tuple(map(int, found.groups()))


def _class_prior(text: str | None) -> str | tuple[float, ...] | None:
    if text is None or text in ("uniform", "counts", "estimated"):
        return text
    allowed = "uniform, counts, estimated, or numbers, as in 0.9,0.1"
    return _validate.numbers("--class-prior", text, allowed)


def _class_vectors(release: Any, source: str, extractor: str | None, allow_download: bool) -> Any:
    """Encode a text for each class with the extractor that made the records' features."""
    from privmix.features.named import same_extractor

    identity = release.certificate.extractor
    if identity is None or identity.name != "sentence":
        allowed = "nothing but for releases of texts by extractor sentence"
        _validate.fail("--class-texts", allowed, source)
    texts = _class_texts(source, [str(name) for name in release.classes])
    with status_line("encoding the classes' texts", always=True):
        return same_extractor(identity, extractor, None, allow_download).transform(texts)


def _class_texts(source: str, names: list[str]) -> list[str]:
    if source == "names":
        return [re.sub(r"[\W_]+", " ", name).strip() for name in names]
    try:
        found = json.loads(Path(source).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        _validate.fail(
            "--class-texts", "names, or a JSON file, {class: text}", f"{source}: {error}"
        )
    missing = [
        name
        for name in names
        if not isinstance(found, dict) or not isinstance(found.get(name), str)
    ]
    if missing:
        _validate.fail(
            "--class-texts", "a text for every class", f"{source}: none for {missing[0]!r}"
        )
    return [found[name] for name in names]


def _set_options(made: Any, learner: str, **options: Any) -> None:
    """Set a learner's parameters; one that it does not have is refused."""
    for name, value in options.items():
        if value is None:
            continue
        if name not in made.get_params():
            flag = "class-texts" if name == "class_vectors" else name.replace("_", "-")
            _validate.fail(f"--{flag}", f"nothing for learner {learner}", value)
        made.set_params(**{name: value})
