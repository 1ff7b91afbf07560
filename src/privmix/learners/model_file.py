"""Trained models as files that load without executing code."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Literal

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.extractor import ExtractorIdentity
from privmix.learners.base import LinearClassifier
from privmix.learners.noise_aware import NoiseAwareClassifier
from privmix.learners.softmax import KLSoftmaxClassifier

LEARNERS: dict[str, type[LinearClassifier]] = {
    "noise-aware": NoiseAwareClassifier,
    "kl-softmax": KLSoftmaxClassifier,
}

_HEADER = "privmix_model"
_ALLOWED = "a model file written by privmix"


class ModelHeader(FrozenModel):
    """What a model file says besides its weights; public, JSON."""

    format_version: Literal[1] = 1
    learner: str
    classes: tuple[int, ...] | tuple[str, ...]
    num_features: int
    feature_clip_norm: float
    logit_scale: float
    certificate_digest: str | None
    extractor: ExtractorIdentity | None


def save_model(model: LinearClassifier, path: str | Path) -> None:
    """Write a fitted learner to ``path``, whole or not at all.

    The file is in the safetensors format: two float64 tensors (``coef``, ``intercept``) and a JSON
    header. Parameters of the training are not kept.

    Raises:
        InvalidInputError: Not a fitted learner of this package, or a folder that cannot be
            written to.

    """
    names = {kind: name for name, kind in LEARNERS.items()}
    if type(model) not in names or not hasattr(model, "coef_"):
        _validate.fail("model", f"a fitted learner: {', '.join(LEARNERS)}", repr(model))
    header = ModelHeader(
        learner=names[type(model)],
        classes=tuple(model.classes_.tolist()),
        num_features=model.n_features_in_,
        feature_clip_norm=model.feature_clip_norm_,
        logit_scale=model.logit_scale_,
        certificate_digest=model.certificate_digest_,
        extractor=model.extractor_,
    )
    tensors = {
        "coef": np.ascontiguousarray(model.coef_, dtype=np.float64),
        "intercept": np.ascontiguousarray(model.intercept_, dtype=np.float64),
    }
    _write_atomically(Path(path), save(tensors, {_HEADER: header.model_dump_json()}))


def load_model(path: str | Path) -> LinearClassifier:
    """Read a model file; never executes code from it.

    Returns:
        The fitted learner, with default training parameters.

    Raises:
        InvalidInputError: No such file, or not a model file of this package.

    """
    place = str(path)
    if not Path(path).is_file():
        _validate.fail(place, "an existing model file", "no such file")
    try:
        with safe_open(place, framework="numpy") as file:
            metadata = file.metadata() or {}
            if _HEADER not in metadata or set(file.keys()) != {"coef", "intercept"}:
                _validate.fail(place, _ALLOWED, "another safetensors file")
            coef, intercept = file.get_tensor("coef"), file.get_tensor("intercept")
    except (SafetensorError, OSError) as error:
        _validate.fail(place, _ALLOWED, str(error).splitlines()[0])
    header = ModelHeader.from_json(metadata[_HEADER], place)
    _validate.one_of(f"{place}.learner", header.learner, LEARNERS)
    _check_tensors(place, header, coef, intercept)
    model = LEARNERS[header.learner]()
    model.coef_, model.intercept_, model.logit_scale_ = coef, intercept, header.logit_scale
    model.classes_ = np.array(header.classes)
    model.n_features_in_ = header.num_features
    model.feature_clip_norm_ = header.feature_clip_norm
    model.certificate_digest_, model.extractor_ = header.certificate_digest, header.extractor
    return model


def _check_tensors(
    place: str, header: ModelHeader, coef: np.ndarray, intercept: np.ndarray
) -> None:
    _validate.real(f"{place}.feature_clip_norm", header.feature_clip_norm, above=0.0)
    _validate.real(f"{place}.logit_scale", header.logit_scale, at_least=0.0)
    shape = (len(header.classes), header.num_features)
    if len(header.classes) < 2 or coef.shape != shape or intercept.shape != shape[:1]:
        _validate.fail(place, f"coef of shape {shape}, an intercept for each row", coef.shape)
    for name, tensor in (("coef", coef), ("intercept", intercept)):
        if tensor.dtype != np.float64 or not np.isfinite(tensor).all():
            _validate.fail(f"{place}.{name}", "finite float64 numbers", "others")


def _write_atomically(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        _validate.fail(str(path), "a file in a writable folder", error.strerror)
    finally:
        temporary.unlink(missing_ok=True)
