"""Public feature extractors: frozen functions of one record, by name."""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import Any

from privmix import _validate
from privmix.inputs.extractor import Extractor, ExtractorIdentity

_CLASSES = {
    "identity": "identity:IdentityExtractor",
    "pixels": "pixels:PixelExtractor",
    "scattering": "scattering:ScatteringExtractor",
    "efficientnet-lite0": "efficientnet:EfficientNetExtractor",
    "vision": "vision:VisionExtractor",
    "timm": "timm:TimmExtractor",
    "open_clip": "open_clip:OpenClipExtractor",
    "sentence": "sentence:SentenceExtractor",
    "tabular": "tabular:TabularExtractor",
}
EXTRACTORS = tuple(_CLASSES)

__all__ = [
    "EXTRACTORS",
    "Extractor",
    "ExtractorIdentity",
    "get_extractor",
    "make_extractor",
    "parse_spec",
]


def make_extractor(name: str, **parameters: Any) -> Extractor:
    """Make an extractor by name.

    Args:
        name: One of ``EXTRACTORS``.
        parameters: The parameters of its class, for example ``size=32``.

    Raises:
        InvalidInputError: Another name or parameter, or a library that is not installed.

    """
    module, _, kind = _CLASSES[_validate.one_of("extractor", name, _CLASSES)].partition(":")
    made = getattr(importlib.import_module(f"privmix.features.{module}"), kind)
    known = [field.name for field in fields(made)]
    for key in parameters:
        if key not in known:
            _validate.fail(f"extractor {name}", f"parameters {', '.join(known)}", repr(key))
    try:
        extractor: Extractor = made(**parameters)
    except TypeError as error:  # a parameter without a default is missing
        if name == "tabular":
            _validate.fail("extractor tabular", "TabularExtractor(schema.table)", "no table")
        _validate.fail(f"extractor {name}", f"parameters {', '.join(known)}", str(error))
    return extractor


def get_extractor(spec: str | ExtractorIdentity, **parameters: Any) -> Extractor:
    """Make an extractor from a line of text or from the identity in a certificate.

    Args:
        spec: ``NAME``, ``NAME:MODEL``, ``NAME:key=value,...`` or ``NAME:MODEL,key=value``:
            ``sentence``, ``vision:facebook/dinov2-small``, ``scattering:size=32,channels=3``.
            Or an identity; what is made must then have its digest.
        parameters: More parameters, such as ``device``.

    Raises:
        InvalidInputError: Another name or parameter, a model that cannot be found, or, for an
            identity, other weights than it states.

    Example:
        >>> from privmix.features import get_extractor
        >>> get_extractor("pixels:size=8,channels=1").num_features
        64

    """
    if isinstance(spec, ExtractorIdentity):
        made = make_extractor(spec.name, **(spec.parameters | parameters))
        if made.identity.digest != spec.digest:
            allowed = f"{spec}; one from a folder is given by name, as {spec.name}:FOLDER"
            _validate.fail(f"extractor {spec.name}", allowed, str(made.identity))
        return made
    name, given = parse_spec(spec)
    return make_extractor(name, **(parameters | given))


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters in a line of text, as :func:`get_extractor` takes it."""
    name, _, rest = spec.partition(":")
    parameters: dict[str, Any] = {}
    for number, part in enumerate(rest.split(",") if rest else ()):
        key, equals, value = part.partition("=")
        if equals:
            parameters[key] = _number(value)
        elif number == 0:
            parameters["model"] = part
        else:
            _validate.fail(f"extractor {spec}", "NAME:MODEL,key=value,...", repr(part))
    return name, parameters


def _number(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdigit() else text
