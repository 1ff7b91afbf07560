"""The extractor that a flag, or a certificate, names; and whether features are of it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from privmix import _validate
from privmix.features import get_extractor, parse_spec
from privmix.features.base import local_only
from privmix.inputs.extractor import Extractor, ExtractorIdentity, FeaturesHeader
from privmix.schema import Schema


def build_extractor(
    spec: str | ExtractorIdentity, device: str | None, schema: Schema | None = None
) -> Extractor:
    """Build an extractor; the columns of ``tabular`` are those of the schema."""
    parameters: dict[str, Any] = {} if device is None else {"device": device}
    if "tabular" in (spec, getattr(spec, "name", None)):
        if device is not None:
            _validate.fail("--device", "nothing for tabular, which needs none", device)
        if spec == "tabular" and (schema is None or schema.table is None):
            allowed = "a schema with a table, for --extractor tabular; see privmix schema"
            _validate.fail("--schema", allowed, "nothing" if schema is None else "one without")
        if schema is not None and schema.table is not None and spec == "tabular":
            parameters["table"] = schema.table
    extractor = get_extractor(spec, **parameters)
    found = extractor.num_features  # reads the model, so that its faults come first
    if schema is not None and found != schema.num_features:
        allowed = f"{found}, the width of {extractor.identity.name}'s features"
        _validate.fail("schema.num_features", allowed, schema.num_features)
    return extractor


def same_extractor(
    due: ExtractorIdentity | None,
    spec: str | None,
    device: str | None,
    allow_download: bool = False,
) -> Extractor:
    """Build the extractor that a certificate names; with ``spec``, check that it is that one.

    A model that only the certificate names, which may be a stranger's, is fetched from nowhere
    unless that is allowed.
    """
    if due is None:
        allowed = "feature vectors, since the model's certificate names no extractor"
        _validate.fail("TEST", allowed, "raw records")
    allowed = f"{due}, which the certificate names"
    if spec is not None:  # names are compared before a model is looked for, on a hub perhaps
        name, given = parse_spec(spec)
        model, known = given.get("model"), due.parameters.get("model")
        other = None not in (model, known) and model != known and not Path(str(model)).is_dir()
        if name != due.name or other:
            _validate.fail("--extractor", allowed, repr(spec))
    # A name alone says no more than the identity, which also has the columns of tabular.
    strangers = spec in (None, due.name)
    with local_only() if strangers and not allow_download else nullcontext():
        extractor = build_extractor(due if strangers else str(spec), device)
    if extractor.identity.digest != due.digest:
        _validate.fail("--extractor", allowed, str(extractor.identity))
    return extractor


def check_features_header(
    position: str, header: FeaturesHeader | None, due: ExtractorIdentity | None
) -> None:
    """Refuse features of another extractor than the one of a model's certificate."""
    found = None if header is None else header.extractor
    if (found and found.digest) != (due and due.digest):
        allowed = (
            f"features of {due}, or raw records with --text-column or --image-column"
            if due
            else "vectors as given, since the model's certificate names no extractor"
        )
        received = found or "vectors without a known extractor"
        _validate.fail(position, f"{allowed}; --features-as-given skips this check", received)
